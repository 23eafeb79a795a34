"""How well a policy reaches goals one after the other, without a reset between them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.data.rollout import ActionPlan, Policy, after_step, first_plan, next_actions
from homing.envs.base import GoalEnv
from homing.types import Array, EnvState, Key, Metrics


class Chain(struct.PyTreeNode):
    """The progress of N chains of goals."""

    position: Array  # [N] int32: goals that are over, reached or not
    elapsed: Array  # [N] int32: steps spent on the current goal
    reached: Array  # [N, length] bool
    fell: Array  # [N] bool: a fall ended the chain

    @property
    def running(self) -> Array:
        """[N] bool: the chain is not over."""
        return ~self.fell & (self.position < self.reached.shape[1])


class Carry(struct.PyTreeNode):
    """What one step of all chains passes on to the next."""

    state: EnvState
    plan: ActionPlan | None
    chain: Chain
    key: Key


def evaluate_chain(
    env: GoalEnv, policy: Policy, key: Key, length: int, steps: int | None = None, chunk: int = 1
) -> Metrics:
    """Fractions of goals reached, by position in chains of `length` goals, over N chains.

    A goal is over when it is reached or after `steps` (by default the time limit of an episode). The next one is
    drawn from the environment's distribution, from where the robot is in environments that start anywhere, and is
    never reached already where the environment has another. The robot is not reset. A fall ends the chain: its
    remaining goals count as not reached. A new goal begins a new action chunk.
    """
    limit = env.episode_length if steps is None else steps
    # Without auto-reset; the time limit lies behind the last step of a chain.
    env = env.of_size(env.num_envs, restarts=False, episode_length=length * limit + 1)
    k_start, k_steps = jax.random.split(key)

    def step(carry: Carry) -> Carry:
        key, k_action, k_goals = jax.random.split(carry.key, 3)
        action, plan = next_actions(carry.plan, policy(carry.state.obs, k_action))
        state = env.advance(carry.state, action)
        chain, over = _counted(carry.chain, state, limit)
        goals = env.next_goals(k_goals, state.achieved_goal)
        goal = jnp.where(over[:, None], goals, state.obs.goal)
        state = state.replace(obs=state.obs.replace(goal=goal))
        return Carry(state=state, plan=after_step(plan, over), chain=chain, key=key)

    first = Carry(
        state=env.reset(k_start),
        plan=first_plan(env.num_envs, chunk, env.spec.action_dim),
        chain=_nothing(env.num_envs, length),
        key=k_steps,
    )
    last: Any = lax.while_loop(lambda carry: jnp.any(carry.chain.running), step, first)
    return _summary(last.chain)


def _nothing(num_envs: int, length: int) -> Chain:
    zeros = jnp.zeros((num_envs,), jnp.int32)
    return Chain(
        position=zeros,
        elapsed=zeros,
        reached=jnp.zeros((num_envs, length), bool),
        fell=jnp.zeros((num_envs,), bool),
    )


def _counted(chain: Chain, state: EnvState, limit: int) -> tuple[Chain, Array]:
    """The chains after a step, and where a goal is over, bool [N]."""
    running = chain.running
    hit = running & (state.metrics["success"] > 0)
    elapsed = chain.elapsed + 1
    over = hit | (running & (elapsed >= limit))
    current = jnp.arange(chain.reached.shape[1], dtype=jnp.int32) == chain.position[:, None]
    counted = Chain(
        position=chain.position + over.astype(jnp.int32),
        elapsed=jnp.where(over, 0, elapsed),
        reached=chain.reached | (current & hit[:, None]),
        fell=chain.fell | (running & state.terminated),
    )
    return counted, over


def _summary(chain: Chain) -> Metrics:
    reached = chain.reached.astype(jnp.float32)
    by_position = jnp.mean(reached, axis=0)
    return {
        "reached": jnp.mean(reached),
        "reached_all": jnp.mean(jnp.all(chain.reached, axis=1).astype(jnp.float32)),
        "fell": jnp.mean(chain.fell.astype(jnp.float32)),
        **{f"reached_{k + 1}": value for k, value in enumerate(by_position)},
    }
