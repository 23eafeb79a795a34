"""The run loop: train, evaluate, write metrics, save checkpoints."""

from __future__ import annotations

import dataclasses
import shlex
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from homing.compile.programs import Compiled, process_seconds
from homing.config.run import identity
from homing.errors import HomingError
from homing.runs.checkpoints import Found
from homing.runs.folder import Row, WriteError
from homing.runs.progress import Progress
from homing.runs.record import FolderRecord
from homing.runs.stats import aggregate
from homing.training.build import Parts
from homing.training.loop import TrainState
from homing.training.members import Member
from homing.training.population import variants
from homing.training.resuming import checkpoints_to_resume, records_of
from homing.training.saving import Saver
from homing.training.seeds import programs, seed_keys
from homing.training.sharding import Placement, agreed, is_first
from homing.training.signals import Stopped, StopRequest
from homing.training.tally import Tally, columns, pieces
from homing.training.warm_start import warm_started
from homing.types import bytes_of


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended: `status` is finished or stopped."""

    path: Path
    status: str
    signum: int | None = None


class Run:
    """The seeds of one run, or of the runs of a population, in one program; the caller holds their folders.

    `home` is the folder of the checkpoints: a run's own, or one that the runs of a population share.
    """

    def __init__(
        self,
        members: Sequence[Member],
        parts: Parts,
        show: Progress,
        home: Path,
        placement: Placement | None = None,
        go_on: str | None = None,
        accept_changes: bool = False,
    ):
        self.members, self.plan, self.show, self.home = members, parts.plan, show, home
        self.save_config = members[0].config.save
        self.go_on = go_on or f"homing resume {shlex.quote(str(home))}"
        self.accept_changes = accept_changes
        # The runs of a population are what their study says: they cannot change one by one.
        self.accept_command = None if go_on else f"{self.go_on} --accept-changes"
        self.placement = placement
        self.made = programs(
            parts.loop,
            parts.eval_env,
            variants([member.config for member in members], parts),
            placement,
        )
        self.saver = Saver(home, self.save_config, members, show, placement)
        self.checkpoints = self.saver.checkpoints
        self.records: list[FolderRecord | None] = [None] * len(members)
        self.iteration, self.elapsed = 0, 0.0
        self.tally = Tally([True] * self.plan.seeds)
        self.broken: set[int] = set()  # places along the seed axis

    def go(self) -> Outcome:
        """Until the end, or until asked to stop."""
        with StopRequest() as request:
            try:
                return self._go(request)
            except (Stopped, KeyboardInterrupt) as stopped:
                signum = getattr(stopped, "signum", signal.SIGINT)
                return self._stopped(signum, "without saving, nothing before its last checkpoint is lost")
            except WriteError as error:
                self.saver.settle(wait=True)
                raise HomingError(f"{error}; make room and continue with: {self.go_on}") from error
            finally:
                self.show.close()
                for member in self.members:
                    member.close()
                self.checkpoints.close()

    def _go(self, request: StopRequest) -> Outcome:
        self.show.doing("compiling")
        keys = seed_keys([seed for member in self.members for seed in member.config.seeds])
        if self.placement is not None:
            keys = self.placement.put(keys)
        found = checkpoints_to_resume(
            self.checkpoints, self.members, self.show.warn, self.accept_changes, self.accept_command
        )
        compiled = Compiled(self.made, keys, fresh=not found, identity=self._identity())
        self.saver.check_disk(bytes_of(compiled.shapes))
        train = self._restored(compiled, found) if found else self._first(compiled)
        self._begin()
        request.listen()
        if self.iteration == 0 and self.save_config.eval_at_start:
            self._evaluate(compiled, train)
        saved = time.monotonic()
        for start, stop, evaluate in pieces(self.plan, self.iteration):
            train = self._advance(compiled, train, start, stop)
            if evaluate:
                self._evaluate(compiled, train)
                self.saver.settle()
            if signum := agreed(request.signum or 0):
                self._save(train)
                self.checkpoints.wait()
                step = self.plan.steps_at(self.iteration)
                return self._stopped(signum, f"and saved at step {step:,}")
            if agreed(self._due(evaluate, time.monotonic() - saved)):
                self._save_if_possible(train)
                saved = time.monotonic()
        return self._finished(train)

    def _identity(self) -> dict[str, Any] | None:
        """What the programs follow from; a population's and those over several devices are always traced."""
        if len(self.members) > 1 or self.placement is not None:
            return None
        return identity(self.members[0].config)

    # Beginning.

    def _begin(self) -> None:
        """Take up the folders; only the first of several processes writes to them."""
        if not is_first():
            return
        rows: list[Row] = []
        for member, record in zip(self.members, self.records, strict=True):
            begun = member.begin(self.iteration, self.plan, record, self.show.warn)
            rows += self._shown(member, begun)
            self.broken |= {member.seed_index(seed) for seed in member.broken}
        warnings = [member.note_session(self.iteration) for member in self.members]
        for warning in dict.fromkeys(text for texts in warnings for text in texts):
            self.show.warn(warning)
        seeds = self.members[0].config.seeds if len(self.members) == 1 else range(self.plan.seeds)
        self.show.begin(self.plan, seeds, self.iteration, rows)

    def _shown(self, member: Member, rows: Sequence[Row]) -> list[Row]:
        """Rows for the display, where the seeds of a population are counted through."""
        if len(self.members) == 1:
            return list(rows)
        known = (row for row in rows if row["seed"] in member.config.seeds)
        return [{**row, "seed": member.seed_index(row["seed"])} for row in known]

    def _first(self, compiled: Compiled) -> TrainState:
        """The state before the first step, of learners with random parameters or with given ones."""
        train, first = compiled.init(), self.members[0]
        if first.config.init_from is None:
            return train
        return warm_started(train, first.folder.path)

    def _restored(self, compiled: Compiled, found: Sequence[Found]) -> TrainState:
        self.show.doing("reading the last checkpoint")
        shardings = self.placement.state(compiled.shapes) if self.placement is not None else None
        saved = self.checkpoints.restore(found, compiled.shapes, self.show.warn, shardings)
        if is_first():
            self.checkpoints.clear_the_way(saved, self.show.warn)
        self.iteration, self.elapsed = saved.iteration, saved.notes["elapsed"]
        self.tally = Tally(**saved.notes["tally"])
        used = next(entry for entry in found if entry.path == saved.path)
        self.records = list(records_of(used, self.members))
        return saved.train

    # Going on.

    def _advance(self, compiled: Compiled, train: TrainState, start: int, stop: int) -> TrainState:
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
        if is_first():
            self.show.advanced(stop)
        return train

    def _report_broken(self) -> None:
        step = self.plan.steps_at(self.iteration)
        now = {place for place, ok in enumerate(self.tally.finite) if not ok}
        for member in self.members:
            for seed in member.config.seeds:
                if member.seed_index(seed) in now - self.broken:
                    self._report_seed(member, seed, step)
        self.broken |= now
        if len(self.broken) == self.plan.seeds:
            raise HomingError(
                f"every seed has diverged by step {step:,}; lower the learning rates or updates_per_step, "
                f"and look at {self.members[0].folder.path / 'metrics.jsonl'}"
            )

    def _report_seed(self, member: Member, seed: int, step: int) -> None:
        member.broken.add(seed)
        where = "" if len(self.members) == 1 else f" of {member.folder.path.name}"
        self.show.warn(
            f"seed {seed}{where} has diverged by step {step:,}: it holds a NaN or an infinity; "
            "it no longer counts in averages, the other seeds continue"
        )

    def _evaluate(self, compiled: Compiled, train: TrainState) -> None:
        if is_first():
            self.show.doing("evaluating")
        compiled.wait("evaluate")
        begin = time.perf_counter()
        scores = jax.device_get(compiled.evaluate(train, self.iteration))
        seconds = time.perf_counter() - begin
        self.elapsed += seconds
        measured = {f"train/{name}": v for name, v in self.tally.means().items()}
        measured |= {name if "/" in name else f"eval/{name}": v for name, v in sorted(scores.items())}
        times = {"time/elapsed": self.elapsed, "time/evaluation": seconds}
        if self.tally.steps:  # none at the start
            times[self._speed_name] = self.plan.seeds * self.tally.steps / self.tally.seconds
        self.tally = Tally([True] * self.plan.seeds)
        learner = self.saver.gathered(train)
        if is_first():
            self._write(measured, times, learner)

    @property
    def _speed_name(self) -> str:
        return f"speed/{'env_steps' if self.plan.collects else 'updates'}_per_second"

    def _write(self, measured: dict[str, Any], times: dict[str, float], learner: Any) -> None:
        step = self.plan.steps_at(self.iteration)
        counts = {
            "iteration": self.iteration,
            "step": step,
            "updates": self.plan.updates_at(self.iteration),
        }
        shown: list[Row] = []
        for member in self.members:
            rows = member.rows(counts, measured, times)
            if member.write(rows, step):
                member.save_policy("best", learner, self.iteration)
            shown += self._shown(member, rows)
        self.show.evaluated(self.iteration, shown, aggregate(columns(shown)))

    # Saving.

    def _due(self, evaluated: bool, seconds: float) -> bool:
        return self.iteration < self.plan.iterations and self.saver.is_due(
            evaluated, seconds
        )  # the end has its own

    def _save(self, train: TrainState) -> None:
        notes = {
            "elapsed": self.elapsed,
            "tally": dataclasses.asdict(self.tally),
            "folders": [dataclasses.asdict(member.record()) for member in self.members],
        }
        self.saver.save(self.iteration, train, notes)

    def _save_if_possible(self, train: TrainState) -> None:
        try:
            self._save(train)
        except WriteError as error:
            self.show.warn(f"{error}; the run continues and will try again")

    # Ending.

    def _finished(self, train: TrainState) -> Outcome:
        self.saver.save_policies(self.iteration, train)
        if self.save_config.final_checkpoint and self.iteration not in self.checkpoints.iterations():
            self._save(train)
        self.checkpoints.wait()
        for member in self.members if is_first() else ():
            member.finish(self.iteration, self.plan.steps_at(self.iteration), self.elapsed)
        return Outcome(self.home, "finished")

    def _stopped(self, signum: int, how: str) -> Outcome:
        self.show.close()
        self.show.warn(f"stopped {how}; continue with: {self.go_on}")
        return Outcome(self.home, "stopped", signum)
