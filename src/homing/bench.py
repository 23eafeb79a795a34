"""Measuring speed on the machine at hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp

from homing import compiler, hardware
from homing.envs import make
from homing.envs.base import GoalEnv, check_size
from homing.types import EnvState, bytes_of


def compared_physics(*given: Any, compare: bool = True) -> dict[str, Any]:
    """`bench_physics`, with the ratio to the same without kernels of our own where it is asked for."""
    row = bench_physics(*given)
    if not compare:
        return row
    with compiler.plain():
        plain = bench_physics(*given)["steps_per_second"]
    return row | {"plain": {"steps_per_second": plain}, "times_plain": row["steps_per_second"] / plain}


def bench_physics(
    env_id: str, num_envs: int, steps: int = 256, repeats: int = 5, physics: str | None = None
) -> dict[str, Any]:
    """Environment steps per second with auto-reset, under random actions, and what the auto-reset costs.

    `reset_share` is the part of a step that starting episodes takes: 1 − (time without)/(time with).
    """
    check_size("steps", steps)
    check_size("repeats", repeats)
    env = make(env_id, num_envs=num_envs, physics=physics)
    begin = time.perf_counter()
    reset = jax.jit(env.reset).lower(jax.random.key(0)).compile()
    state = jax.block_until_ready(reset(jax.random.key(0)))
    reset_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    run = _compile_run(env, env.advance if env.blocks(steps) else env.step, state, steps, env.refill)
    compile_seconds = time.perf_counter() - begin
    without = _compile_run(env, env._move, state, steps)
    seconds, state = _time(run, state, repeats)
    bare, _ = _time(without, state, repeats)
    return {
        "env": env.id,
        "physics": env.spec.physics,
        "kernels": compiler.kernels(),
        "num_envs": num_envs,
        "steps": steps,
        "steps_per_second": steps * num_envs / seconds,
        "milliseconds_per_step": 1e3 * seconds / steps,
        "reset_share": 1.0 - bare / seconds,
        "compile_seconds": compile_seconds,
        "reset_compile_seconds": reset_seconds,
        "bytes_per_env": bytes_of(state) / num_envs,
        **hardware.describe(),
    }


def _compile_run(
    env: GoalEnv, step: Callable, state: EnvState, steps: int, after_block: Callable = lambda state: state
) -> Callable:
    """A compiled function that takes `steps` steps under random actions, in blocks as training does."""
    blocks = env.blocks(steps) or 1

    def run(state: EnvState) -> EnvState:
        key = jax.random.key(1)
        actions = jax.random.uniform(key, (16, env.num_envs, env.spec.action_dim), jnp.float32, -1.0, 1.0)
        body = lambda i, state: step(state, actions[i % 16])
        block = lambda _, state: after_block(jax.lax.fori_loop(0, steps // blocks, body, state))
        return jax.lax.fori_loop(0, blocks, block, state)

    return jax.jit(run).lower(state).compile()


def _time(run: Callable, state: EnvState, repeats: int) -> tuple[float, EnvState]:
    """Median seconds of a run, after one that warms up."""
    state = jax.block_until_ready(run(state))
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        state = jax.block_until_ready(run(state))
        taken.append(time.perf_counter() - begin)
    return median(taken), state
