"""Commands that show the results of runs: `report` and `watch`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro

from homing.bounds import check_values
from homing.cli.paths import check_file, check_folder

Runs = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[RUN ...]")]
By = Literal["settings", "agent", "run"]
Format = Literal["png", "pdf", "svg"]
SHOWN = 8  # remarks on runs that a terminal shows


def report(
    runs: Runs = (),
    out: Path = Path("report.html"),
    figures: Path | None = None,
    formats: tuple[Format, ...] = ("png", "pdf"),
    csv: Path | None = None,
    by: By = "settings",
    title: str | None = None,
) -> None:
    """Write a page that compares runs, and optionally figures and a table of them.

    Args:
        runs: folders of runs, folders that contain runs, metrics files, or patterns; `runs` by default
        out: page to write
        figures: folder for figures in the style of papers
        formats: file formats of the figures
        csv: file for all evaluations of all seeds
        by: one line for each agent with its settings, for each agent, or for each run
        title: heading of the page
    """
    from homing.report.build import write_report

    check_file("--out", out)
    if csv is not None:
        check_file("--csv", csv)
    if figures is not None:
        check_folder("--figures", figures)
    say = partial(print, flush=True)
    written = write_report(
        runs or ("runs",), out, figures=figures, formats=formats, csv=csv, by=by, title=title, say=say
    )
    for problem in written.problems[:SHOWN]:
        print(f"{problem.where}: {problem.what}")
    if len(written.problems) > SHOWN:
        print(f"and {len(written.problems) - SHOWN} more remarks, all on the page")
    drawn = [path for path in written.files if figures is not None and path.parent == figures]
    for path in written.files:
        if path not in drawn:
            print(f"wrote {path}")
    if drawn:
        print(f"wrote {len(drawn)} figures to {figures}")


def watch(
    runs: Runs = (),
    port: int = 8642,
    by: By = "settings",
    title: str | None = None,
    browser: bool = True,
) -> None:
    """Serve a page on this machine whose curves are updated while runs continue.

    Args:
        runs: as for `homing report`; runs that start later in a named folder appear too
        port: port of the page; 0 takes any that is free
        by: one line for each agent with its settings, for each agent, or for each run
        title: heading of the page
        browser: open the page; --no-browser only prints its address
    """
    from homing.report.server import watch_runs

    check_values(port=port)
    watch_runs(runs or ("runs",), port=port, by=by, title=title, browser=browser)
