"""A study's results as a tidy CSV table: one row per run, seed and evaluation."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from homing.errors import ConfigError, HomingError
from homing.runs.folder import write_whole
from homing.studies.folder import StudyFolder
from homing.studies.spec import RESERVED

TABLE = "table.csv"
# Leading columns of every table, followed by the axes of the grid and the metrics.
PLACES = ("study", "scale", "run", "seed", "iteration", "step", "updates", "finite", "machine")
Row = dict[str, Any]


def rows_of(folder: StudyFolder) -> list[Row]:
    """All rows of a study: name, labels, seed, counters and metrics."""
    study, scale = folder.study(), folder.choice().scale
    rows: list[Row] = []
    place = lambda run: [list(study.grid[a]).index(v) for a, v in folder.labels(run).items()]
    for run in sorted(folder.runs(), key=place):
        labels, config = folder.labels(run), run.config()
        sessions = run.sessions()
        fixed = {"study": study.name, "scale": scale, "run": run.path.name}
        axes = {"env": config.env, "agent": config.agent, **labels}
        machine = {"machine": sessions[-1]["device"]} if sessions else {}
        # A cell holds one value: tables such as the metrics by goal stay with the run.
        plain = ({k: v for k, v in row.items() if not isinstance(v, dict | list)} for row in run.rows())
        rows += [{**fixed, **axes, **machine, **row} for row in plain]
    return rows


def write_table(folder: StudyFolder) -> Path:
    """Write table.csv of a study with the results so far."""
    return save(rows_of(folder), folder.path / TABLE)


def save(rows: Sequence[Row], path: Path) -> Path:
    """Write rows as a CSV file."""
    names = columns(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.getvalue())
    return path


def columns(rows: Iterable[Row]) -> list[str]:
    """Column names: leading columns, axes, then metrics by name."""
    names = dict.fromkeys(name for row in rows for name in row)
    axes = [name for name in names if name not in PLACES and "/" not in name]
    return [*PLACES[:3], *axes, *PLACES[3:], *sorted(name for name in names if "/" in name)]


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else value


def load(path: str | Path) -> list[Row]:
    """Load a table; empty cells are omitted."""
    try:
        with open(path, newline="") as file:
            found = list(csv.DictReader(file))
    except OSError as error:
        raise HomingError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} is not a table of a study, as it is not a CSV file ({error})") from None
    rows = [
        {name: _value(name, text) for name, text in row.items() if text not in ("", None)} for row in found
    ]
    for number, row in enumerate(rows, 2):
        _check_row(row, f"line {number} of {path}")
    return rows


def _check_row(row: Row, where: str) -> None:
    """Refuse a row that is none of a study: it has no run, or its counts are no numbers."""
    for name in ("run", "seed", "step"):
        if name not in row:
            raise ConfigError(f"{where} is not that of a study's table: it has no {name}")
        if name != "run" and not (isinstance(row[name], int) and not isinstance(row[name], bool)):
            raise ConfigError(f"{where} is not that of a study's table: its {name} is {row[name]!r}")
    if not isinstance(row.get("scale", 1), (int, float)):
        raise ConfigError(
            f"{where} is not that of a study's table: its scale is {row['scale']!r}, not a number"
        )


def _value(name: str, text: str) -> Any:
    if name in ("study", "run", "machine"):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def axes_of(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The axes of a table and their labels, in the order in which they first appear."""
    names = [name for name in columns(rows) if "/" not in name and name not in (*RESERVED, "scale")]
    return {name: list(dict.fromkeys(row[name] for row in rows if name in row)) for name in names}


def merge(sources: Sequence[str | Path], out: Path) -> Path:
    """Merge tables or study folders into one table; for duplicate rows the later source wins."""
    merged: dict[tuple[Any, ...], Row] = {}
    names: set[Any] = set()
    for source in sources:
        path = Path(source)
        rows = rows_of(StudyFolder.existing(path)) if path.is_dir() else load(path)
        if any("iteration" not in row for row in rows):
            raise ConfigError(
                f"{path} cannot be merged: it has rows without an iteration, the column that tells evaluations "
                "of a seed apart; merge tables as `homing study run` writes them"
            )
        names |= {(row.get("study"), row.get("scale")) for row in rows}
        for row in rows:
            axes = tuple(sorted((k, str(v)) for k, v in row.items() if "/" not in k and k not in PLACES))
            merged[row.get("study"), axes, row["seed"], row["iteration"]] = row
    if len(names) > 1:
        listed = ", ".join(f"{name} (scale {scale})" for name, scale in sorted(names, key=str))
        raise ConfigError(f"these are not parts of one study: {listed}")
    return save(sorted(merged.values(), key=lambda row: (row["run"], row["step"], row["seed"])), out)
