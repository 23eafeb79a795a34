"""Running a study on this machine or a cluster: remaining programs, retries and status."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError
from homing.runs.folder import RunFolder
from homing.runs.progress import human_time, make_progress
from homing.studies import cluster, planner, spec
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.studies.points import Choice, Point, base_of, points, selected
from homing.studies.pool import Pool, local_machine
from homing.studies.remaining import finished_runs, missing, queued, run_seeds

Say = Callable[[str], None]


@dataclasses.dataclass(frozen=True)
class Where:
    """Executor and resources of a study."""

    executor: str = "local"
    workers: int | None = None
    cpu: bool = False
    population: int | None = None
    """Maximum number of seeds in one program."""
    memory: int | None = None
    """Bytes of a device's memory, if it cannot be queried here."""
    cluster: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Options of the cluster executor, for instance `partition`."""
    wait: bool = True

    def __post_init__(self) -> None:
        from homing.errors import unknown

        if self.executor not in EXECUTORS:
            raise unknown("executor", self.executor, EXECUTORS)
        cluster.check_options(self.executor, self.cluster, self.wait)


EXECUTORS = ("local", "workers", "slurm", "submitit-local")


def default_folder(name: str, choice: Choice) -> Path:
    """For instance studies/paper-objectives, with the scale appended if it is not 1."""
    parts = [name.replace("/", "-")]
    if choice.scale != 1:
        parts.append(f"{choice.scale:g}")
    return Path("studies") / "-".join(parts)


def opened(
    name: str, choice: Choice | None, out: Path | None, only: Mapping[str, Sequence[str]] | None = None
) -> StudyFolder:
    """The folder of a study to run: an existing folder, or a new one for a study's name.

    only: labels that select runs, checked before anything is written
    """
    if Path(name).is_dir():
        if out is not None and out.absolute() != Path(name).absolute():
            raise ConfigError(f"{name} is a study's folder; continue it without --out")
        folder = StudyFolder.existing(name)
        if choice is not None and choice != Choice() and choice != folder.choice():
            raise ConfigError(f"{name} has its own scale, seeds and settings; omit them to continue")
        return folder
    study, choice = spec.load(name), choice or Choice()
    selected(points(study, choice), only or {})  # validates before anything is written
    folder = StudyFolder(out or default_folder(study.name, choice))
    folder.begin(study, choice)
    return folder


def found(name: str, out: Path | None = None) -> StudyFolder:
    """The folder of a study that has been run."""
    if out is not None or Path(name).is_dir():
        return StudyFolder.existing(out or name)
    wanted = spec.load(name).name
    candidates = (path.parent for path in Path("studies").glob("*/study.toml"))
    folders = sorted(path for path in candidates if StudyFolder(path).name() == wanted)
    if len(folders) == 1:
        return StudyFolder.existing(folders[0])
    if not folders:
        raise ConfigError(f"study {name} has not been run here; give its folder, or run it")
    raise ConfigError(f"study {name} was run more than once; give one of {', '.join(map(str, folders))}")


def machine_of(where: Where) -> tuple[planner.Machine, list[dict[str, str]]]:
    """The machine that programs will run on, and the environment variables of local workers."""
    if where.executor == "slurm":
        limit = where.cluster.get("array_parallelism", 1)
        return planner.Machine("the cluster's device", where.memory, limit), []
    if where.executor == "workers":
        return planner.Machine("a worker's device", where.memory, where.workers or 1), []
    device, free, slots = local_machine(where.cpu, where.workers)
    return planner.Machine(device, where.memory or free, len(slots)), slots


def prepare(
    folder: StudyFolder, chosen: Sequence[Point], where: Where, say: Say
) -> tuple[planner.StudyPlan, list[ProgramFolder]]:
    """Plan the remaining seeds of runs and write the plan; programs that have started are kept."""
    started = [program for program in folder.programs() if not _is_unstarted(folder, program)]
    wanted = {point.name for point in chosen}
    fresh = missing(chosen, run_seeds(folder, (name for program in started for name in program.runs)))
    machine, _ = machine_of(where)
    made = planner.plan(fresh, machine, where.population, say) if fresh else planner.StudyPlan((), machine)
    for program in made.programs:
        for point in program.points:
            folder.add_run(point)
        folder.add_program(program.id, [point.name for point in program.points])
    new = [folder.program(program.id) for program in made.programs]
    old = [program for program in started if any(base_of(name) in wanted for name in program.runs)]
    return made, [*old, *new]


def _is_unstarted(folder: StudyFolder, program: ProgramFolder) -> bool:
    """Whether a program has not started; if so, it is removed, to be planned again for this machine."""
    unstarted = folder.status(program) == "waiting" and not (program.path / "checkpoints").exists()
    if unstarted:
        (program.path / "program.json").unlink(missing_ok=True)
    return unstarted


def chosen_points(
    folder: StudyFolder, only: Mapping[str, Sequence[str]], going_on: bool = False
) -> list[Point]:
    """Runs with these labels; without labels, a continued study takes the runs requested before."""
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
    fresh: bool = False,
) -> int:
    """Run the remaining programs of a study; returns the exit code, 1 after a failure, 128 + n after a signal.

    retry:    run failed programs instead
    going_on: without labels, continue the runs that were requested before
    fresh:    delete the checkpoints of the programs to retry
    """
    with RunFolder(folder.path).held():
        chosen = chosen_points(folder, only, going_on or retry)
        if retry:
            return _retry(folder, {point.name for point in chosen}, where, say, fresh)
        return _run(folder, chosen, where, say)


def _run(folder: StudyFolder, chosen: Sequence[Point], where: Where, say: Say) -> int:
    folder.ask([point.name for point in chosen])
    made, programs = prepare(folder, chosen, where, say)
    if made.programs:
        say(str(made))
    statuses = {program.id: folder.status(program) for program in programs}
    held = queued(folder, programs, where.executor)
    excluded = ("finished", "failed", "running")
    left = [p for p in programs if statuses[p.id] not in excluded and p.id not in held.ids]
    count = list(statuses.values()).count
    say(f"{count('finished')} programs are finished, {len(left)} remain; results in {folder.path}")
    if count("running"):
        say(f"{count('running')} are running; check them with: {folder.command('status')}")
    for text in held.lines(folder):
        say(text)
    if count("failed"):
        say(f"{count('failed')} failed before; retry with: {folder.command('retry')}")
    signum = _execute(folder, left, where, say) if left else 0
    return _ending(folder, programs, say, signum)


def _retry(folder: StudyFolder, names: set[str], where: Where, say: Say, fresh: bool) -> int:
    programs = [p for p in folder.programs() if any(base_of(name) in names for name in p.runs)]
    wanted = [program for program in programs if folder.status(program) == "failed"]
    if not wanted:
        say("no program has failed")
        if unfinished := len(names - finished_runs(folder)):
            say(f"{unfinished} runs are not finished; continue with: {folder.go_on}")
        return 0
    say(f"retrying {len(wanted)} programs")
    for program in wanted if fresh else ():
        program.forget_checkpoints()
    signum = _execute(folder, wanted, where, say)
    return _ending(folder, wanted, say, signum)


def _execute(folder: StudyFolder, left: Sequence[ProgramFolder], where: Where, say: Say) -> int:
    if where.executor == "workers":
        from homing.studies import shared

        return shared.open_programs(folder, left, where, say)
    if where.executor != "local":
        return cluster.run(folder, left, where, say)
    if where.workers == 0:
        return _run_here(folder, left, where, say)
    _, slots = machine_of(where)
    return Pool(folder, slots, say).run(left, lambda program, _: say(line(folder, program)))


def _run_here(folder: StudyFolder, left: Sequence[ProgramFolder], where: Where, say: Say) -> int:
    """Run programs sequentially in this process, for notebooks and debuggers."""
    from homing.studies.worker import error_text, work
    from homing.training.device import choose_device

    choose_device(where.cpu)
    for program in left:
        say(f"training {program.id}")
        try:
            outcome = work(folder, program.id, make_progress(False))
        except Exception as error:  # the others continue; the program's state has the error
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
        say(f"stopped; continue with: {folder.go_on}")
        return 128 + signum
    if failed:
        say(f"{len(failed)} programs failed; retry with: {folder.command('retry')}")
        return 1
    if statuses and all(status == "finished" for status in statuses):
        say(f"finished; make the report with: {folder.command('report')}")
    return 0


def line(folder: StudyFolder, program: ProgramFolder) -> str:
    """The status of a program in one line, followed by its error."""
    status = folder.status(program)
    text = f"{status:11s} {program.id} ({len(program.runs)} {'run' if len(program.runs) == 1 else 'runs'})"
    if status == "failed":
        error = program.state().get("error", "")
        return text + "".join(f"\n    {part}" for part in error.splitlines())
    if status == "finished":
        seconds = (folder.run(program.runs[0]).summary() or {}).get("seconds", 0.0)
        return f"{text} in {human_time(seconds)}"
    fraction = progress(folder, program)
    return text if fraction is None else f"{text} {fraction:.0%}"


def progress(folder: StudyFolder, program: ProgramFolder) -> float | None:
    """Fraction of a program's steps at its last evaluation; None before the first."""
    rows = folder.run(program.runs[0]).rows()
    if not rows:
        return None
    return min(rows[-1]["step"] / folder.config(program.runs[0]).train.total_steps, 1.0)


def status(folder: StudyFolder) -> dict[str, Any]:
    """The status of a study as plain values."""
    programs = folder.programs()
    statuses = [folder.status(program) for program in programs]
    asked = folder.asked()
    return {
        "study": folder.study().name,
        "folder": str(folder.path),
        "runs": len(asked),
        "runs_finished": len(finished_runs(folder).intersection(asked)),
        "counts": {name: statuses.count(name) for name in sorted(set(statuses))},
        "programs": [
            {"id": program.id, "runs": list(program.runs), "progress": progress(folder, program)}
            | program.state()
            | {"status": status}
            for program, status in zip(programs, statuses, strict=True)
        ],
    }
