"""Benchmark of environment steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from homing.bounds import check_value
from homing.compile import xla
from homing.compile.programs import in_groups
from homing.envs import make
from homing.envs.base import GoalEnv
from homing.system import hardware
from homing.types import EnvState, bytes_of


class Case(NamedTuple):
    """An environment with its compiled programs."""

    env: GoalEnv
    steps: int
    state: EnvState
    run: Callable[[EnvState], EnvState]
    without: Callable[[EnvState], EnvState] | None
    """The same without auto-reset, if its cost is to be measured."""
    plain: Callable[[EnvState], EnvState] | None
    """The same without kernels and stages, if they are to be compared."""
    compile_results: Mapping[str, Any]


def physics_rows(
    cases: Sequence[tuple[str, int]],
    steps: int,
    repeats: int,
    physics: str | None,
    compare: bool,
    reset_cost: bool = True,
) -> Iterator[dict[str, Any] | Exception]:
    """One row, or the error, for each environment id and number of environments; compiled in groups on a GPU.

    compare:    add the ratio to the same without kernels and, on a CPU, without stages
    reset_cost: measure the fraction of auto-reset too, which compiles one more program
    """
    check_value("repeats", repeats)

    def maker(case: tuple[str, int]) -> Callable[[int], Case]:
        return lambda beside: prepare(*case, steps, physics, compare, reset_cost)

    for get, beside in in_groups([maker(case) for case in cases]):
        try:
            yield measure(get(), repeats) | ({"compiled_beside": beside} if beside else {})
        except Exception as error:
            yield error


def bench_physics(env_id: str, num_envs: int, steps: int = 256, repeats: int = 5) -> dict[str, Any]:
    """Environment steps per second with random actions, and the cost of auto-reset."""
    check_value("repeats", repeats)
    return measure(prepare(env_id, num_envs, steps), repeats)


def prepare(
    env_id: str,
    num_envs: int,
    steps: int,
    physics: str | None = None,
    compare: bool = False,
    reset_cost: bool = True,
) -> Case:
    """Compile reset and steps of an environment."""
    check_value("steps", steps)
    env = make(env_id, num_envs=num_envs, physics=physics)
    begin = time.perf_counter()
    reset = jax.jit(env.reset).lower(jax.random.key(0)).compile()
    state = jax.block_until_ready(reset(jax.random.key(0)))
    reset_seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    step = env.advance if env.blocks(steps) else env.step
    run = _compile_run(env, step, state, steps, env.refill)
    results = {
        "graphs": bool(xla.options()),
        "kernels": xla.kernels(),
        "compile_seconds": time.perf_counter() - begin,
        "reset_compile_seconds": reset_seconds,
    }
    without = _compile_run(env, env._move, state, steps) if reset_cost else None
    with xla.without_kernels():
        plain = _compile_run(env, step, state, steps, env.refill) if compare else None
    return Case(env, steps, state, run, without, plain, results)


def measure(case: Case, repeats: int) -> dict[str, Any]:
    """Time a case; `reset_fraction` is the fraction of a step spent on auto-reset, 1 − (time without)/(time with)."""
    env, steps = case.env, case.steps
    seconds, state = _time(case.run, case.state, repeats)
    row = {
        "env": env.id,
        "physics": env.spec.physics,
        "num_envs": env.num_envs,
        "steps": steps,
        "steps_per_second": steps * env.num_envs / seconds,
        "milliseconds_per_step": 1e3 * seconds / steps,
        **case.compile_results,
        "bytes_per_env": bytes_of(state) / env.num_envs,
        **hardware.describe(),
    }
    if case.without is not None:
        row["reset_fraction"] = 1.0 - _time(case.without, state, repeats)[0] / seconds
    if case.plain is None:
        return row
    plain, _ = _time(case.plain, case.state, repeats)
    compared = {"steps_per_second": steps * env.num_envs / plain}
    return row | {"plain": compared, "times_plain": plain / seconds}


def _compile_run(
    env: GoalEnv, step: Callable, state: EnvState, steps: int, after_block: Callable = lambda state: state
) -> Callable:
    """A compiled function of `steps` steps with random actions, in blocks and with the options of training."""
    blocks = env.blocks(steps) or 1

    def run(state: EnvState) -> EnvState:
        key = jax.random.key(1)
        actions = jax.random.uniform(key, (16, env.num_envs, env.spec.action_dim), jnp.float32, -1.0, 1.0)
        body = lambda i, state: step(state, actions[i % 16])
        block = lambda _, state: after_block(jax.lax.fori_loop(0, steps // blocks, body, state))
        return jax.lax.fori_loop(0, blocks, block, state)

    return xla.build(jax.jit(run).lower(state))


def _time(run: Callable, state: EnvState, repeats: int) -> tuple[float, EnvState]:
    """Median seconds of a run, after one warm-up run."""
    state = jax.block_until_ready(run(state))
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        state = jax.block_until_ready(run(state))
        times.append(time.perf_counter() - begin)
    return median(times), state
