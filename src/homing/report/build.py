"""A report on runs: a page, figures and a table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from homing.errors import ConfigError, HomingError
from homing.report.content import make_content
from homing.report.groups import By
from homing.report.page import embedded_films, page_html
from homing.report.reading import Problem, find_runs, read_runs
from homing.report.tidy import tidy_rows, to_csv
from homing.runs.folder import write_whole

FORMATS = ("png", "pdf", "svg")


@dataclasses.dataclass(frozen=True)
class Written:
    """The files of a report, and remarks on its runs."""

    files: Sequence[Path]
    runs: int
    problems: Sequence[Problem]


def write_report(
    places: Sequence[str | Path],
    out: str | Path | None = "report.html",
    *,
    figures: str | Path | None = None,
    formats: Sequence[str] = ("png", "pdf"),
    csv: str | Path | None = None,
    by: By = "settings",
    title: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Written:
    """Write a report on some runs.

    places:  folders of runs, folders that hold some, metrics files, or patterns
    out:     the page; None writes none
    figures: folder for figures of papers
    csv:     file for all evaluations of all seeds
    by:      one line for each agent with its settings, for each agent, or for each run
    say:     called with a line of progress
    """
    _check_targets(out, figures, formats, csv)
    paths = find_runs(places)
    say(f"reading {len(paths)} {'run' if len(paths) == 1 else 'runs'}")
    records, problems = read_runs(paths)
    if not records:
        reasons = "; ".join(f"{p.where}: {p.what}" for p in problems[:3])
        raise HomingError(f"none of the runs has an evaluation to report ({reasons})")
    content = make_content(records, problems, by=by, title=title)
    files: list[Path] = []
    if out is not None:
        content.page["films"] = embedded_films(records)
        files.append(_write(Path(out), page_html(content.page)))
    if csv is not None:
        files.append(_write(Path(csv), to_csv(tidy_rows(records, by))))
    if figures is not None:
        say("drawing figures")
        from homing.report.figures import write_figures

        files += write_figures(content.groups, Path(figures), formats)
    return Written(files, len(records), [Problem(**p) for p in content.page["problems"]])


def _check_targets(
    out: str | Path | None, figures: str | Path | None, formats: Sequence[str], csv: str | Path | None
) -> None:
    """Refuse output paths that cannot be written, before anything is read."""
    if out is None and figures is None and csv is None:
        raise ConfigError("nothing to write: name --out, --figures or --csv")
    for path, suffix in ((out, ".html"), (csv, ".csv")):
        if path is not None and Path(path).suffix.lower() != suffix:
            raise ConfigError(f"{path} should end in {suffix}")
        if path is not None and Path(path).is_dir():
            raise ConfigError(f"{path} is a folder; name a file that ends in {suffix}")
    if bad := [name for name in formats if name not in FORMATS]:
        raise ConfigError(f"unknown figure format {bad[0]!r}; known: {', '.join(FORMATS)}")
    if figures is not None and Path(figures).is_file():
        raise ConfigError(f"{figures} is a file; --figures names a folder")


def _write(path: Path, text: str) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HomingError(f"cannot make the folder {path.parent}: {error.strerror}") from error
    write_whole(path, text)
    return path
