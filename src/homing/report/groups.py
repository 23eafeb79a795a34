"""Seeds grouped by method (an agent with its settings) and task (an environment)."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from homing.report.reading import Problem, RunRecord, short_names
from homing.runs import stats

By = Literal["settings", "agent", "run"]

# Settings that say where a policy is trained and tested; all others say how it learns.
TASK = ("env", "eval_env", "physics", "episode_length", "env_options")
# Settings that change no seed's learning, only how long or how often one looks.
NEUTRAL = ("seeds", "preset", "save", "imports", "train.total_steps", "train.evaluations", "train.eval_envs")
NEUTRAL += ("train.prefetch_bytes",)
SHOWN = 3  # settings in a label
ABSENT = "…"  # where a run has no such setting


@dataclasses.dataclass(frozen=True)
class Curve:
    """One seed of one run at its P evaluations; NaN where something was not measured."""

    run: str
    seed: int
    diverged: bool
    step: np.ndarray
    hours: np.ndarray
    values: Mapping[str, np.ndarray]

    def final(self, name: str) -> float:
        """The last measured value; NaN of a seed that diverged or never measured it."""
        values = self.values.get(name)
        if values is None or self.diverged:
            return float("nan")
        finite = values[np.isfinite(values)]
        return float(finite[-1]) if finite.size else float("nan")


@dataclasses.dataclass(frozen=True)
class Group:
    """All seeds of one method on one task."""

    method: str
    task: str
    curves: Sequence[Curve]

    def metrics(self) -> list[str]:
        return sorted({name for curve in self.curves for name in curve.values})

    def final(self, name: str) -> np.ndarray:
        """[S] last values of the seeds that have one."""
        values = np.array([curve.final(name) for curve in self.curves])
        return values[np.isfinite(values)]

    def fingerprint(self, name: str) -> str:
        """A digest of all curves of a metric."""
        digest = hashlib.sha256()
        for curve in self.curves:
            if name in curve.values:
                for array in (curve.step, curve.hours, curve.values[name]):
                    digest.update(array.tobytes() + b"|")
        return digest.hexdigest()

    def band(self, name: str, axis: str, points: int, resamples: int) -> tuple[np.ndarray, stats.Band] | None:
        """Positions on the axis (`step` or `hours`) and the IQM where at least half of the seeds have values."""
        lines = [_measured(getattr(c, axis), c.values[name]) for c in self.curves if name in c.values]
        lines = [line for line in lines if line[0].size]
        if not lines:
            return None
        at = common_grid([x for x, _ in lines], points)
        y = np.stack([np.interp(at, x, v, left=np.nan, right=np.nan) for x, v in lines])
        enough = 2 * np.isfinite(y).sum(axis=0) >= len(lines)
        return at[enough], stats.band(y[:, enough], resamples=resamples)


def _measured(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    kept = np.isfinite(x) & np.isfinite(y)
    return x[kept], y[kept]


def common_grid(places: Sequence[np.ndarray], points: int) -> np.ndarray:
    """At most `points` positions on the axis at which all curves are interpolated, both ends included."""
    union = np.unique(np.concatenate(places))
    if union.size <= points:
        return union
    if all(np.array_equal(x, places[0]) for x in places):
        return union[np.linspace(0, union.size - 1, points).round().astype(int)]
    return np.linspace(union[0], union[-1], points)


def curves_of(record: RunRecord, name: str) -> Iterator[Curve]:
    """The seeds of a run."""
    for seed in sorted({row["seed"] for row in record.rows}):
        rows = sorted((row for row in record.rows if row["seed"] == seed), key=lambda row: row["step"])
        names = {n for row in rows for n, v in row.items() if "/" in n and isinstance(v, int | float)}
        columns = {n: np.array([row.get(n, np.nan) for row in rows], np.float64) for n in sorted(names)}
        elapsed = columns.get("time/elapsed", np.full(len(rows), np.nan))
        yield Curve(
            run=name,
            seed=seed,
            diverged=not all(row.get("finite", True) for row in rows),
            step=np.array([row["step"] for row in rows], np.float64),
            hours=elapsed / 3600,
            values=columns,
        )


def make_groups(records: Sequence[RunRecord], by: By = "settings") -> tuple[list[Group], list[Problem]]:
    """Groups sorted by task and method, and remarks on runs with the same seeds."""
    names = short_names([record.path for record in records])
    methods, tasks = method_labels(records, names, by), task_labels(records)
    members: dict[tuple[str, str], dict[int, Curve]] = {}
    problems = []
    for record, name, method, task in zip(records, names, methods, tasks, strict=True):
        seeds = members.setdefault((task, method), {})
        for curve in curves_of(record, name):
            other = seeds.get(curve.seed)
            if other is not None:
                longer = max(curve, other, key=lambda c: c.step[-1])
                what = f"seed {curve.seed} of {method} on {task} is in {other.run} too"
                problems.append(Problem(name, f"{what}; the one in {longer.run} counts, which went as far"))
                curve = longer
            seeds[curve.seed] = curve
    order = sorted(members, key=lambda key: (key[0], key[1]))
    return [Group(method, task, list(members[task, method].values())) for task, method in order], problems


def settings_of(record: RunRecord) -> dict[str, Any]:
    """How a run learns: its settings without task, length and bookkeeping."""
    return {n: v for n, v in record.config.items() if not _belongs(n, TASK + NEUTRAL) and n != "agent"}


def method_labels(records: Sequence[RunRecord], names: Sequence[str], by: By = "settings") -> list[str]:
    """What each run's method is called: its agent, and the settings in which runs of that agent differ."""
    if by == "run":
        return list(names)
    if by == "agent":
        return [record.agent for record in records]
    return _labels([record.agent for record in records], [settings_of(record) for record in records])


def task_labels(records: Sequence[RunRecord]) -> list[str]:
    """What each run's task is called: its environment, that of its evaluation, and options that differ."""
    heads, details = [], []
    for record in records:
        other = record.config.get("eval_env")
        heads.append(record.env + (f" → {other}" if other and other != record.env else ""))
        rest = {n: v for n, v in record.config.items() if _belongs(n, TASK) and n not in ("env", "eval_env")}
        details.append(rest)
    return _labels(heads, details)


def _belongs(name: str, parts: Sequence[str]) -> bool:
    return any(name == part or name.startswith(part + ".") for part in parts)


def _labels(heads: Sequence[str], details: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each head, followed by the details in which entries with the same head differ."""
    labels = [""] * len(heads)
    for head in dict.fromkeys(heads):
        places = [i for i, h in enumerate(heads) if h == head]
        for i, words in zip(places, _distinctions([details[i] for i in places]), strict=True):
            labels[i] = " ".join([head, *words])
    return labels


def _distinctions(equals: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """Settings that distinguish each entry from the others if they are few, a number otherwise."""
    varying = differing(equals)
    keys = [json.dumps([detail.get(name, ABSENT) for name in varying]) for detail in equals]
    order = list(dict.fromkeys(keys))
    for detail, key in zip(equals, keys, strict=True):
        if len(varying) <= SHOWN:
            yield [f"{_short(name, varying)}={show(detail[name])}" for name in varying if name in detail]
        else:
            yield [f"#{order.index(key) + 1}"]


def differing(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of settings that are not the same in all; one that is absent somewhere differs."""
    names = dict.fromkeys(name for config in configs for name in config)
    return [n for n in names if len({json.dumps(c.get(n, ABSENT)) for c in configs}) > 1]


def _short(name: str, among: Sequence[str]) -> str:
    """The last part of a dotted name, or all of it where that would be ambiguous."""
    last = Counter(n.rpartition(".")[2] for n in among)
    tail = name.rpartition(".")[2]
    return tail if last[tail] == 1 else name.removeprefix("settings.").removeprefix("train.")


def show(value: Any) -> str:
    """A setting's value for a reader."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value)
