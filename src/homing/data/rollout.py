"""Where a policy meets an environment: unrolls, with action chunks executed open-loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.envs.base import GoalEnv
from homing.types import Array, EnvState, Key, Obs, Segment

Policy = Callable[[Obs, Key], Array]
# (before, the policy's output, after) -> what is kept of a step
Record = Callable[[EnvState, Any, EnvState], Any]


class ActionPlan(struct.PyTreeNode):
    """Action chunks under execution: environment n takes `actions[n, used[n]]` next."""

    actions: Array  # [N, chunk, action_dim]
    used: Array  # [N] int32: actions of the chunk that were executed; 0 asks for a new chunk


def first_plan(num_envs: int, chunk: int, action_dim: int) -> ActionPlan | None:
    """Every environment asks for a chunk; None for a policy without chunks."""
    if chunk == 1:
        return None
    actions = jnp.zeros((num_envs, chunk, action_dim), jnp.float32)
    return ActionPlan(actions=actions, used=jnp.zeros((num_envs,), jnp.int32))


def next_actions(plan: ActionPlan | None, proposed: Any) -> tuple[Any, ActionPlan | None]:
    """Actions [N, action_dim] of this step; where a chunk is due, from the proposed one [N, chunk · action_dim]."""
    if plan is None:
        return proposed, None
    fresh = proposed.reshape(plan.actions.shape)
    actions = jnp.where((plan.used == 0)[:, None, None], fresh, plan.actions)
    action = jnp.take_along_axis(actions, plan.used[:, None, None], axis=1)[:, 0]
    chunk = plan.actions.shape[1]
    return action, ActionPlan(actions=actions, used=(plan.used + 1) % chunk)


def after_step(plan: ActionPlan | None, over: Array) -> ActionPlan | None:
    """A new episode, and a new goal, begin with a new chunk."""
    return None if plan is None else plan.replace(used=jnp.where(over, 0, plan.used))


def renewed(after: EnvState) -> Array:
    """[N] bool: another goal is commanded from here on."""
    return jnp.any(after.obs.goal != after.next_obs.goal, axis=-1)


def split_transition(before: EnvState, action: Array, after: EnvState) -> Segment:
    """What replay keeps of a step where a new goal begins a new episode."""
    kept = transition(before, action, after)
    return kept.replace(last=kept.last | renewed(after))


def transition(before: EnvState, action: Array, after: EnvState) -> Segment:
    """What replay keeps of a step."""
    return Segment(
        obs=before.obs,
        action=action,
        achieved_goal=after.achieved_goal,
        reward=after.reward,
        discount=1 - after.terminated.astype(jnp.float32),
        last=after.ended,
    )


def unroll(
    env: GoalEnv,
    state: EnvState,
    policy: Callable[[Obs, Key], Any],
    key: Key,
    length: int,
    record: Record = transition,
    action_of: Callable[[Any], Array] = lambda action: action,
    chunk: int = 1,
) -> tuple[EnvState, Any]:
    """`length` steps of every environment; episodes end and start on the way.

    A policy may return what its action is a function of: the environment gets `action_of` it, and `record`
    decides what is kept of a step. With `chunk` > 1 the policy proposes whole chunks, which are executed
    open-loop; an unroll, an episode and a new goal begin with new ones.
    """
    blocks = env.blocks(length)
    advance = env.advance if blocks else env.step

    def step(carry: tuple[EnvState, Any], k_action: Key) -> tuple[tuple[EnvState, Any], Any]:
        state, plan = carry
        output, plan = next_actions(plan, policy(state.obs, k_action))
        after = advance(state, action_of(output))
        return (after, after_step(plan, after.ended | renewed(after))), record(state, output, after)

    def block(carry: tuple[EnvState, Any], keys: Key) -> tuple[tuple[EnvState, Any], Any]:
        (state, plan), kept = lax.scan(step, carry, keys)
        return (env.refill(state), plan), kept

    carry = (state, first_plan(env.num_envs, chunk, env.spec.action_dim))
    keys = jax.random.split(key, length)
    if not blocks:
        carry, kept = lax.scan(step, carry, keys)
    elif blocks == 1:
        carry, kept = block(carry, keys)
    else:
        carry, kept = lax.scan(block, carry, keys.reshape(blocks, -1))
        kept = jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), kept)
    return carry[0], kept
