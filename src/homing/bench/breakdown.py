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
from homing.data.replay import EpisodeIndex
from homing.training.build import Parts
from homing.training.loop import TrainState
from homing.training.seeds import jitted
from homing.types import Array, Key

ORDER = ("collect", "sample", "update")


def measure(
    config: RunConfig, parts: Parts, train: TrainState, collected: int, seconds: float
) -> dict[str, Any]:
    """Seconds that the parts of one iteration take, and what its updates cost.

    sample:  indices, relabelled goals and transitions of all batches, and the updates' random numbers
    update:  gradient steps on batches that are ready
    `collected` iterations were made before. An on-policy agent has updates only.
    """
    case = Case(config, parts.agent, parts.plan, parts.env.spec, bench_learner.net_dtype(config.settings))
    found: dict[str, float] = {}
    if isinstance(parts.plan, OnPolicyPlan):
        given = jitted(lambda key: bench_learner.prepared(case, key))(train.key)
    else:
        count = jnp.int32(collected)
        sampling = jitted(_sampling(parts.loop), shared=2, arguments=4)
        sampling = xla.build(sampling.lower(train.replay, train.key, count, count))
        sample, _ = timed(lambda n: sampling(train.replay, train.key, count, jnp.int32(n)), seconds / 2)
        found["sample"] = sample * _rounds(case)
        given = jitted(_prepared(parts.loop), shared=1, arguments=3)(train.replay, train.key, count)
    updating = bench_learner.rounds_of_updates(case).lower(train.learner, given, jnp.int32(1))
    program = xla.build(updating)
    learner = bench_learner.measured(case, program, train.learner, given, seconds / 2)
    found["update"] = 1e-6 * learner["microseconds_per_update"] * float(parts.plan.updates_ratio)
    return {"seconds": found, "learner": {"net_dtype": case.net_dtype, **learner}}


def _rounds(case: Case) -> float:
    """Prefetched groups of updates in an iteration, on average."""
    return float(case.plan.updates_ratio) / case.updates


def _group(loop: Any, buffer: Any, episodes: EpisodeIndex, key: Key, first: Array) -> tuple[Any, Any]:
    """Batches and draws of one prefetched group, as training prepares them."""
    batches, drawn, _ = loop._prepare(buffer, episodes, key, first, jnp.int32(0), loop.plan.prefetch_updates)
    return batches, drawn


def _prepared(loop: Any) -> Any:
    def run(buffer: Any, key: Key, collected: Array) -> tuple[Any, Any]:
        return _group(loop, buffer, replay.episode_index(buffer, collected), key, jnp.int32(0))

    return run


def _sampling(loop: Any) -> Any:
    """(buffer, key, collected, groups) -> the last of that many groups of batches."""

    def run(buffer: Any, key: Key, collected: Array, groups: Array) -> Any:
        episodes = replay.episode_index(buffer, collected)

        def body(i: Array, _: Any) -> Any:
            return jax.tree.map(_plain, _group(loop, buffer, episodes, key, i * loop.plan.prefetch_updates))

        return lax.fori_loop(0, groups, body, _zeros(lambda: body(jnp.int32(0), ())))

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
    shares = {name: parts[name] for name in ORDER if name in parts}
    shares["other"] = iteration - sum(shares.values())
    return {
        "breakdown_seconds": shares,
        "breakdown_shares": {name: value / iteration for name, value in shares.items()},
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
