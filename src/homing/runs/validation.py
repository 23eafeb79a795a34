"""Checks of a run's files (metrics, sessions, summary) before anything uses what is in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from homing.config.run import MAX_SEED
from homing.errors import HomingError
from homing.runs.strict_json import RESTORE, describe, parse_json, read_json, read_plain

Row = dict[str, Any]
MAX_METRICS_BYTES = 2**30
MAX_COUNT = 2**53  # the largest whole number that a float64 counts to
MAX_METRIC = 3.5e38  # just above the largest float32
COLUMNS = ("seed", "iteration", "step", "updates", "finite")
"""Of every row that a run writes, before its metrics."""


class Check(NamedTuple):
    """A condition on a JSON value, and its name in messages."""

    what: str
    holds: Callable[[Any], bool]


def is_count(value: Any, largest: float = MAX_COUNT) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def is_metric(value: Any) -> bool:
    """Whether a value is a number that float32 can hold."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return math.isfinite(value) and abs(value) <= MAX_METRIC


TEXT = Check("a string", lambda v: isinstance(v, str))
COUNT = Check("a whole number from 0", is_count)
SEED = Check(f"a seed from 0 to {MAX_SEED}", lambda v: is_count(v, MAX_SEED))
FLAG = Check("true or false", lambda v: isinstance(v, bool))
METRIC = Check("a finite number", is_metric)
OBJECT = Check("an object", lambda v: isinstance(v, dict))


def each(check: Check, what: str) -> Check:
    """All values of an object fulfil a check."""
    return Check(what, lambda v: isinstance(v, dict) and all(check.holds(x) for x in v.values()))


def listed(check: Check, what: str) -> Check:
    """All entries of a list fulfil a check."""
    return Check(what, lambda v: isinstance(v, list) and all(check.holds(x) for x in v))


def fields(checks: Mapping[str, Check], what: str) -> Check:
    """The fields of an object that are there fulfil their checks."""
    return Check(what, lambda v: isinstance(v, dict) and fault(v, checks) is None)


def fault(content: Mapping[str, Any], checks: Mapping[str, Check]) -> str | None:
    """What is wrong with the fields of an object, in words; a field that is absent is not wrong."""
    for name, check in checks.items():
        if name in content and not check.holds(content[name]):
            return f"{name} is {describe(content[name])}, not {check.what}"
    return None


_COMMIT = fields({"commit": TEXT, "changed": FLAG}, "a commit")
SESSION: dict[str, Check] = {
    "time": TEXT,
    "date": TEXT,
    "device": TEXT,
    "platform": TEXT,
    "devices": COUNT,
    "cpu_cores": COUNT,
    "iteration": COUNT,
    "missing_rows": COUNT,
    "versions": each(TEXT, "an object of version strings"),
    "git": each(_COMMIT, "an object of commits"),
}
_STATISTICS = each(each(METRIC, ""), "an object of statistics")
SUMMARY: dict[str, Check] = {
    "status": TEXT,
    "step": COUNT,
    "seconds": METRIC,
    "rows": COUNT,
    "diverged": listed(SEED, "a list of seeds"),
    "last": _STATISTICS,
}


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """The sessions of a run, one for each time that it was started or resumed."""
    content = read_json(path)
    if not isinstance(content, list):
        raise _invalid(path, f"it holds {describe(content)}, not a list of sessions")
    for number, session in enumerate(content, 1):
        wrong = fault(session, SESSION) if isinstance(session, dict) else f"it is {describe(session)}"
        if wrong:
            raise _invalid(path, f"session {number}: {wrong}")
    return content


def read_summary(path: Path) -> dict[str, Any]:
    """How a run ended."""
    content = read_json(path)
    wrong = fault(content, SUMMARY) if isinstance(content, dict) else f"it holds {describe(content)}"
    if wrong:
        raise _invalid(path, wrong)
    return content


def read_rows(path: Path, required: Sequence[str] = ("seed", "step")) -> list[Row]:
    """Rows of a metrics file; its last line may be half written, any other must be whole and valid."""
    if not path.exists() and not path.is_symlink():
        return []
    rows = []
    *lines, _ = read_plain(path, MAX_METRICS_BYTES).split(b"\n")  # the last is empty or half written
    for number, line in enumerate(lines, 1):
        try:
            row = parse_json(line)
        except ValueError as error:
            raise _bad_line(path, number, f"is not JSON ({error})") from None
        wrong = row_fault(row, required)
        if wrong:
            raise _bad_line(path, number, f"is not a row of metrics: {wrong}")
        rows.append(row)
    return rows


def row_fault(row: Any, required: Sequence[str]) -> str | None:
    """What is wrong with a row of metrics, in words."""
    if not isinstance(row, dict):
        return f"it is {describe(row)}"
    if missing := [name for name in required if name not in row]:
        return f"it has no {missing[0]}"
    if wrong := fault(row, _ROW):
        return wrong
    for name, value in row.items():
        if "/" in name and not is_metric(value):
            return f"{name} is {describe(value)}, not {METRIC.what}"
    return None


_OPTIONAL = Check("a number or null", lambda v: v is None or is_metric(v))
_ROW = {
    "seed": SEED,
    "iteration": COUNT,
    "step": COUNT,
    "updates": COUNT,
    "finite": FLAG,
    "by_goal": each(listed(_OPTIONAL, ""), "an object of lists of numbers"),
}


def _bad_line(path: Path, number: int, what: str) -> HomingError:
    return HomingError(
        f"line {number} of {path} {what}; put the file back from a copy, or move that line elsewhere"
    )


def _invalid(path: Path, what: str) -> HomingError:
    return HomingError(f"cannot use {path}: {what}; {RESTORE}, or rename it: the run continues without it")
