"""Benchmark of an agent's updates alone, on random batches of an environment's sizes, without physics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.bench.case import Case, check_fits
from homing.bench.cost import flops, hlo, profiler, roofline
from homing.bench.random_data import random_inputs
from homing.compile import xla
from homing.networks import Fit, depth_of
from homing.system import hardware
from homing.training.seeds import jitted, seed_keys
from homing.types import Array, Key, Rollout, UpdateContext

COUNTED_BY = {
    "kernels": "the profiler, on a GPU without CUDA graphs",
    "launches": "instructions of the compiled loop that launch a kernel",
    "bytes": "bytes read and written by those instructions",
    "flops": "matrix products of the traced update",
}


def rounds_of_updates(case: Case) -> Any:
    """A jitted (learner [S], inputs [S, …], rounds) -> learner, with `case.updates` updates per round."""
    agent, updates = case.agent, case.updates
    unroll = xla.unroll_factor(depth_of(agent))

    def off_policy(learner: Any, inputs: Any, rounds: Array) -> Any:
        def one(i: Array, learner: Any) -> Any:
            index = i * updates + jnp.arange(updates, dtype=jnp.int32)
            contexts = UpdateContext(index, jnp.ones((updates,), jnp.float32))
            return agent.updates(learner, *inputs, contexts, unroll=unroll)

        return lax.fori_loop(0, rounds, one, learner)

    def on_policy(learner: Any, inputs: tuple[Rollout, Key], rounds: Array) -> Any:
        rollout, key = inputs
        one = lambda i, learner: agent.learn(learner, rollout, jax.random.fold_in(key, i))[0]
        return lax.fori_loop(0, rounds, one, learner)

    return jitted(on_policy if case.on_policy else off_policy, shared=1, arguments=3)


class Ready(NamedTuple):
    """The compiled programs of a case; nothing is allocated yet."""

    start: Callable[..., Any]
    """(keys [S]) -> learner, inputs"""
    rounds: Any  # a compiled program
    """`rounds_of_updates`"""
    seconds: float


def compiled(case: Case) -> Ready:
    """Compile a case, if it fits into memory."""
    check_fits(case)
    begin = time.perf_counter()

    def first(key: Key) -> tuple[Any, Any]:
        k_learner, k_inputs = jax.random.split(key)
        return case.agent.init(k_learner), random_inputs(case, k_inputs)

    start = jitted(first)
    keys = seed_keys(case.config.seeds)
    rounds = rounds_of_updates(case).lower(*jax.eval_shape(start, keys), jnp.int32(1))
    ready = start.lower(keys).compile(), xla.build(rounds)
    return Ready(*ready, time.perf_counter() - begin)


def bench(case: Case, seconds: float = 5.0, ready: Ready | None = None) -> dict[str, Any]:
    """Updates per second of all seeds, their cost, and fractions of the machine's roofline.

    ready: the compiled case, if it was compiled before
    """
    ready = ready or compiled(case)
    learner, given = ready.start(seed_keys(case.config.seeds))
    results = measured(case, ready.rounds, learner, given, seconds)
    ratio = float(case.plan.updates_ratio) / case.plan.steps_per_iteration
    return {
        "env": case.spec.id,
        "agent": case.config.agent,
        "preset": case.config.preset,
        "seeds": case.plan.seeds,
        "net_dtype": case.net_dtype,
        **({} if case.on_policy else {"batch_size": case.plan.config.batch_size}),
        "parameters": _parameters(learner) // case.plan.seeds,
        **results,
        "updates_per_step": ratio,
        "env_steps_per_second_at_most": results["updates_per_second"] / ratio,
        "compile_seconds": ready.seconds,
        **hardware.describe(),
    }


def _parameters(learner: Any) -> int:
    """Number of trainable parameters, summed over seeds."""
    fits = jax.tree.leaves(learner, is_leaf=lambda node: isinstance(node, Fit))
    return sum(x.size for fit in fits if isinstance(fit, Fit) for x in jax.tree.leaves(fit.params))


def measured(case: Case, program: Any, learner: Any, given: Any, seconds: float) -> dict[str, Any]:
    """Time and cost of the updates of a compiled `rounds_of_updates` on the given inputs."""
    each, rounds = roofline.timed(lambda count: program(learner, given, jnp.int32(count)), seconds)
    seeds, updates = case.plan.seeds, case.updates
    rate = seeds * updates / each
    flops = _flops(case, *jax.tree.map(lambda x: x[0], (learner, given)))
    cost = hlo.cost(program.as_text())
    # The profiler does not see kernels inside of CUDA graphs.
    graphs = bool(xla.options())
    profiled = None if graphs else profiler.kernels(lambda: program(learner, given, jnp.int32(1)))
    results = {
        "updates_per_second": rate,
        "microseconds_per_update": 1e6 * each / updates,
        "microseconds_per_update_rounds": [1e6 * r / updates for r in rounds],
        "graphs": graphs,
        "launches_per_update": cost.launches / updates,
        **({} if profiled is None else {"kernels_per_update": profiled / updates}),
        "flops_per_update": flops,
        "tflops_per_second": 1e-12 * rate * flops,
        "bytes_per_update": cost.bytes / updates / seeds,
        "bytes_per_second": cost.bytes / each,
        "counted_by": COUNTED_BY,
    }
    return results | roofline.against_roofline(
        results["tflops_per_second"], results["bytes_per_second"], case.net_dtype
    )


def _flops(case: Case, learner: Any, given: Any) -> float:
    """FLOPs of one update of one seed."""
    with xla.without_kernels():  # products inside a kernel are not seen
        if case.on_policy:
            learn = lambda learner, given: case.agent.learn(learner, *given)[0]
            return flops.product_flops(learn, learner, given) / case.updates
        update = lambda learner, given: case.agent.update(learner, *given, UpdateContext())[0]
        return flops.product_flops(update, learner, jax.tree.map(lambda x: x[0], given))


def line(row: dict[str, Any]) -> str:
    """A result as text."""
    who = f"{row['env']} {row['agent']}, {row['seeds']} seed{'s' if row['seeds'] > 1 else ''}"
    parts = [
        f"{who:28s} {row['updates_per_second']:12,.0f} updates/s  {row['microseconds_per_update']:10,.1f} µs "
        f"per update of all seeds  {row['launches_per_update']:.0f} launches",
        f"allows {row['env_steps_per_second_at_most']:,.0f} steps/s "
        f"at {row['updates_per_step']:.4g} updates per step",
        roofline_text(row),
    ]
    return "\n    ".join(parts)


def roofline_text(row: Mapping[str, Any]) -> str:
    """Compute and bandwidth of the updates against the machine's roofline."""
    dtype, peak = row["net_dtype"], row["roofline"]
    return (
        f"{row['tflops_per_second']:.3g} of {peak[f'{dtype}_tflops_per_second']:.3g} TFLOP/s in {dtype} "
        f"({row['flops_fraction']:.1%}), {row['bytes_per_second'] / 1e9:.3g} of "
        f"{peak['bytes_per_second'] / 1e9:.3g} GB/s ({row['bytes_fraction']:.1%})"
    )
