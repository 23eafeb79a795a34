"""`homing study`: all its commands, and those that only read: `list`, `status`, `report`, `merge`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import tyro
from rich.table import Table

from homing.cli import study_run
from homing.cli.arguments import Json
from homing.cli.paths import check_file, check_folder
from homing.cli.study_run import Name
from homing.cli.study_work import work
from homing.cli.tables import add_names, console
from homing.errors import ConfigError

study_app = tyro.extras.SubcommandApp()


@study_app.command(name="list")
def list_studies(json_: Json = False) -> None:
    """List the studies that ship with the package.

    Args:
        json_: print JSON instead of a table
    """
    from homing.studies import spec

    studies = [spec.load(name) for name in spec.shipped()]
    if json_:
        entries = [
            {
                "name": study.name,
                "title": study.title,
                "about": study.about,
                "runs": len(list(study.points())),
                "axes": {axis: list(labels) for axis, labels in study.grid.items()},
            }
            for study in studies
        ]
        print(json.dumps(entries, indent=1))
        return
    shown = Table(title="studies: homing study run NAME, or a file of your own")
    add_names(shown, "name", (study.name for study in studies))
    for heading in ("title", "grid"):
        shown.add_column(heading)
    shown.add_column("runs", justify="right")
    shown.add_column("seeds", justify="right")
    for study in studies:
        grid = " × ".join(f"{len(labels)} {axis}" for axis, labels in study.grid.items())
        runs = len(list(study.points()))
        shown.add_row(study.name, study.title, grid, str(runs), str(study.run.get("seeds", 1)))
    console().print(shown)


study_app.command(name="plan")(study_run.plan)
study_app.command(name="run")(study_run.run)
study_app.command(name="retry")(study_run.retry)


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
    facts = running.status(folder)
    if json_:
        print(json.dumps(facts, indent=1))
        return
    for program in folder.programs():
        print(running.line(folder, program))
    counts = ", ".join(f"{count} {name}" for name, count in facts["counts"].items())
    print(
        f"{folder.path}: {counts or 'nothing planned yet'}; {facts['runs_finished']} of {facts['runs']} runs"
    )


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
    from homing.runs.stats import interval_caveat
    from homing.studies import running
    from homing.studies.report import cells, write_report

    if out is not None:
        check_folder("--out", out)
    if source.endswith(".csv") and not Path(source).exists():
        raise ConfigError(f"{source} does not exist; `homing study run` writes a table.csv in its folder")
    where = source if Path(source).exists() else running.found(source).path
    written = write_report(where, out, metric)
    if json_:
        print(json.dumps(written.numbers, indent=1))
        return
    shown = Table(title=written.title)
    for heading in ("", " ", "steps", "seeds", "IQM", "95 % interval"):
        shown.add_column(heading)
    for row in written.numbers:
        value, interval = cells(row, written.figure.metric)
        shown.add_row(row["panel"], row["line"], f"{row['step']:,}", str(row["seeds"]), value, interval)
    console().print(shown)
    if caveat := interval_caveat(
        min((row["seeds"] for row in written.numbers if row["seeds"] > 1), default=0)
    ):
        print(caveat)
    for path in written.files:
        print(f"wrote {path}")


@study_app.command(name="merge")
def merge(
    sources: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="STUDY|TABLE ...", help_behavior_hint="(required)"),
    ],
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
