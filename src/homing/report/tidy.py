"""All evaluations of all runs as one table: a row for each run, seed and evaluation."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from homing.report.groups import By, method_labels, task_labels
from homing.report.reading import RunRecord, short_names

PLACES = ("run", "agent", "method", "env", "task", "seed", "iteration", "step", "updates", "finite")


def tidy_rows(records: Sequence[RunRecord], by: By = "settings") -> list[dict[str, Any]]:
    """Rows with the run's names before its metrics; what was not measured is absent."""
    names = short_names([record.path for record in records])
    labels = zip(records, names, method_labels(records, names, by), task_labels(records), strict=True)
    return [
        {"run": name, "agent": record.agent, "method": method, "env": record.env, "task": task, **_plain(row)}
        for record, name, method, task in labels
        for row in record.rows
    ]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row without nested values, such as metrics by goal."""
    return {name: value for name, value in row.items() if not isinstance(value, dict | list)}


def tidy_columns(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """The same as columns, None where something was not measured: ready for any data frame."""
    names = dict.fromkeys([*PLACES, *sorted({n for row in rows for n in row if n not in PLACES})])
    return {name: [row.get(name) for row in rows] for name in names}


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """The same as CSV; an empty field was not measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = tidy_columns(rows)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
