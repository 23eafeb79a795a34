"""The report of a study: figure, summary numbers, and the paper's claims."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError, HomingError
from homing.report.names import metric
from homing.runs.folder import write_whole
from homing.studies import figures, spec, table
from homing.studies.folder import STUDY, StudyFolder
from homing.studies.spec import Figure, Study

SUMMARY: tuple[str, ...] = ("panel", "line", "step", "seeds", "counted", "diverged", "iqm", "low", "high")


@dataclasses.dataclass(frozen=True)
class Report:
    """The written files, and the summary numbers."""

    files: Sequence[Path]
    figure: Figure
    numbers: Sequence[dict[str, Any]]
    title: str


def write_report(source: str | Path, out: Path | None = None, metric_name: str | None = None) -> Report:
    """Write figure, summary numbers and a Markdown page, from a study's folder or a table."""
    path = Path(source)
    if path.is_dir():
        folder = StudyFolder.existing(path)
        table.write_table(folder)
        study, source_table, out = folder.study(), folder.path / table.TABLE, out or folder.path
    else:
        source_table, out = path, out or path.parent
        study = _study_beside(path)
    rows = table.load(source_table)
    if not rows:
        raise HomingError(
            f"{source_table} has no rows yet; a run writes its first row at its first evaluation"
        )
    study = study or _study_named(rows)
    figure = study.figure if study is not None else Figure()
    if metric_name is not None:
        figure = dataclasses.replace(figure, metric=metric_name)
    title = study.title if study is not None else str(rows[0].get("study", path.stem))
    scale = rows[0].get("scale", 1)
    heading = title if scale == 1 else f"{title} (scale {scale:g})"
    numbers = figures.summary(figures.groups_of(figures.checked(figure, rows), rows), figure.metric)
    files = figures.draw(figure, rows, out / "figure", heading)
    files.append(_write_numbers(numbers, out / "summary.csv"))
    page = _page(heading, study, figure, numbers, rows)
    write_whole(out / "report.md", page)
    return Report([*files, out / "report.md"], figure, numbers, heading)


def _study_beside(path: Path) -> Study | None:
    file = path.parent / STUDY
    return spec.parse(file.read_text(), path.parent.name) if file.is_file() else None


def _study_named(rows: Sequence[table.Row]) -> Study | None:
    """The shipped study named in the table, if it is one."""
    names = {row.get("study") for row in rows}
    if len(names) > 1:
        raise ConfigError(f"the table mixes studies: {', '.join(sorted(map(str, names)))}")
    name = str(names.pop())
    return spec.load(name) if name in spec.shipped() else None


def _write_numbers(numbers: Sequence[dict[str, Any]], path: Path) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, SUMMARY, lineterminator="\n")
    writer.writeheader()
    writer.writerows(numbers)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.getvalue())
    return path


def _page(
    heading: str,
    study: Study | None,
    figure: Figure,
    numbers: Sequence[dict[str, Any]],
    rows: Sequence[table.Row],
) -> str:
    """The Markdown page: question, figure and numbers."""
    machines = sorted({str(row["machine"]) for row in rows if "machine" in row})
    lines = [f"# {heading}", ""]
    if study is not None:
        lines += [study.about, ""]
        if study.claims:
            lines += ["The paper states:", "", *(f"- {claim}" for claim in study.claims), ""]
    lines += ["![figure](figure.png)", "", f"{_caption(figure)} Computed on {', '.join(machines)}.", ""]
    lines += ["| | | steps | seeds | IQM | 95 % interval |", "|---|---|---:|---:|---:|---:|"]
    for row in numbers:
        value, interval = cells(row, figure.metric)
        lines.append(
            f"| {row['panel']} | {row['line']} | {row['step']:,} | {row['seeds']} | {value} | {interval} |"
        )
    return "\n".join(lines) + "\n"


def _caption(figure: Figure) -> str:
    shown = metric(figure.metric)
    about = f" ({shown.about})" if shown.about else ""
    return f"{shown.label.capitalize()}{about}: interquartile mean over seeds, bootstrap intervals."


def cells(row: dict[str, Any], name: str) -> tuple[str, str]:
    """IQM and interval as text."""
    if "iqm" not in row:
        return "diverged" if row["diverged"] else "not measured", ""
    shown = (lambda v: f"{100 * v:.1f} %") if metric(name).fraction else (lambda v: f"{v:.4g}")
    interval = f"{shown(row['low'])} … {shown(row['high'])}" if row["counted"] > 1 else ""
    return shown(row["iqm"]), interval
