"""What a program's seeds belong to: one run, or the runs of a population, each with its own folder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from homing.config.offpolicy import Plan
from homing.config.run import RunConfig
from homing.runs.folder import Row, RunFolder, session_facts
from homing.runs.loggers import Tracker, trackers
from homing.runs.policy_files import policy_path, save_policy
from homing.runs.stats import aggregate
from homing.training.tally import columns

BY_GOAL = "by_goal/"  # prefix of metrics with one value for each group of goals
SCORE = "eval/success_any"  # decides which policy is the best


class Member:
    """One run of a program: its folder, its settings, and where its seeds lie along the seed axis."""

    def __init__(self, folder: RunFolder, config: RunConfig, first: int = 0):
        self.folder, self.config, self.first = folder, config, first
        self.broken: set[int] = set()
        self.best = -math.inf
        self.trackers: list[Tracker] = []

    @property
    def seed_slice(self) -> slice:
        """Of its seeds."""
        return slice(self.first, self.first + len(self.config.seeds))

    def seed_index(self, seed: int) -> int:
        return self.first + self.config.seeds.index(seed)

    def begin(self, iteration: int, plan: Plan) -> list[Row]:
        """Take up the metrics file: rows after the present iteration will be written again."""
        rows = self.folder.cut_back(iteration)
        self.broken = {row["seed"] for row in rows if not row.get("finite", True)}
        for then in sorted({row["iteration"] for row in rows}):
            scores = [row[SCORE] for row in rows if row["iteration"] == then and SCORE in row]
            self.best = max(self.best, float(np.mean(scores)) if scores else -math.inf)
        self.trackers = trackers(self.folder.path, self.config, plan.steps_at(iteration))
        return rows

    def note_session(self, iteration: int) -> bool:
        """Write down what it runs on; whether that differs from last time."""
        before, now = self.folder.sessions(), session_facts() | {"iteration": iteration}
        self.folder.add_session(now)
        return bool(before) and any(before[-1].get(name) != now[name] for name in ("versions", "device"))

    def rows(
        self, counts: Mapping[str, int], measured: Mapping[str, Any], times: Mapping[str, float]
    ) -> list[Row]:
        """One row for each seed of measured values [S of the program]; what is not finite is absent."""
        rows = []
        for i, seed in enumerate(self.config.seeds, start=self.first):
            row: Row = {"seed": seed, **counts, "finite": seed not in self.broken}
            if seed not in self.broken:
                plain = {name: v for name, v in measured.items() if np.ndim(v[i]) == 0}
                row |= {name: float(v[i]) for name, v in plain.items() if math.isfinite(v[i])}
                if grouped := _grouped(measured, i):
                    row["by_goal"] = grouped
            rows.append({**row, **times})
        return rows

    def record(self, rows: Sequence[Row], step: int) -> bool:
        """Write an evaluation down; whether its policies are the best so far."""
        self.folder.append(rows)
        summary = aggregate(columns(rows))
        for tracker in self.trackers:
            tracker.write(step, rows, summary)
        scores = [row[SCORE] for row in rows if SCORE in row]
        if not scores or float(np.mean(scores)) < self.best:
            return False
        self.best = float(np.mean(scores))
        return True

    def save_policy(self, name: str, learner: Any, iteration: int) -> None:
        save_policy(policy_path(self.folder.path, name), learner, iteration, self.seed_slice)

    def finish(self, iteration: int, step: int, seconds: float) -> None:
        last = [row for row in self.folder.rows() if row["iteration"] == iteration]
        self.folder.write_summary(
            {
                "status": "finished",
                "step": step,
                "seconds": seconds,
                "diverged": sorted(self.broken),
                "last": aggregate(columns(last)),
            }
        )

    def close(self) -> None:
        for tracker in self.trackers:
            tracker.close()


def _grouped(measured: Mapping[str, Any], i: int) -> dict[str, list[float | None]]:
    """Metrics of one seed for each group of goals; None for a group without an episode."""
    return {
        name.removeprefix(BY_GOAL): [float(x) if math.isfinite(x) else None for x in v[i]]
        for name, v in measured.items()
        if name.startswith(BY_GOAL)
    }


def members_of(runs: Sequence[tuple[RunFolder, RunConfig]]) -> list[Member]:
    """Runs one after the other along the seed axis."""
    members, first = [], 0
    for folder, config in runs:
        members.append(Member(folder, config, first))
        first += len(config.seeds)
    return members
