"""Where a policy meets an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.types import Array, EnvState, Key, Obs, Segment

Policy = Callable[[Obs, Key], Array]


def unroll(env: Any, state: EnvState, policy: Policy, key: Key, length: int) -> tuple[EnvState, Segment]:
    """`length` steps of every lane; episodes may end and begin on the way."""
    blocks = env.blocks(length)
    advance = env.advance if blocks else env.step

    def step(state: EnvState, k_action: Key) -> tuple[EnvState, Segment]:
        action = policy(state.obs, k_action)
        after = advance(state, action)
        row = Segment(
            obs=state.obs,
            action=action,
            reached=after.achieved_goal,
            reward=after.reward,
            discount=1 - after.terminated.astype(jnp.float32),
            last=after.ended,
        )
        return after, row

    def block(state: EnvState, keys: Key) -> tuple[EnvState, Segment]:
        state, rows = lax.scan(step, state, keys)
        return env.refill(state), rows

    keys = jax.random.split(key, length)
    if not blocks:
        return lax.scan(step, state, keys)
    if blocks == 1:
        return block(state, keys)
    state, rows = lax.scan(block, state, keys.reshape(blocks, -1))
    return state, jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)
