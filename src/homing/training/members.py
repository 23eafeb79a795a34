"""The runs whose seeds one program trains: a single run, or those of a population, each with its own folder."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from homing.config.plan import Schedule
from homing.config.run import RunConfig
from homing.errors import HomingError
from homing.runs.folder import METRICS, Row, RunFolder, session_facts
from homing.runs.loggers import Tracker, trackers
from homing.runs.policy_files import policy_path, save_policy
from homing.runs.record import FolderRecord, RowDigest, config_digest, plain_settings, row_differences
from homing.runs.stats import aggregate
from homing.training.tally import columns, evaluations_up_to

Warn = Callable[[str], None]
BY_GOAL = "by_goal/"  # prefix of metrics with one value for each group of goals
SCORE = "eval/success_any"  # decides which policy is the best


class Member:
    """One run of a program: its folder, its settings, and where its seeds lie along the seed axis."""

    def __init__(self, folder: RunFolder, config: RunConfig, first: int = 0):
        self.folder, self.config, self.first = folder, config, first
        self.broken: set[int] = set()
        self.best = -math.inf
        self.trackers: list[Tracker] = []
        self.written = RowDigest()
        self.notes: dict[str, Any] = {}  # for this session's entry in sessions.json

    @property
    def seed_slice(self) -> slice:
        """This run's slice of the seed axis."""
        return slice(self.first, self.first + len(self.config.seeds))

    def seed_index(self, seed: int) -> int:
        return self.first + self.config.seeds.index(seed)

    # Beginning.

    def begin(self, iteration: int, plan: Schedule, record: FolderRecord | None, warn: Warn) -> list[Row]:
        """Take up the metrics file: rows after the present iteration will be written again.

        record: the folder at the checkpoint that the run goes on from; None at its start
        """
        self._compare(iteration, plan, record, warn)
        # Without a checkpoint the evaluation at the start is made again too, with the same result.
        rows = self.folder.cut_back(iteration if record is not None else -1)
        self.folder.remove_summary()  # of a finished run that goes on with edited settings
        self.written = RowDigest(rows)
        if record is not None:
            self.broken = set(record.diverged)
            self.best = self._best(record, warn)
        self.trackers = trackers(self.folder.path, self.config, plan.steps_at(iteration))
        return rows

    def _compare(self, iteration: int, plan: Schedule, record: FolderRecord | None, warn: Warn) -> None:
        """Say which rows are missing or changed, and keep the file as it was found."""
        rows = self.folder.rows()
        if record is None:
            if last := max((row["iteration"] for row in rows), default=0):
                warn(
                    f"there is no checkpoint: {self.folder.path} starts again from step 0. "
                    f"Its metrics up to iteration {last} are kept in {self.folder.keep_metrics()}"
                )
            return
        there = [row for row in rows if row["iteration"] <= iteration]
        at_start = [0] if self.config.save.eval_at_start else []
        evaluations = at_start + evaluations_up_to(plan, iteration)
        difference = row_differences(there, record, evaluations, self.config.seeds)
        if difference is None:
            return
        kept = self.folder.keep_metrics()
        kept_text = f" The file as it was found is kept in {kept}." if kept else ""
        warn(
            f"{self.folder.path / METRICS} {difference}. Learning is not affected, and the run continues from "
            f"iteration {iteration}, but its curves before that are not what was measured.{kept_text}"
        )
        self.notes["metrics_before"] = iteration
        self.notes["missing_rows"] = max(record.rows - len(there), 0)
        self.notes["metrics"] = difference

    def _best(self, record: FolderRecord, warn: Warn) -> float:
        if record.best is None:
            return -math.inf
        path = policy_path(self.folder.path, "best")
        if not path.exists():
            warn(f"{path} is missing; the best policy from the next evaluation on replaces it")
            return -math.inf
        return record.best

    def check_checkpoints(self, accept_command: str | None) -> None:
        """Refuse to start again where an earlier session went on from a checkpoint that is gone."""
        reached = max((session.get("iteration", 0) for session in self.folder.sessions()), default=0)
        if reached:
            raise HomingError(
                f"{self.folder.path} has been resumed from a checkpoint of iteration {reached}, and no checkpoint "
                "is left; put them back from a copy"
                + (f", or start again from step 0: {accept_command}" if accept_command else "")
            )

    def note_session(self, iteration: int) -> list[str]:
        """Write down what it runs on; warnings about what differs from the last session."""
        before = self.folder.sessions()
        now = session_facts() | {"iteration": iteration, "config": config_digest(self.config)} | self.notes
        self.folder.add_session(now)
        if not before:
            return []
        warnings = []
        if any(before[-1].get(name) != now[name] for name in ("versions", "device")):
            warnings.append(
                "versions or the device are not those that the run began with: "
                "it continues, but not bit for bit the same"
            )
        if iteration == 0 and before[-1].get("config") != now["config"]:
            warnings.append(
                f"{self.folder.path / 'config.json'} was changed since the run was started; without a checkpoint "
                "it starts again, with the settings as they are now"
            )
        return warnings

    def record(self) -> FolderRecord:
        """The folder as it is now, for a checkpoint."""
        return FolderRecord(
            config=plain_settings(self.config),
            rows=self.written.count,
            rows_digest=self.written.hex,
            best=self.best if math.isfinite(self.best) else None,
            diverged=sorted(self.broken),
        )

    # Evaluations.

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

    def write(self, rows: Sequence[Row], step: int) -> bool:
        """Write an evaluation down; whether its policies are the best so far."""
        self.folder.append(rows)
        self.written.add(rows)
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
        rows = self.folder.rows()
        last = [row for row in rows if row["iteration"] == iteration]
        missing = sum(session.get("missing_rows", 0) for session in self.folder.sessions())
        self.folder.write_summary(
            {
                "status": "finished",
                "step": step,
                "seconds": seconds,
                "diverged": sorted(self.broken),
                "rows": len(rows),
                **({"missing_rows": missing} if missing else {}),
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
