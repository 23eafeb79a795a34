"""A study's folder: its file, a folder for each run, and the state of the programs that train them."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from homing.config.run import RunConfig
from homing.errors import ConfigError, HomingError
from homing.runs.folder import LOCK, TOGETHER, RunFolder, write_json, write_whole
from homing.runs.record import changed_settings
from homing.studies import claims, spec
from homing.studies.points import Choice, Point

STUDY, CHOICE, ASKED, LABELS, PROGRAM, STATE, LOG = (
    "study.toml",
    "study.json",
    "asked.json",
    "labels.json",
    "program.json",
    "state.json",
    "log.txt",
)


@dataclasses.dataclass(frozen=True)
class ProgramFolder:
    """A program on disk: its runs, state, log and checkpoints."""

    path: Path
    runs: tuple[str, ...]

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        return self.path / LOG

    def state(self) -> dict[str, Any]:
        """The recorded state."""
        return _read(self.path / STATE) if (self.path / STATE).exists() else {"status": "waiting"}

    def write_state(self, status: str, **facts: Any) -> None:
        """Record the state."""
        write_json(self.path / STATE, {"status": status, **facts})

    def in_use(self) -> bool:
        """Whether a process holds its lock; the lock of a dead process is released."""
        if not (self.path / LOCK).exists():
            return False
        lock = os.open(self.path / LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(lock)
        return False

    def forget_checkpoints(self) -> None:
        """Delete the checkpoints."""
        shutil.rmtree(self.path / "checkpoints", ignore_errors=True)


class StudyFolder:
    """A study on disk; reading needs no lock, and each program has its own."""

    def __init__(self, path: str | Path):
        self.path = Path(path).absolute()

    @classmethod
    def existing(cls, path: str | Path) -> StudyFolder:
        """The folder of an existing study; raises if there is none."""
        folder = cls(path)
        if not (folder.path / STUDY).is_file():
            what = "holds no study (no study.toml)" if folder.path.is_dir() else "does not exist"
            raise ConfigError(f"{path} {what}; `homing study run` creates a study's folder and prints it")
        return folder

    @property
    def go_on(self) -> str:
        """The command that continues the study."""
        return self.command("run")

    @property
    def work(self) -> str:
        """The command that starts a worker."""
        return self.command("work")

    def command(self, name: str) -> str:
        """A command of `homing study` on this folder, for messages."""
        return f"homing study {name} {shlex.quote(str(self.path))}"

    # The study and its scale.

    def begin(self, study: spec.Study, choice: Choice) -> None:
        """Create the folder, or check that it holds the same study."""
        wanted = {"name": study.name, **dataclasses.asdict(choice)}
        if (self.path / CHOICE).exists():
            there = _read(self.path / CHOICE)
            same_file = (self.path / STUDY).exists() and (self.path / STUDY).read_text() == study.text
            if same_file and there == json.loads(json.dumps(wanted)):
                return
            raise ConfigError(
                f"{self.path} holds another study, or this one with another scale, seeds or settings; "
                f"continue that one with `{self.go_on}`, or choose another --out"
            )
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ConfigError(f"{self.path} is not empty; choose a new folder with --out")
        self.path.mkdir(parents=True, exist_ok=True)
        write_whole(self.path / STUDY, study.text)
        write_json(self.path / CHOICE, wanted)

    def name(self) -> str | None:
        """The name of the study; None if the folder holds none, or one that cannot be read."""
        if not (self.path / STUDY).is_file():
            return None
        with contextlib.suppress(HomingError):
            stored = _read(self.path / CHOICE)
            return stored.get("name") if isinstance(stored, dict) else None
        return None

    def study(self) -> spec.Study:
        """The parsed study file."""
        return spec.parse((self.path / STUDY).read_text(), _read(self.path / CHOICE)["name"])

    def choice(self) -> Choice:
        """The scale, seeds and settings of the study."""
        stored = _read(self.path / CHOICE)
        return Choice(**{field.name: stored[field.name] for field in dataclasses.fields(Choice)})

    def asked(self) -> list[str]:
        """Names of the runs requested so far; a study may be run in parts."""
        return _read(self.path / ASKED) if (self.path / ASKED).exists() else []

    def ask(self, names: Sequence[str]) -> None:
        """Record runs as requested."""
        write_json(self.path / ASKED, list(dict.fromkeys([*self.asked(), *names])))

    # Runs.

    def run(self, name: str) -> RunFolder:
        """The folder of a run."""
        return RunFolder(self.path / "runs" / name)

    def runs(self) -> list[RunFolder]:
        """The folders of all runs."""
        folder = self.path / "runs"
        names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        return [self.run(name) for name in names if (folder / name / "config.json").is_file()]

    def labels(self, run: RunFolder) -> dict[str, Any]:
        """The grid labels of a run."""
        return _read(run.path / LABELS)

    def add_run(self, point: Point) -> None:
        """Create a run's folder; raises if it was started with other settings."""
        run = self.run(point.name)
        if run.sessions():
            if changed_settings(_read(run.path / "config.json"), point.config):
                raise HomingError(
                    f"{run.path} was started with other settings; remove it or choose another --out"
                )
            return
        run.path.mkdir(parents=True, exist_ok=True)
        write_json(run.path / LABELS, point.labels)
        write_json(run.path / TOGETHER, {"go_on": self.go_on})
        run.write_config(point.config)

    # Programs.

    def program(self, id: str) -> ProgramFolder:
        """The folder of a program."""
        path = self.path / "programs" / id
        if not (path / PROGRAM).is_file():
            raise ConfigError(f"{self.path} has no program {id}")
        return ProgramFolder(path, tuple(_read(path / PROGRAM)["runs"]))

    def programs(self) -> list[ProgramFolder]:
        """The folders of all programs."""
        folder = self.path / "programs"
        ids = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
        return [self.program(id) for id in ids if (folder / id / PROGRAM).is_file()]

    def add_program(self, id: str, names: Sequence[str]) -> ProgramFolder:
        """Create the folder of a program."""
        path = self.path / "programs" / id
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / PROGRAM, {"runs": list(names)})
        return ProgramFolder(path, tuple(names))

    def finished(self, program: ProgramFolder) -> bool:
        """Whether all runs of a program are finished."""
        return all(self.run(name).summary() is not None for name in program.runs)

    def status(self, program: ProgramFolder) -> str:
        """One of waiting, queued, running, interrupted, stopped, failed, finished."""
        if self.finished(program):
            return "finished"
        status = program.state()["status"]
        if program.in_use() or claims.is_claimed(program.path):
            return "running"
        return "interrupted" if status == "running" else status

    def config(self, name: str) -> RunConfig:
        """The config of a run."""
        return self.run(name).config()


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise HomingError(f"cannot read {path}: {error}") from error
