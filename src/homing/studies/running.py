"""Running a study: what is left of it, on this machine or on a cluster, and how it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError
from homing.runs.folder import RunFolder
from homing.runs.progress import human_time, make_progress
from homing.studies import planner, spec
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.studies.points import Choice, Point, points, selected
from homing.studies.pool import Pool, local_machine

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Where:
    """What a study runs on."""

    executor: str = "local"
    workers: int | None = None
    cpu: bool = False
    population: int | None = None
    """At most so many seeds in one program."""
    memory: int | None = None
    """Bytes of a device, where this machine cannot tell."""
    cluster: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the executor, for instance `partition`."""
    wait: bool = True

    def __post_init__(self) -> None:
        from homing.errors import unknown

        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)


EXECUTORS = ("local", "slurm", "submitit-local")


def default_folder(name: str, choice: Choice) -> Path:
    """studies/paper-objectives, with the scale behind it where it is not the whole."""
    parts = [name.replace("/", "-")]
    if choice.scale != 1:
        parts.append(f"{choice.scale:g}")
    return Path("studies") / "-".join(parts)


def opened(name: str, choice: Choice | None, out: Path | None) -> StudyFolder:
    """The folder of a study that is to be run: named by itself, or by the study and what of it is wanted."""
    if Path(name).is_dir():
        if out is not None and out.absolute() != Path(name).absolute():
            raise ConfigError(f"{name} is a study's folder; it goes on where it is, without --out")
        folder = StudyFolder.existing(name)
        if choice is not None and choice != Choice() and choice != folder.choice():
            raise ConfigError(f"{name} has its own scale, seeds and settings; leave them out to go on")
        return folder
    study, choice = spec.load(name), choice or Choice()
    points(study, choice)  # before anything is written
    folder = StudyFolder(out or default_folder(study.name, choice))
    folder.begin(study, choice)
    return folder


def found(name: str, out: Path | None = None) -> StudyFolder:
    """The folder of a study that was run before."""
    if out is not None or Path(name).is_dir():
        return StudyFolder.existing(out or name)
    usual = Path("studies").glob(f"{spec.load(name).name.replace('/', '-')}*/study.toml")
    there = sorted(path.parent for path in usual)
    if len(there) == 1:
        return StudyFolder.existing(there[0])
    if not there:
        raise ConfigError(f"study {name} has not been run here; name its folder, or run it")
    raise ConfigError(f"study {name} was run more than once; name one of {', '.join(map(str, there))}")


def machine_of(where: Where) -> tuple[planner.Machine, list[dict[str, str]]]:
    """Where programs will run, and the environment variables of local workers."""
    if where.executor == "slurm":
        limit = int(where.cluster.get("array_parallelism", 1) or 1)
        return planner.Machine("the cluster's device", where.memory, limit), []
    device, free, slots = local_machine(where.cpu, where.workers)
    return planner.Machine(device, where.memory or free, len(slots)), slots


def prepare(
    folder: StudyFolder, chosen: Sequence[Point], where: Where, say: Say
) -> tuple[planner.StudyPlan, list[ProgramFolder]]:
    """Plan what is left of the chosen runs, and write it down; programs that were begun stay as they are."""
    begun = [program for program in folder.programs() if not _is_unstarted(folder, program)]
    taken = {name for program in begun for name in program.runs}
    wanted = {point.name for point in chosen}
    fresh = [point for point in chosen if not _taken(point.name, taken)]
    machine, _ = machine_of(where)
    made = planner.plan(fresh, machine, where.population, say) if fresh else planner.StudyPlan((), machine)
    for program in made.programs:
        for point in program.points:
            folder.add_run(point)
        folder.add_program(program.id, [point.name for point in program.points])
    new = [folder.program(program.id) for program in made.programs]
    old = [program for program in begun if any(_base(name) in wanted for name in program.runs)]
    return made, [*old, *new]


def _is_unstarted(folder: StudyFolder, program: ProgramFolder) -> bool:
    """Planned, and nothing more: it may be planned anew, for another machine."""
    unstarted = folder.status(program) == "waiting" and not (program.path / "checkpoints").exists()
    if unstarted:
        (program.path / "program.json").unlink(missing_ok=True)
    return unstarted


def _base(name: str) -> str:
    return name.partition(".seeds_")[0]


def _taken(name: str, taken: set[str]) -> bool:
    return name in {_base(run) for run in taken}


def chosen_points(
    folder: StudyFolder, only: Mapping[str, Sequence[str]], going_on: bool = False
) -> list[Point]:
    """Runs with these labels; of a study that is gone on with and has none named, those asked for before."""
    made = points(folder.study(), folder.choice())
    before = set(folder.asked()) if going_on and not only else set()
    return [point for point in made if point.name in before] if before else selected(made, only)


def run(
    folder: StudyFolder,
    only: Mapping[str, Sequence[str]],
    where: Where,
    say: Say,
    retry: bool = False,
    going_on: bool = False,
) -> int:
    """What is left of a study; returns the exit code: 1 if something failed, 128 + n after a signal.

    `going_on`: where no labels are named, the runs are those that were asked for before.
    """
    with RunFolder(folder.path).held():
        chosen = chosen_points(folder, only, going_on or retry)
        if retry:
            return _retry(folder, {point.name for point in chosen}, where, say)
        return _run(folder, chosen, where, say)


def _run(folder: StudyFolder, chosen: Sequence[Point], where: Where, say: Say) -> int:
    folder.ask([point.name for point in chosen])
    made, programs = prepare(folder, chosen, where, say)
    if made.programs:
        say(str(made))
    statuses = {program.id: folder.status(program) for program in programs}
    over = ("finished", "failed", "running", "queued")
    left = [program for program in programs if statuses[program.id] not in over]
    count = list(statuses.values()).count
    say(f"{count('finished')} programs are finished, {len(left)} are left; results in {folder.path}")
    if count("failed"):
        say(f"{count('failed')} failed before; try them again with: homing study retry {folder.path}")
    signum = _execute(folder, left, where, say) if left else 0
    return _ending(folder, programs, say, signum)


def _retry(folder: StudyFolder, names: set[str], where: Where, say: Say) -> int:
    failed = [program for program in folder.programs() if folder.status(program) == "failed"]
    wanted = [program for program in failed if any(_base(name) in names for name in program.runs)]
    say(f"trying {len(wanted)} programs again" if wanted else "nothing has failed")
    signum = _execute(folder, wanted, where, say) if wanted else 0
    return _ending(folder, wanted, say, signum)


def _execute(folder: StudyFolder, left: Sequence[ProgramFolder], where: Where, say: Say) -> int:
    if where.executor != "local":
        from homing.studies import cluster

        return cluster.run(folder, left, where, say)
    if where.workers == 0:
        return _run_here(folder, left, where, say)
    _, slots = machine_of(where)
    return Pool(folder, slots, say).run(left, lambda program, _: say(line(folder, program)))


def _run_here(folder: StudyFolder, left: Sequence[ProgramFolder], where: Where, say: Say) -> int:
    """One after the other in this process, for notebooks and debuggers."""
    from homing import api
    from homing.studies.worker import error_text, work

    api.choose_device(where.cpu)
    for program in left:
        say(f"training {program.id}")
        try:
            outcome = work(folder, program.id, make_progress(False))
        except Exception as error:  # the others go on; the program's state tells
            say(f"{program.id} failed: {error_text(error)}")
            continue
        if outcome.signum:
            return outcome.signum
    return 0


def _ending(folder: StudyFolder, programs: Sequence[ProgramFolder], say: Say, signum: int) -> int:
    from homing.studies.table import write_table

    statuses = [folder.status(program) for program in programs]
    failed = [program for program, status in zip(programs, statuses, strict=True) if status == "failed"]
    if any(status == "finished" for status in statuses):
        say(f"table: {write_table(folder)}")
    for program in failed:
        say(line(folder, program))
    if signum:
        say(f"stopped; go on with: {folder.go_on}")
        return 128 + signum
    if failed:
        say(f"{len(failed)} programs failed; try them again with: homing study retry {folder.path}")
        return 1
    if all(status == "finished" for status in statuses):
        say(f"finished; see it with: homing study report {folder.path}")
    return 0


def line(folder: StudyFolder, program: ProgramFolder) -> str:
    """How a program stands, in a line, and its error below it."""
    status = folder.status(program)
    text = f"{status:11s} {program.id} ({len(program.runs)} runs)"
    if status == "failed":
        error = program.state().get("error", "")
        return text + "".join(f"\n    {part}" for part in error.splitlines())
    if status == "finished":
        seconds = (folder.run(program.runs[0]).summary() or {}).get("seconds", 0.0)
        return f"{text} in {human_time(seconds)}"
    share = progress(folder, program)
    return text if share is None else f"{text} {share:.0%}"


def progress(folder: StudyFolder, program: ProgramFolder) -> float | None:
    """Share of its steps that the program's evaluations have come to; None before the first."""
    rows = folder.run(program.runs[0]).rows()
    if not rows:
        return None
    return min(rows[-1]["step"] / folder.config(program.runs[0]).train.total_steps, 1.0)


def status(folder: StudyFolder) -> dict[str, Any]:
    """How a study stands, as plain values."""
    programs = folder.programs()
    statuses = [folder.status(program) for program in programs]
    runs = folder.runs()
    return {
        "study": folder.study().name,
        "folder": str(folder.path),
        "runs": len(folder.asked()),
        "runs_finished": len({_base(run.path.name) for run in runs if run.summary() is not None}),
        "counts": {name: statuses.count(name) for name in sorted(set(statuses))},
        "programs": [
            {"id": program.id, "runs": list(program.runs), "progress": progress(folder, program)}
            | program.state()
            | {"status": status}
            for program, status in zip(programs, statuses, strict=True)
        ],
    }


def forget_failed(folder: StudyFolder) -> None:
    for program in folder.programs():
        if folder.status(program) == "failed":
            program.forget_checkpoints()
