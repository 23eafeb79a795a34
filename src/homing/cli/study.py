"""Commands on studies: `list`, `plan`, `run`, `status`, `retry`, `report`, `merge`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

from homing.bounds import check_values
from homing.cli.arguments import Flag, Json, parse_options
from homing.cli.paths import check_file, check_folder
from homing.cli.study_work import work
from homing.errors import ConfigError

study_app = tyro.extras.SubcommandApp()

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
Only = Annotated[tuple[str, ...], tyro.conf.arg(metavar="AXIS=LABEL[,LABEL]", help_behavior_hint="")]
Set = Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE", help_behavior_hint="")]
Executor = Literal["local", "workers", "slurm", "submitit-local"]


@study_app.command(name="list")
def list_studies(json_: Json = False) -> None:
    """List the studies that ship with the package.

    Args:
        json_: print JSON instead of a table
    """
    from homing.studies import spec

    studies = [spec.load(name) for name in spec.shipped()]
    if json_:
        told = [
            {
                "name": study.name,
                "title": study.title,
                "about": study.about,
                "runs": len(list(study.points())),
                "axes": {axis: list(labels) for axis, labels in study.grid.items()},
            }
            for study in studies
        ]
        print(json.dumps(told, indent=1))
        return
    shown = Table(title="studies: homing study run NAME, or a file of your own")
    shown.add_column("name", no_wrap=True, min_width=max(len(study.name) for study in studies))
    for heading in ("title", "grid"):
        shown.add_column(heading)
    shown.add_column("runs", justify="right")
    shown.add_column("seeds", justify="right")
    for study in studies:
        grid = " × ".join(f"{len(labels)} {axis}" for axis, labels in study.grid.items())
        runs = len(list(study.points()))
        shown.add_row(study.name, study.title, grid, str(runs), str(study.run.get("seeds", 1)))
    Console().print(shown)


def _choice(scale: float, seeds: int | None, settings: tuple[str, ...]) -> Any:
    from homing.studies.points import Choice

    check_values(scale=scale, seeds=seeds)
    return Choice(scale=scale, seeds=seeds, changes=parse_options(settings))


def _where(
    executor: str,
    workers: int | None,
    cpu: bool,
    population: int | None,
    memory: float | None,
    cluster: tuple[str, ...],
    wait: bool = True,
) -> Any:
    from homing.studies.running import Where

    check_values(workers=workers, population=population, memory=memory)
    if workers != 0 or executor != "local":
        # Workers compute, this process plans: a GPU that it saw would not be theirs.
        import jax

        if cpu or not os.environ.get("JAX_PLATFORMS"):
            jax.config.update("jax_platforms", "cpu")
    bytes_ = None if memory is None else int(memory * 2**30)
    return Where(executor, workers, cpu, population, bytes_, parse_options(cluster), wait)


@study_app.command(name="plan")
def plan(
    study: Name,
    scale: float = 1.0,
    seeds: int | None = None,
    only: Only = (),
    set_: Set = (),
    workers: int | None = None,
    population: int | None = None,
    memory: float | None = None,
    measure: Flag = False,
    cpu: Flag = False,
    json_: Json = False,
) -> None:
    """Plan a study: how many programs, how long they take, and how much memory and disk they need.

    Args:
        study: name that `homing study list` shows, or a file
        scale: fraction of the length, replay, prefill and evaluations
        seeds: number of seeds of each run, instead of the study's
        only: select runs with these labels
        set_: settings that override the study's, for instance num_envs=64
        workers: programs that run at once; by default one for each GPU, or one on the CPU
        population: most seeds in one program; by default as many as fit in memory
        memory: GiB of a device to plan for, instead of this machine's
        measure: train each program for some seconds first, to measure its speed
        cpu: plan for the CPU, even if there is a GPU
        json_: print JSON, with every program, instead of text
    """
    from homing.studies import measuring, planner, spec
    from homing.studies.points import parse_only, points, selected
    from homing.studies.running import machine_of

    where = _where("local", workers, cpu, population, memory, ())
    chosen = selected(points(spec.load(study), _choice(scale, seeds, set_)), parse_only(only))
    machine, slots = machine_of(where)
    made = planner.plan(chosen, machine, population)
    if measure:
        measuring.measure(made, slots[0] if slots else {}, _say if not json_ else lambda _: None)
    print(json.dumps(made.summary(), indent=1) if json_ else f"{made.lines()}\n{made}")


def _say(text: str) -> None:
    print(text, flush=True)


@study_app.command(name="run")
def run(
    study: Name,
    scale: float = 1.0,
    seeds: int | None = None,
    only: Only = (),
    set_: Set = (),
    out: Path | None = None,
    executor: Executor = "local",
    workers: int | None = None,
    population: int | None = None,
    memory: float | None = None,
    cluster: Only = (),
    wait: bool = True,
    cpu: Flag = False,
) -> None:
    """Run what is left of a study, from the start or from where it was stopped or killed.

    Args:
        study: name that `homing study list` shows, a file, or the folder of a study to continue
        scale: fraction of the length, replay, prefill and evaluations, for a quick trial of the whole study
        seeds: number of seeds of each run, instead of the study's
        only: select runs with these labels, for instance objective=dpo,infonce
        set_: settings that override the study's, for instance num_envs=64
        out: folder of the study; studies/NAME by default
        executor: local processes, workers on machines that share the folder, Slurm, or submitit's own local jobs
        workers: programs that run at once; by default one for each GPU, or one on the CPU; 0 uses this process
        population: most seeds in one program; by default as many as fit in memory
        memory: GiB of a device of the cluster, so that programs fit it
        cluster: options of Slurm, for instance partition=gpu timeout_min=240 array_parallelism=8
        wait: wait until all jobs of a cluster, or all workers, have ended
        cpu: compute on the CPU, even if there is a GPU
    """
    from homing.studies import running
    from homing.studies.points import parse_only

    where = _where(executor, workers, cpu, population, memory, cluster, wait)
    if out is not None:
        check_folder("--out", out)
    folder = running.opened(study, _choice(scale, seeds, set_), out)
    going_on = Path(study).is_dir()
    raise SystemExit(running.run(folder, parse_only(only), where, _say, going_on=going_on))


@study_app.command(name="retry")
def retry(
    study: Name,
    only: Only = (),
    out: Path | None = None,
    executor: Executor = "local",
    workers: int | None = None,
    cluster: Only = (),
    fresh: Flag = False,
    wait: bool = True,
    cpu: Flag = False,
) -> None:
    """Retry programs that failed, all or some of them, and nothing else.

    Args:
        study: name or folder of the study
        only: select runs with these labels
        out: folder of the study
        executor: local processes, workers on machines that share the folder, Slurm, or submitit's own local jobs
        workers: programs that run at once
        cluster: options of Slurm, for instance partition=gpu
        fresh: start again from scratch, without the checkpoints
        wait: wait until all jobs of a cluster, or all workers, have ended
        cpu: compute on the CPU, even if there is a GPU
    """
    from homing.studies import running
    from homing.studies.points import parse_only

    where = _where(executor, workers, cpu, None, None, cluster, wait)
    folder = running.found(study, out)
    if fresh:
        running.forget_failed(folder)
    raise SystemExit(running.run(folder, parse_only(only), where, _say, retry=True))


@study_app.command(name="status")
def status(study: Name, out: Path | None = None, json_: Json = False) -> None:
    """Show a study's status: what is finished, running, waiting or failed, and why.

    Args:
        study: name or folder of the study
        out: folder of the study
        json_: print JSON instead of lines
    """
    from homing.studies import running

    folder = running.found(study, out)
    told = running.status(folder)
    if json_:
        print(json.dumps(told, indent=1))
        return
    for program in folder.programs():
        print(running.line(folder, program))
    counts = ", ".join(f"{count} {name}" for name, count in told["counts"].items())
    print(f"{folder.path}: {counts or 'nothing planned yet'}; {told['runs_finished']} of {told['runs']} runs")


@study_app.command(name="report")
def report(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY|TABLE")],
    out: Path | None = None,
    metric: str | None = None,
    json_: Json = False,
) -> None:
    """Draw the figure of a study, with IQM and intervals, and print its numbers; a table is enough.

    Args:
        source: name or folder of a study, or a table (.csv) of one
        out: folder to write to; by default the study's own, or the table's
        metric: metric to show instead of the study's, for instance eval/time_near_goal
        json_: print the numbers as JSON instead of a table
    """
    from homing.studies import running
    from homing.studies.report import cells, write_report

    if out is not None:
        check_folder("--out", out)
    where = source if Path(source).exists() else running.found(source).path
    told = write_report(where, out, metric)
    if json_:
        print(json.dumps(told.numbers, indent=1))
        return
    shown = Table(title=told.title)
    for heading in ("", " ", "steps", "seeds", "IQM", "95 % interval"):
        shown.add_column(heading)
    for row in told.numbers:
        value, interval = cells(row, told.figure.metric)
        shown.add_row(row["panel"], row["line"], f"{row['step']:,}", str(row["seeds"]), value, interval)
    Console().print(shown)
    for path in told.files:
        print(f"wrote {path}")


@study_app.command(name="merge")
def merge(
    sources: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="STUDY|TABLE")],
    out: Path,
) -> None:
    """Merge the results of one study, from one machine or several, into one table.

    Args:
        sources: folders of the study, or tables of it
        out: table to write, a .csv
    """
    from homing.studies import table

    if out.suffix != ".csv":
        raise ConfigError(f"{out} should end in .csv")
    if not sources:
        raise ConfigError("name the folders or tables to put together")
    check_file("--out", out)
    print(f"wrote {table.merge(sources, out)}")


study_app.command(name="work")(work)
