"""Comparison of methods over the tasks that they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from homing.report.groups import Group
from homing.report.names import SCORES
from homing.runs import stats

THRESHOLDS = np.linspace(0.0, 1.0, 101)
MOST = 12  # methods compared with each other: more would make an unreadable table


def score_of(groups: Sequence[Group]) -> str | None:
    """The metric in [0, 1] that methods are compared by."""
    return next((name for name in SCORES if any(g.final(name).size for g in groups)), None)


def scores(groups: Sequence[Group], name: str) -> dict[str, dict[str, np.ndarray]]:
    """Final values [S] by method and task."""
    values_by_method: dict[str, dict[str, np.ndarray]] = {}
    for group in groups:
        values = group.final(name)
        if values.size:
            values_by_method.setdefault(group.method, {})[group.task] = values
    return values_by_method


def ranked(groups: Sequence[Group]) -> list[str]:
    """Methods by their IQM over all their tasks, best first; those without a score last."""
    name = score_of(groups)
    known = scores(groups, name) if name else {}
    methods = dict.fromkeys(group.method for group in groups)
    quality = {m: stats.iqm(np.concatenate(list(tasks.values()))) for m, tasks in known.items()}
    return sorted(methods, key=lambda m: -quality.get(m, -np.inf))


def compare(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Aggregates, profiles and probabilities of improvement; None where nothing has a score."""
    name = score_of(groups)
    if name is None:
        return None
    known = scores(groups, name)
    methods = [m for m in ranked(groups) if m in known]
    tasks = shared_tasks([known[m] for m in methods])
    own = {m: known[m] if not tasks else {t: known[m][t] for t in tasks} for m in methods}
    shown = methods[:MOST]
    return {
        "score": name,
        "tasks": tasks,
        "own_tasks": {m: sorted(known[m]) for m in methods},
        "aggregates": {m: aggregates(own[m]) for m in methods},
        "profiles": {m: stats.performance_profile(own[m], THRESHOLDS) for m in methods},
        "improvement": [
            (a, b, stats.probability_of_improvement(known[a], known[b]))
            for i, a in enumerate(shown)
            for b in shown[i + 1 :]
        ],
        "left_out": methods[MOST:],
    }


def shared_tasks(known: Sequence[dict[str, np.ndarray]]) -> list[str]:
    """Tasks that every method has."""
    return [task for task in known[0] if all(task in tasks for tasks in known)] if known else []


def aggregates(tasks: dict[str, np.ndarray]) -> dict[str, stats.Estimate]:
    return {name: stats.estimate(tasks, name) for name in stats.STATISTICS}
