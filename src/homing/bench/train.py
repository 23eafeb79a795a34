"""Benchmark of full training."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import jax

from homing.bench import breakdown as bench_parts
from homing.bench.case import config_of, net_dtype
from homing.compile import xla
from homing.compile.programs import Compiled, process_seconds
from homing.config.plan import Schedule
from homing.config.run import RunConfig, identity
from homing.system import hardware
from homing.system.doctor import free_bytes
from homing.training.build import Parts, build
from homing.training.loop import TrainState
from homing.training.seeds import programs, seed_keys

NAMED = ("agent", "preset", "physics", "net")  # settings with their own columns


class Case(NamedTuple):
    """A run whose programs are being compiled."""

    config: RunConfig
    changes: Mapping[str, Any]
    parts: Parts
    compiled: Compiled
    evaluation: bool
    begin: float


def start(env: str, seeds: int, evaluation: bool = True, **given: Any) -> Case:
    """Build the run of `config_of` and start compiling it, with or without the evaluation program."""
    begin = time.perf_counter()
    config = config_of(env, seeds, **given)
    parts = build(config)
    if (free := free_bytes()) is not None:
        parts.plan.check_fits(free)
    made = programs(parts.loop, parts.eval_env)
    compiled = Compiled(made, seed_keys(config.seeds), evaluated=evaluation, identity=identity(config))
    changes = {name: value for name, value in given.items() if name not in NAMED}
    return Case(config, changes, parts, compiled, evaluation, begin)


def bench(
    case: Case, seconds: float = 20.0, fresh: bool = False, breakdown: bool = True, beside: int = 0
) -> dict[str, Any]:
    """Speed of one configuration, excluding compilation and evaluation.

    fresh:     this is the first computation of the process, so its age at the first step is meaningful
    breakdown: also measure the parts of an iteration, each compiled separately
    beside:    number of other cases compiled at the same time
    """
    config, parts, compiled = case.config, case.parts, case.compiled
    clock = _Clock(compiled, compiled.init())
    clock.run(0, 1)
    first_step = {"compiled_beside": beside} if beside else _first_step(case.begin, fresh)
    times = _times(clock, parts.plan, seconds)
    evaluated = _evaluation(compiled, clock, parts.plan, times) if case.evaluation else {}
    memory = _memory(parts.plan, fresh)  # before the breakdown, which allocates more than a run
    return {
        "env": parts.env.spec.id,
        "physics": parts.env.spec.physics,
        "agent": config.agent,
        "preset": config.preset,
        **case.changes,
        "net_dtype": net_dtype(config.settings),
        "graphs": bool(xla.options()),
        "kernels": xla.kernels(),
        "seeds": len(config.seeds),
        **_speeds(parts.plan, times),
        **evaluated,
        "compile_seconds": compiled.wait_all(),
        **first_step,
        **memory,
        **(_parts(config, parts, clock.train, times, seconds) if breakdown else {}),
        **hardware.describe(),
    }


def _first_step(begin: float, fresh: bool) -> dict[str, float]:
    results = {"set_up_seconds": time.perf_counter() - begin}
    return results | {"first_step_seconds": process_seconds()} if fresh else results


def _parts(
    config: RunConfig, parts: Parts, train: TrainState, times: dict[str, Any], seconds: float
) -> dict[str, Any]:
    found = bench_parts.measure(config, parts, train, times["next"], seconds)
    results = bench_parts.breakdown(found["seconds"], times["iteration"], times["collect"])
    return results | {"learner": found["learner"]}


class _Clock:
    """A train state, and the time to advance it."""

    def __init__(self, compiled: Compiled, train: TrainState):
        self.compiled, self.train = compiled, train

    def run(self, start: int, stop: int) -> float:
        self.compiled.wait("epoch")
        begin = time.perf_counter()
        self.train, _ = jax.block_until_ready(self.compiled.epoch(self.train, start, stop))
        return time.perf_counter() - begin


def _times(clock: _Clock, plan: Schedule, seconds: float) -> dict[str, Any]:
    """Seconds of an iteration during and after the prefill; the latter is the median of two to five rounds."""
    prefill = plan.prefill_iterations
    collect = clock.run(0, prefill) / prefill if prefill else None
    each = clock.run(prefill, prefill + 1)
    rounds, start = [], prefill + 1
    fitting = seconds / max(each, 1e-6)
    count, repeats = max(1, round(fitting / 5)), min(5, max(2, math.ceil(fitting)))
    for _ in range(repeats):
        rounds.append(clock.run(start, start + count) / count)
        start += count
    return {
        "collect": collect,
        "iteration": median(rounds),
        "rounds": rounds,
        "measured": repeats * count,
        "next": start,
    }


def _speeds(plan: Schedule, times: dict[str, Any]) -> dict[str, Any]:
    each, collect = times["iteration"], times["collect"]
    results = {
        "env_steps_per_second": plan.seeds * plan.steps_per_iteration / each,
        "updates_per_second": plan.seeds * float(plan.updates_ratio) / each,
        "seconds_per_iteration": each,
        "seconds_per_iteration_rounds": times["rounds"],
        "iterations_measured": times["measured"],
        "steps_per_iteration": plan.steps_per_iteration,
        "updates_per_iteration": float(plan.updates_ratio),
    }
    if collect is not None:
        results |= {"collect_seconds": collect, "update_seconds": each - collect}
    return results


def _evaluation(compiled: Compiled, clock: _Clock, plan: Schedule, times: dict[str, Any]) -> dict[str, float]:
    """Seconds of one evaluation, and the fraction of a full run spent on evaluations."""
    compiled.wait("evaluate")
    durations = []
    for i in range(4):
        begin = time.perf_counter()
        jax.block_until_ready(compiled.evaluate(clock.train, i))
        durations.append(time.perf_counter() - begin)
    each = median(durations[1:])
    collect = times["collect"] or times["iteration"]
    training = plan.train_iterations * times["iteration"] + plan.prefill_iterations * collect
    fraction = plan.epochs * each / (plan.epochs * each + training)
    return {"seconds_per_evaluation": each, "evaluation_fraction": fraction}


def _memory(plan: Schedule, fresh: bool) -> dict[str, int]:
    """Planned bytes, and the process's peak if this is its first measurement."""
    results = {"planned_bytes": plan.bytes_in_all}
    if not fresh:
        return results
    stats = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return results | {"peak_bytes": stats["peak_bytes_in_use"]}
    return results | {"peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def _memory_line(row: dict[str, Any]) -> str:
    planned = f"{row['planned_bytes'] / 2**30:.2f}"
    used = row.get("peak_bytes")
    return f"memory {planned} GiB planned" + ("" if used is None else f", {used / 2**30:.2f} used")


def line(row: dict[str, Any]) -> str:
    """A result as text."""
    compiled = f"compiled in {max(row['compile_seconds'].values()):.1f} s"
    if "compiled_beside" in row:
        compiled += f" together with {row['compiled_beside']} others"
    else:
        first = row.get("first_step_seconds", row["set_up_seconds"])
        compiled += f", first step after {first:.1f} s"
    parts = [
        f"{row['env']:18s} {row['seeds']:3d} seeds  {row['env_steps_per_second']:12,.0f} steps/s  "
        f"{row['updates_per_second']:9,.0f} updates/s",
        compiled,
        _memory_line(row),
    ]
    if "evaluation_fraction" in row:
        seconds, fraction = row["seconds_per_evaluation"], row["evaluation_fraction"]
        parts.insert(1, f"evaluation {seconds:.2f} s ({fraction:.1%} of a run)")
    if "breakdown_fractions" in row:
        parts[1:1] = bench_parts.table(row)
    elif "collect_seconds" in row:
        fraction = row["collect_seconds"] / row["seconds_per_iteration"]
        parts.insert(1, f"collection {fraction:.0%}, updates {1 - fraction:.0%}")
    return "\n    ".join(parts)
