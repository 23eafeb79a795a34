"""The run loop: advance, evaluate, write down, save; from the start or from where it stopped."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from homing.checkpoints import Checkpoints, free_space, save_policy, size_of
from homing.compilation import Compiled, process_seconds
from homing.config import human_bytes
from homing.errors import HomingError
from homing.progress import Progress
from homing.report.stats import aggregate
from homing.runs import Row, RunFolder, WriteError, session_facts
from homing.settings import Parts, RunConfig, build
from homing.trackers import Tracker, trackers
from homing.training.offpolicy import OffPolicy
from homing.training.seeds import programs, seed_keys
from homing.training.signals import Stopped, StopRequest
from homing.training.tally import Tally, columns, pieces

SCORE = "eval/success_any"  # decides which policy is the best


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended: `status` is finished or stopped."""

    path: Path
    status: str
    signum: int | None = None


class Run:
    """One run in one folder, which this process holds."""

    def __init__(self, folder: RunFolder, config: RunConfig, parts: Parts, show: Progress):
        self.folder, self.config, self.plan, self.show = folder, config, parts.plan, show
        self.agent = parts.agent
        self.made = programs(OffPolicy(parts.env, parts.agent, parts.plan), parts.eval_env)
        self.checkpoints = Checkpoints(folder.path / "checkpoints", config.save.keep_checkpoints)
        self.trackers: list[Tracker] = []
        self.iteration, self.elapsed = 0, 0.0
        self.tally = Tally([True] * len(config.seeds))
        self.broken: set[int] = set()
        self.best = -math.inf

    def go(self) -> Outcome:
        """Until the end, or until asked to stop."""
        with StopRequest() as request:
            try:
                return self._go(request)
            except Stopped as stopped:
                return self._stopped(stopped.signum, "at its last checkpoint")
            except WriteError as error:
                self._settle(wait=True)
                raise HomingError(
                    f"{error}; make room and go on with: homing resume {self.folder.path}"
                ) from error
            finally:
                self.show.close()
                for tracker in self.trackers:
                    tracker.close()
                self.checkpoints.close()

    def _go(self, request: StopRequest) -> Outcome:
        self.show.doing("compiling")
        keys = seed_keys(self.config.seeds)
        resumed = bool(self.checkpoints.iterations())
        compiled = Compiled(self.made, keys, fresh=not resumed)
        self._check_disk(size_of(compiled.shapes))
        train = self._restored(compiled) if resumed else compiled.init()
        rows = self._recall()
        self._note_session()
        self.trackers = trackers(self.folder.path, self.config, self.plan.steps_at(self.iteration))
        self.show.begin(self.plan, self.config.seeds, self.iteration, rows)
        request.polite = True
        saved = time.monotonic()
        for start, stop, evaluate in pieces(self.plan, self.iteration):
            train = self._advance(compiled, train, start, stop)
            if evaluate:
                self._evaluate(compiled, train)
                self._settle()
            if request.signum is not None:
                self._save(train)
                self.checkpoints.wait()
                return self._stopped(request.signum, "and saved")
            if self._due(evaluate, time.monotonic() - saved):
                self._save_if_possible(train)
                saved = time.monotonic()
        return self._finished(train)

    # Beginning.

    def _check_disk(self, size: int) -> None:
        """Say at once if the checkpoints will not fit: the old ones stay until the new one is whole."""
        missing = self.config.save.keep_checkpoints + 1 - len(self.checkpoints.iterations())
        free = free_space(self.checkpoints.path)
        if missing * size > free:
            self.show.warn(
                f"{missing} checkpoints of {human_bytes(size)} will not fit on the disk, where "
                f"{human_bytes(free)} are free; lower --keep-checkpoints or --replay-rows, or make room"
            )

    def _note_session(self) -> None:
        before, now = self.folder.sessions(), session_facts() | {"iteration": self.iteration}
        if before and (before[-1]["versions"], before[-1]["device"]) != (now["versions"], now["device"]):
            self.show.warn(
                "versions or the device are not those that the run began with: "
                "it goes on, but not with the same bits"
            )
        self.folder.add_session(now)

    def _restored(self, compiled: Compiled) -> Any:
        self.show.doing("reading the last checkpoint")
        saved = self.checkpoints.restore(compiled.shapes, self.show.warn)
        assert saved is not None
        self.checkpoints.discard_after(saved.iteration)
        self.iteration, self.elapsed = saved.iteration, saved.notes["elapsed"]
        self.tally = Tally(**saved.notes["tally"])
        return saved.train

    def _recall(self) -> list[Row]:
        """What the metrics file knows up to the present iteration; later rows will be written again."""
        rows = self.folder.cut_back(self.iteration)
        self.broken = {row["seed"] for row in rows if not row["finite"]}
        for iteration in sorted({row["iteration"] for row in rows}):
            scores = [row[SCORE] for row in rows if row["iteration"] == iteration and SCORE in row]
            self.best = max(self.best, float(np.mean(scores)) if scores else -math.inf)
        return rows

    # Going on.

    def _advance(self, compiled: Compiled, train: Any, start: int, stop: int) -> Any:
        compiled.wait("epoch")
        begin = time.perf_counter()
        train, metrics = compiled.epoch(train, start, stop)
        metrics = jax.device_get(metrics)
        if self.iteration == 0:
            self.show.say(f"first steps done {process_seconds():.1f} s after the start of the process")
        seconds = time.perf_counter() - begin
        steps = self.plan.steps_at(stop) - self.plan.steps_at(start)
        learned = max(stop - max(start, self.plan.prefill_iterations), 0)
        self.tally.add(metrics, steps, learned, seconds)
        self.iteration, self.elapsed = stop, self.elapsed + seconds
        self._report_broken()
        self.show.advanced(stop)
        return train

    def _report_broken(self) -> None:
        step = self.plan.steps_at(self.iteration)
        now = {seed for seed, ok in zip(self.config.seeds, self.tally.finite, strict=True) if not ok}
        for seed in sorted(now - self.broken):
            self.show.warn(
                f"seed {seed} has diverged by step {step:,}: it holds a NaN or an infinity; "
                "it no longer counts in averages, the other seeds go on"
            )
        self.broken |= now
        if len(self.broken) == len(self.config.seeds):
            raise HomingError(
                f"every seed has diverged by step {step:,}; lower the learning rates or updates_per_step, "
                f"and look at {self.folder.path / 'metrics.jsonl'}"
            )

    def _evaluate(self, compiled: Compiled, train: Any) -> None:
        self.show.doing("evaluating")
        compiled.wait("evaluate")
        begin = time.perf_counter()
        scores = jax.device_get(compiled.evaluate(train, self.iteration))
        seconds = time.perf_counter() - begin
        self.elapsed += seconds
        rows = self._rows(scores, seconds)
        self.folder.append(rows)
        self.tally = Tally([True] * len(self.config.seeds))
        summary = aggregate(columns(rows))
        for tracker in self.trackers:
            tracker.write(self.plan.steps_at(self.iteration), rows, summary)
        self._keep_best(train, rows)
        self.show.evaluated(self.iteration, rows, summary)

    def _rows(self, scores: dict[str, np.ndarray], seconds: float) -> list[Row]:
        """One row for each seed; what is not finite is absent."""
        measured = {f"train/{name}": v for name, v in self.tally.means().items()}
        measured |= {f"eval/{name}": v for name, v in sorted(scores.items())}
        seeds = len(self.config.seeds)
        times = {
            "speed/env_steps_per_second": seeds * self.tally.steps / self.tally.seconds,
            "time/elapsed": self.elapsed,
            "time/evaluation": seconds,
        }
        rows = []
        for i, seed in enumerate(self.config.seeds):
            row: Row = {
                "seed": seed,
                "iteration": self.iteration,
                "step": self.plan.steps_at(self.iteration),
                "updates": self.plan.updates_at(self.iteration),
                "finite": seed not in self.broken,
            }
            if seed not in self.broken:
                row |= {name: float(v[i]) for name, v in measured.items() if math.isfinite(v[i])}
            rows.append(row | times)
        return rows

    # Saving.

    def _keep_best(self, train: Any, rows: Sequence[Row]) -> None:
        scores = [row[SCORE] for row in rows if SCORE in row]
        if scores and float(np.mean(scores)) >= self.best:
            self.best = float(np.mean(scores))
            save_policy(self.folder.path / "policies" / "best.npz", train.learner, self.iteration)

    def _due(self, evaluated: bool, seconds: float) -> bool:
        if self.iteration == self.plan.iterations:
            return False  # the end has its own
        minutes = self.config.save.checkpoint_minutes
        return seconds >= 60 * minutes if minutes else evaluated

    def _save(self, train: Any) -> None:
        self.show.doing("saving")
        notes = {"elapsed": self.elapsed, "tally": dataclasses.asdict(self.tally)}
        self.checkpoints.save(self.iteration, train, notes)
        save_policy(self.folder.path / "policies" / "last.npz", train.learner, self.iteration)

    def _save_if_possible(self, train: Any) -> None:
        try:
            self._save(train)
        except WriteError as error:
            self.show.warn(f"{error}; the run goes on and will try again")

    def _settle(self, wait: bool = False) -> None:
        """Learn how the last checkpoint went, if it is done."""
        try:
            self.checkpoints.wait() if wait else self.checkpoints.settle()
        except WriteError as error:
            self.show.warn(str(error))

    # Ending.

    def _finished(self, train: Any) -> Outcome:
        save_policy(self.folder.path / "policies" / "last.npz", train.learner, self.iteration)
        if self.config.save.final_checkpoint and self.iteration not in self.checkpoints.iterations():
            self._save(train)
        self.checkpoints.wait()
        rows = self.folder.rows()
        last = [row for row in rows if row["iteration"] == self.iteration]
        self.folder.write_summary(
            {
                "status": "finished",
                "step": self.plan.steps_at(self.iteration),
                "seconds": self.elapsed,
                "diverged": sorted(self.broken),
                "last": aggregate(columns(last)),
            }
        )
        return Outcome(self.folder.path, "finished")

    def _stopped(self, signum: int, how: str) -> Outcome:
        step = self.plan.steps_at(self.iteration)
        self.show.close()
        self.show.warn(f"stopped {how}, step {step:,}; go on with: homing resume {self.folder.path}")
        return Outcome(self.folder.path, "stopped", signum)


def start(config: RunConfig, out: str | Path, show: Progress, parts: Parts | None = None) -> Outcome:
    """A new run in a new folder."""
    parts = parts or build(config)
    folder = RunFolder(out)
    folder.check_new()
    with folder.held():
        folder.check_new()
        folder.write_config(config)
        return Run(folder, config, parts, show).go()


def resume(path: str | Path, show: Progress) -> Outcome:
    """Go on with a run that was stopped or killed; one that is finished is left alone."""
    folder = RunFolder.existing(path)
    with folder.held():
        if folder.summary() is not None:
            show.say(f"{folder.path} is finished; nothing is left to do")
            return Outcome(folder.path, "finished")
        config = folder.config()
        return Run(folder, config, build(config), show).go()
