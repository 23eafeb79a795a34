"""Where the time of an iteration goes: its parts compiled by themselves, on the run's shapes and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.bench import learner as bench_learner
from homing.bench.cost.roofline import timed
from homing.bench.learner import Case
from homing.compile import xla
from homing.config.onpolicy import OnPolicyPlan
from homing.config.run import RunConfig
from homing.data import replay
from homing.data.replay import Timeline
from homing.training.build import Parts
from homing.training.loop import TrainState
from homing.training.seeds import jitted
from homing.types import Array, Key

ORDER = ("collect", "sample", "update")


def measure(
    config: RunConfig, parts: Parts, train: TrainState, collected: int, seconds: float
) -> dict[str, Any]:
    """Seconds that the parts of one iteration take, and what its updates cost.

    sample:  indices, goals in hindsight and rows of all batches, and the updates' random numbers
    update:  gradient steps on batches that are ready
    `collected` iterations were made before. An on-policy agent has updates only.
    """
    case = Case(config, parts.agent, parts.plan, parts.env.spec, bench_learner.net_dtype(config.settings))
    told: dict[str, float] = {}
    if isinstance(parts.plan, OnPolicyPlan):
        given = jitted(lambda key: bench_learner.prepared(case, key))(train.key)
    else:
        count = jnp.int32(collected)
        sampling = jitted(_sampling(parts.loop), shared=2, arguments=4)
        sampling = xla.build(sampling.lower(train.ring, train.key, count, count))
        sample, _ = timed(lambda n: sampling(train.ring, train.key, count, jnp.int32(n)), seconds / 2)
        told["sample"] = sample * _rounds(case)
        given = jitted(_prepared(parts.loop), shared=1, arguments=3)(train.ring, train.key, count)
    updating = bench_learner.rounds_of_updates(case).lower(train.learner, given, jnp.int32(1))
    program = xla.build(updating)
    learner = bench_learner.measured(case, program, train.learner, given, seconds / 2)
    told["update"] = 1e-6 * learner["microseconds_per_update"] * float(parts.plan.updates_ratio)
    return {"seconds": told, "learner": {"net_dtype": case.net_dtype, **learner}}


def _rounds(case: Case) -> float:
    """Chunks of updates in an iteration, on average."""
    return float(case.plan.updates_ratio) / case.updates


def _chunk(loop: Any, ring: Any, line: Timeline, key: Key, first: Array) -> tuple[Any, Any]:
    """Batches and draws of one chunk, as training prepares them."""
    batches, drawn, _ = loop._prepare(ring, line, key, first, jnp.int32(0), loop.plan.chunk_updates)
    return batches, drawn


def _prepared(loop: Any) -> Any:
    def run(ring: Any, key: Key, collected: Array) -> tuple[Any, Any]:
        return _chunk(loop, ring, replay.timeline(ring, collected), key, jnp.int32(0))

    return run


def _sampling(loop: Any) -> Any:
    """(ring, key, collected, chunks) -> the last of that many chunks, one after the other."""

    def run(ring: Any, key: Key, collected: Array, chunks: Array) -> Any:
        line = replay.timeline(ring, collected)

        def body(i: Array, _: Any) -> Any:
            return jax.tree.map(_plain, _chunk(loop, ring, line, key, i * loop.plan.chunk_updates))

        return lax.fori_loop(0, chunks, body, _zeros(lambda: body(jnp.int32(0), ())))

    return run


def _zeros(fn: Callable[[], Any]) -> Any:
    """Of the shapes that `fn` would give."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(fn))


def _plain(x: Array) -> Array:
    """Keys as numbers: there is no key that stands for nothing."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def breakdown(found: dict[str, float], iteration: float, prefill: float | None) -> dict[str, Any]:
    """Seconds of each part of an iteration and its share.

    `prefill`: seconds of an iteration that only collects; without one, `collect` is what the
    other parts leave, and `collect_by` says so. `other` is the rest: what the whole takes beyond its parts
    (negative where they overlap).
    """
    parts = dict(found)
    if prefill is not None:
        parts["collect"] = prefill
    else:
        parts["collect"] = max(iteration - sum(found.values()), 0.0)
    told = {name: parts[name] for name in ORDER if name in parts}
    told["other"] = iteration - sum(told.values())
    return {
        "breakdown_seconds": told,
        "breakdown_shares": {name: value / iteration for name, value in told.items()},
        "collect_by": "what is left" if prefill is None else "iterations of the prefill",
    }


def table(row: dict[str, Any]) -> list[str]:
    """The parts of an iteration, one a line, and what its updates reach."""
    lines = [f"an iteration takes {row['seconds_per_iteration']:.4g} s:"]
    for name, seconds in row["breakdown_seconds"].items():
        lines.append(f"  {name:9s}{1e3 * seconds:12.3f} ms {row['breakdown_shares'][name]:7.1%}")
    learner = row["learner"]
    lines.append(
        f"an update of all seeds: {learner['microseconds_per_update']:,.1f} µs, "
        f"{learner['launches_per_update']:.0f} launches"
    )
    return [*lines, f"updates reach {bench_learner.against_ceilings(learner)}"]
