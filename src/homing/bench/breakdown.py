"""Breakdown of an iteration's time: its parts compiled separately, on the run's shapes and data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.bench import learner as bench_learner
from homing.bench.case import Case, net_dtype
from homing.bench.cost.roofline import timed
from homing.bench.random_data import random_inputs
from homing.compile import xla
from homing.config.onpolicy import OnPolicyPlan
from homing.config.run import RunConfig
from homing.data import replay
from homing.data.replay import EpisodeIndex, ReplayBuffer
from homing.training.build import Parts
from homing.training.loop import TrainState
from homing.training.offpolicy import OffPolicy
from homing.training.seeds import jitted
from homing.types import Array, Key

ORDER = ("collect", "sample", "update")


def measure(
    config: RunConfig, parts: Parts, train: TrainState, collected: int, seconds: float
) -> dict[str, Any]:
    """Seconds of the parts of one iteration, and the cost of its updates.

    collected: iterations collected so far
    Parts are `sample` (indices, relabelled goals, transitions and random numbers of all batches) and `update`
    (gradient steps on prepared batches); an on-policy agent has `update` only.
    """
    case = Case(config, parts.agent, parts.plan, parts.env.spec, net_dtype(config.settings))
    measured: dict[str, float] = {}
    if isinstance(parts.plan, OnPolicyPlan):
        given = jitted(lambda key: random_inputs(case, key))(train.key)
    else:
        count, loop = jnp.int32(collected), parts.loop
        assert isinstance(loop, OffPolicy)
        sampling = jitted(_sampling(loop), shared=2, arguments=4)
        sampling = xla.build(sampling.lower(train.replay, train.key, count, count))
        sample, _ = timed(lambda n: sampling(train.replay, train.key, count, jnp.int32(n)), seconds / 2)
        measured["sample"] = sample * _rounds(case)
        given = jitted(_prepared(loop), shared=1, arguments=3)(train.replay, train.key, count)
    updating = bench_learner.rounds_of_updates(case).lower(train.learner, given, jnp.int32(1))
    program = xla.build(updating)
    learner = bench_learner.measured(case, program, train.learner, given, seconds / 2)
    measured["update"] = 1e-6 * learner["microseconds_per_update"] * float(parts.plan.updates_ratio)
    return {"seconds": measured, "learner": {"net_dtype": case.net_dtype, **learner}}


def _rounds(case: Case) -> float:
    """Average number of prefetched groups of updates in an iteration."""
    return float(case.plan.updates_ratio) / case.updates


def _group(
    loop: OffPolicy, buffer: ReplayBuffer, episodes: EpisodeIndex, key: Key, first: Array
) -> tuple[Any, Any]:
    """Batches and random draws of one prefetched group, as prepared in training."""
    stored, count = replay.Stored(buffer, episodes), loop.plan.prefetch_updates
    batches, drawn, _ = loop._prepare(stored, key, first, jnp.int32(0), count)
    return batches, drawn


def _prepared(loop: OffPolicy) -> Callable[[ReplayBuffer, Key, Array], tuple[Any, Any]]:
    def run(buffer: ReplayBuffer, key: Key, collected: Array) -> tuple[Any, Any]:
        return _group(loop, buffer, replay.episode_index(buffer, collected), key, jnp.int32(0))

    return run


def _sampling(loop: OffPolicy) -> Callable[[ReplayBuffer, Key, Array, Array], Any]:
    """A function (buffer, key, collected, groups) that samples `groups` groups and returns the last."""

    def run(buffer: ReplayBuffer, key: Key, collected: Array, groups: Array) -> Any:
        episodes = replay.episode_index(buffer, collected)

        def body(i: Array, _: Any) -> Any:
            return jax.tree.map(_plain, _group(loop, buffer, episodes, key, i * loop.plan.prefetch_updates))

        return lax.fori_loop(0, groups, body, _zeros(lambda: body(jnp.int32(0), ())))

    return run


def _zeros(fn: Callable[[], Any]) -> Any:
    """Zeros with the shapes and dtypes of `fn()`."""
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(fn))


def _plain(x: Array) -> Array:
    """Key data instead of keys, since a loop carry needs an initial value and there are no zero keys."""
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


def breakdown(found: dict[str, float], iteration: float, prefill: float | None) -> dict[str, Any]:
    """Seconds of each part of an iteration and its fraction of the total.

    prefill: seconds of an iteration that only collects; if None, `collect` is the remainder of the other parts
             (see `collect_by`)
    `other` is the total minus all parts, negative where they overlap.
    """
    parts = dict(found)
    if prefill is not None:
        parts["collect"] = prefill
    else:
        parts["collect"] = max(iteration - sum(found.values()), 0.0)
    seconds = {name: parts[name] for name in ORDER if name in parts}
    seconds["other"] = iteration - sum(seconds.values())
    return {
        "breakdown_seconds": seconds,
        "breakdown_fractions": {name: value / iteration for name, value in seconds.items()},
        "collect_by": "remainder" if prefill is None else "prefill iterations",
    }


def table(row: dict[str, Any]) -> list[str]:
    """Lines with the parts of an iteration and the roofline fractions of its updates."""
    lines = [f"an iteration takes {row['seconds_per_iteration']:.4g} s:"]
    for name, seconds in row["breakdown_seconds"].items():
        lines.append(f"  {name:9s}{1e3 * seconds:12.3f} ms {row['breakdown_fractions'][name]:7.1%}")
    learner = row["learner"]
    lines.append(
        f"one update for all seeds: {learner['microseconds_per_update']:,.1f} µs, "
        f"{learner['launches_per_update']:.0f} launches"
    )
    return [*lines, f"updates reach {bench_learner.roofline_text(learner)}"]
