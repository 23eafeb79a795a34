"""Commands that plan and run studies: `plan`, `run`, `retry`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from homing.bounds import check_values
from homing.cli.arguments import Flag, Json, Options, parse_options
from homing.cli.paths import check_folder
from homing.cli.tables import add_names, console

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY")]
Only = Annotated[tuple[str, ...], tyro.conf.arg(metavar="AXIS=LABEL[,LABEL]", help_behavior_hint="")]
Set = Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE", help_behavior_hint="")]
Executor = Literal["local", "workers", "slurm", "submitit-local"]


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
    programs: Flag = False,
    cpu: Flag = False,
    json_: Json = False,
) -> None:
    """Plan a study: how many programs, how long they take, and how much memory and disk they need.

    Args:
        study: name that `homing study list` shows, or a file
        scale: fraction of the steps, replay, prefill and evaluations
        seeds: number of seeds of each run, instead of the study's
        only: select runs with these labels, for instance objective=dpo,infonce
        set_: settings that override the study's, for instance num_envs=64
        workers: programs that run at once; by default one for each GPU, or one on the CPU
        population: most seeds in one program; by default as many as fit in memory
        memory: GiB of a device to plan for, instead of this machine's
        measure: train each program for some seconds first, to measure its speed
        programs: list every program, instead of a summary of each environment
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
    if json_:
        print(json.dumps(made.summary(), indent=1))
        return
    # What the study costs comes first: a long list would push it off the screen.
    print(made)
    if programs:
        print(made.lines())
    else:
        console().print(_plan_table(made))


def _plan_table(made: Any) -> Table:
    """One row for each environment; times are device hours one after the other."""
    from homing.runs.progress import human_count, human_time
    from homing.studies.reference import table as reference

    rows = made.by_env()
    is_known = any(row["seconds"] is not None for row in rows)
    device = made.machine.device if is_known else reference()["device"]
    shown = Table(caption="--programs lists every program")
    add_names(shown, "environment", (row["env"] for row in rows))
    for heading in ("programs", "runs", "seeds", "steps", f"time on {device}"):
        shown.add_column(heading, justify="right")
    for row in rows:
        seconds = row["seconds"] if is_known else row["reference_seconds"]
        time = "unknown" if seconds is None else ("" if is_known else "≈ ") + human_time(seconds)
        counts = (str(row[name]) for name in ("programs", "runs", "seeds"))
        shown.add_row(row["env"], *counts, human_count(row["steps"]), time)
    return shown


def _say(text: str) -> None:
    print(text, flush=True)


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
    cluster: Options = (),
    wait: bool = True,
    cpu: Flag = False,
) -> None:
    """Run what is left of a study, from the start or from where it was stopped or killed.

    Args:
        study: name that `homing study list` shows, a file, or the folder of a study to continue
        scale: fraction of the steps, replay, prefill and evaluations, for a quick trial of the whole study
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
    labels = parse_only(only)
    folder = running.opened(study, _choice(scale, seeds, set_), out, labels)
    going_on = Path(study).is_dir()
    raise SystemExit(running.run(folder, labels, where, _say, going_on=going_on))


def retry(
    study: Name,
    only: Only = (),
    out: Path | None = None,
    executor: Executor = "local",
    workers: int | None = None,
    cluster: Options = (),
    fresh: Flag = False,
    wait: bool = True,
    cpu: Flag = False,
) -> None:
    """Retry programs that failed, all or some of them, and nothing else.

    Args:
        study: name or folder of the study
        only: select runs with these labels
        out: folder of the study, if it is not studies/NAME
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
    raise SystemExit(running.run(folder, parse_only(only), where, _say, retry=True, fresh=fresh))
