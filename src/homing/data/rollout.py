"""Where a policy meets an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.types import Array, EnvState, Key, Obs, Segment

Policy = Callable[[Obs, Key], Array]
# (before, the policy's answer, after) -> a row of what is to be remembered
Record = Callable[[EnvState, Any, EnvState], Any]


def transition(before: EnvState, action: Array, after: EnvState) -> Segment:
    """The row of a segment."""
    return Segment(
        obs=before.obs,
        action=action,
        reached=after.achieved_goal,
        reward=after.reward,
        discount=1 - after.terminated.astype(jnp.float32),
        last=after.ended,
    )


def unroll(
    env: Any,
    state: EnvState,
    policy: Callable[[Obs, Key], Any],
    key: Key,
    length: int,
    record: Record = transition,
    action_of: Callable[[Any], Array] = lambda action: action,
) -> tuple[EnvState, Any]:
    """`length` steps of every lane; episodes may end and begin on the way.

    A policy may answer with what the action follows from: the environment gets `action_of` its answer, and
    `record` decides what is kept of a step.
    """
    blocks = env.blocks(length)
    advance = env.advance if blocks else env.step

    def step(state: EnvState, k_action: Key) -> tuple[EnvState, Any]:
        answer = policy(state.obs, k_action)
        after = advance(state, action_of(answer))
        return after, record(state, answer, after)

    def block(state: EnvState, keys: Key) -> tuple[EnvState, Any]:
        state, rows = lax.scan(step, state, keys)
        return env.refill(state), rows

    keys = jax.random.split(key, length)
    if not blocks:
        return lax.scan(step, state, keys)
    if blocks == 1:
        return block(state, keys)
    state, rows = lax.scan(block, state, keys.reshape(blocks, -1))
    return state, jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)
