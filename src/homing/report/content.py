"""The content of a page as plain values for JSON: curves, tables, settings, machines, films."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from homing.report import comparison
from homing.report.groups import By, Curve, Group, differing, make_groups, method_labels, show, task_labels
from homing.report.names import EVALUATION, metric
from homing.report.reading import Problem, RunRecord, short_names
from homing.runs.stats import Band, Estimate, estimate
from homing.version import __version__

BAND_POINTS = 120
SEED_NUMBERS = 300_000  # in all seeds' lines together: keeps the page of many runs at a few megabytes
BAND_RESAMPLES = 1000
AXES = ("step", "hours")


@dataclasses.dataclass(frozen=True)
class Content:
    """The results of some runs: `groups` to compute with, `page` to show."""

    groups: Sequence[Group]
    page: dict[str, Any]


def make_content(
    records: Sequence[RunRecord],
    problems: Sequence[Problem],
    *,
    by: By = "settings",
    title: str | None = None,
    memory: dict[str, Any] | None = None,
) -> Content:
    """The content of a page about some runs; `memory` caches bands between calls."""
    memory = {} if memory is None else memory
    groups, doubts = make_groups(records, by)
    methods = comparison.ranked(groups)
    tasks = list(dict.fromkeys(group.task for group in groups))
    metrics = _metrics(groups)
    page = {
        "title": title or _title(records),
        "version": __version__,
        "made": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "runs": len(records),
        "seeds": sum(len(group.curves) for group in groups),
        "steps": sum(curve.step[-1] for group in groups for curve in group.curves),
        "running": sum(record.status == "running" for record in records),
        "problems": [dataclasses.asdict(p) for p in [*problems, *doubts, *_nameless(records)]],
        "metrics": {name: dataclasses.asdict(metric(name)) for name in metrics},
        "methods": methods,
        "tasks": tasks,
        "groups": _groups(groups, methods, tasks, metrics, memory),
        "comparison": _comparison(groups, methods),
        "settings": _settings(records, by),
        "machines": _machines(records),
    }
    return Content(groups, page)


def _title(records: Sequence[RunRecord]) -> str:
    what = records[0].agent if len(records) == 1 else f"{len(records)} runs"
    envs = list(dict.fromkeys(record.env for record in records))
    return f"{what} on {envs[0]}" if len(envs) == 1 and records[0].config else what


def _nameless(records: Sequence[RunRecord]) -> list[Problem]:
    """A remark on metrics files without their runs, which may be of different environments."""
    names = [record.path.name for record in records if not record.config]
    if len(names) < 2:
        return []
    return [Problem(", ".join(names), "no environments are named; compare as if all were of the same one")]


def _metrics(groups: Sequence[Group]) -> list[str]:
    """Metrics that have a chart: evaluation in the order of `names`, then the others by name."""
    found = {name for group in groups for name in group.metrics() if name.startswith(("eval/", "train/"))}
    known = [name for name in EVALUATION if name in found]
    return [*known, *sorted(n for n in found if n not in known)]


# Groups and their curves.


def _groups(
    groups: Sequence[Group],
    methods: Sequence[str],
    tasks: Sequence[str],
    metrics: Sequence[str],
    memory: dict[str, Any],
) -> list[dict[str, Any]]:
    seeds = sum(len(group.curves) for group in groups)
    points = min(BAND_POINTS, max(12, SEED_NUMBERS // max(1, seeds * len(metrics))))
    return [
        {
            "method": methods.index(group.method),
            "task": tasks.index(group.task),
            "seeds": len(group.curves),
            "diverged": sum(curve.diverged for curve in group.curves),
            "steps": [f(float(c.step[-1]) for c in group.curves) for f in (min, max)],
            "bands": {name: _remembered(group, name, memory) for name in metrics},
            "curves": [_curve(curve, metrics, points) for curve in group.curves],
            "final": {name: _final(group.final(name)) for name in metrics if name.startswith("eval/")},
            "by_goal": _by_goal(group),
        }
        for group in groups
    ]


def _by_goal(group: Group) -> dict[str, list[float | None]] | None:
    """Means over seeds for each group of goals at the last evaluation; None where seeds have no such groups alike."""
    tables = [curve.by_goal for curve in group.curves if curve.by_goal and not curve.diverged]
    if not tables or any(table.keys() != tables[0].keys() for table in tables):
        return None
    if len({len(column) for table in tables for column in table.values()}) != 1:
        return None
    means = {}
    for name in tables[0]:
        stacked = np.array(
            [[np.nan if v is None else v for v in table[name]] for table in tables], np.float64
        )
        counts = np.isfinite(stacked).sum(axis=0)
        sums = np.nansum(stacked, axis=0)
        means[name] = rounded(np.where(counts > 0, sums / np.maximum(counts, 1), np.nan))
    return means


def _remembered(group: Group, name: str, memory: dict[str, Any]) -> dict[str, Any]:
    key = f"{name} {group.fingerprint(name)}"
    if key not in memory:
        memory[key] = _bands(group, name)
    return memory[key]


def _bands(group: Group, name: str) -> dict[str, Any]:
    """IQM and interval against steps, and for evaluations against time too."""
    bands = {}
    for axis in AXES if name.startswith("eval/") else AXES[:1]:
        found = group.band(name, axis, BAND_POINTS, BAND_RESAMPLES)
        if found is not None:
            bands[axis] = {"x": rounded(found[0]), **band_values(found[1])}
    return bands


def band_values(band: Band) -> dict[str, list[float | None]]:
    return {"y": rounded(band.value), "low": rounded(band.low), "high": rounded(band.high)}


def _curve(curve: Curve, metrics: Sequence[str], points: int) -> dict[str, Any]:
    kept = np.unique(np.linspace(0, curve.step.size - 1, points).round().astype(int))
    values = {name: rounded(curve.values[name][kept]) for name in metrics if name in curve.values}
    return {
        "run": curve.run,
        "seed": curve.seed,
        "step": rounded(curve.step[kept]),
        "hours": rounded(curve.hours[kept]),
        "values": values,
    }


def _final(values: np.ndarray) -> dict[str, Any] | None:
    if not values.size:
        return None
    spread = {"mean": float(values.mean()), "worst": float(values.min()), "best": float(values.max())}
    return estimate_values(estimate(values)) | {name: number(v) for name, v in spread.items()}


def estimate_values(e: Estimate) -> dict[str, Any]:
    """Value and interval; one value alone has none."""
    values: dict[str, Any] = {"value": number(e.value), "count": e.count}
    if e.count > 1:
        values |= {"low": number(e.low), "high": number(e.high)}
    return values


def number(value: float) -> float | None:
    """A number rounded to five digits; None if it is not finite."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def rounded(values: np.ndarray) -> list[float | None]:
    return [number(float(v)) for v in values]


# Comparison.


def _comparison(groups: Sequence[Group], methods: Sequence[str]) -> dict[str, Any] | None:
    found = comparison.compare(groups)
    if found is None:
        return None
    place = {method: i for i, method in enumerate(methods)}
    return {
        "score": found["score"],
        "tasks": found["tasks"],
        "own_tasks": [{"method": place[m], "tasks": tasks} for m, tasks in found["own_tasks"].items()],
        "aggregates": [
            {"method": place[m]} | {name: estimate_values(e) for name, e in estimates.items()}
            for m, estimates in found["aggregates"].items()
        ],
        "thresholds": rounded(comparison.THRESHOLDS),
        "profiles": [{"method": place[m], **band_values(band)} for m, band in found["profiles"].items()],
        "improvement": [
            {"a": place[a], "b": place[b], "tasks": e.count, **_interval(e)}
            for a, b, e in found["improvement"]
            if e is not None
        ],
        "left_out": len(found["left_out"]),
    }


def _interval(e: Estimate) -> dict[str, Any]:
    return {"value": number(e.value), "low": number(e.low), "high": number(e.high)}


# Settings and machines.


def _settings(records: Sequence[RunRecord], by: By) -> dict[str, Any]:
    """Settings that differ between runs, run by run, and those that all have in common."""
    configs = [record.config for record in records]
    names = short_names([record.path for record in records])
    varying = differing(configs)
    shared = [(n, show(v)) for n, v in (configs[0] if configs else {}).items() if n not in varying]
    return {
        "differ": varying,
        "rows": [
            {
                "run": name,
                "method": method,
                "task": task,
                "values": [show(record.config[n]) if n in record.config else None for n in varying],
            }
            for record, name, method, task in zip(
                records, names, method_labels(records, names, by), task_labels(records), strict=True
            )
        ],
        "shared": shared,
    }


def _machines(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Speed and hardware of each run."""
    names = short_names([record.path for record in records])
    return [_machine(record, name) for record, name in zip(records, names, strict=True)]


def _machine(record: RunRecord, name: str) -> dict[str, Any]:
    facts = record.sessions[-1] if record.sessions else {}
    versions = facts.get("versions", {})
    code = facts.get("git", {}).get("homing", {})
    rates = [row[n] for row in record.rows if (n := "speed/env_steps_per_second") in row]
    seconds = [row["time/elapsed"] for row in record.rows if "time/elapsed" in row]
    commit = code.get("commit", "")[:10] + (" and changes" if code.get("changed") else "")
    return {
        "run": name,
        "status": record.status,
        "device": facts.get("device"),
        "devices": facts.get("devices"),
        "cores": facts.get("cpu_cores"),
        "seeds": len({row["seed"] for row in record.rows}),
        "rate": number(float(np.median(rates))) if rates else None,
        "hours": number(max(seconds) / 3600) if seconds else None,
        "started": (record.sessions[0].get("time") or "")[:16].replace("T", " ") if record.sessions else None,
        "sessions": len(record.sessions),
        "homing": versions.get("homing"),
        "jax": versions.get("jax"),
        "commit": commit or None,
    }
