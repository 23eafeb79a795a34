"""Scaling figures: measured against ideal scaling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

from homing.errors import ConfigError, HomingError
from homing.report.figures import COLOURS, STYLE

FORMATS = (".png", ".pdf", ".svg")
IDEAL: Any = {"color": "#7c8a99", "linewidth": 1, "linestyle": "--"}
Rows = Sequence[dict[str, Any]]


def check_figure(path: Path) -> None:
    """Raise for an unsupported file format, before anything is measured."""
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(f"a figure is written as {', '.join(FORMATS)}; {path} is none of these")


def write_scaling(rows: Rows, path: Path) -> None:
    """Write a figure with one panel per varied quantity; skipped points are omitted."""
    measured = [row for row in rows if "skipped" not in row]
    kinds = [what for what in PANELS if any(row["what"] == what for row in measured)]
    if not kinds:
        raise HomingError("no point was measured, so there is nothing to draw")
    with rc_context(STYLE):
        figure = Figure(figsize=(3.3 * len(kinds) + 0.4, 2.9), layout="constrained")
        panels = figure.subplots(1, len(kinds), squeeze=False)[0]
        for panel, what in zip(panels, kinds, strict=True):
            panel.set_xscale("log", base=10 if what == "nets" else 2)
            panel.set_yscale("log")
            PANELS[what](panel, [row for row in measured if row["what"] == what])
            panel.legend(fontsize=7)
        first = measured[0]
        figure.suptitle(f"{first['env']} on {first['device']}", fontsize=9)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, bbox_inches="tight")
        except OSError as error:
            raise HomingError(f"cannot write the figure to {path}: {error.strerror}") from error


def _rate(panel: Axes, rows: Rows, x_label: str, kinds: Sequence[tuple[str, str]]) -> None:
    """The first rate that the rows contain, over x; ideal scaling is proportional."""
    name, label = next((name, label) for name, label in kinds if name in rows[0])
    x, y = [row["x"] for row in rows], [row[name] for row in rows]
    panel.plot(x, [y[0] * at / x[0] for at in x], label="ideal", **IDEAL)
    panel.plot(x, y, "o-", color=COLOURS[0], linewidth=1.5, markersize=4, label="measured")
    panel.set_xticks(x, [f"{at // 1024}k" if at >= 1024 else str(at) for at in x])
    panel.xaxis.set_minor_formatter(NullFormatter())
    _few_ticks(panel.yaxis)
    panel.set_xlabel(x_label)
    panel.set_ylabel(label)


TRAINED = ("env_steps_per_second", "training steps/s, all seeds")


def _seeds(panel: Axes, rows: Rows) -> None:
    _rate(panel, rows, "seeds", [TRAINED, ("updates_per_second", "updates/s, all seeds")])


def _envs(panel: Axes, rows: Rows) -> None:
    _rate(panel, rows, "environments", [TRAINED, ("steps_per_second", "physics steps/s")])


def _nets(panel: Axes, rows: Rows) -> None:
    """Time of an update over its FLOPs, one line per network family, and the compute roofline."""
    costs = [_update(row) for row in rows]
    peak = costs[0]["roofline"][f"{rows[0]['net_dtype']}_tflops_per_second"]
    flops = sorted(cost["flops_per_update"] * row["seeds"] for cost, row in zip(costs, rows, strict=True))
    panel.plot(flops, [at / (1e12 * peak) for at in flops], label="compute roofline", **IDEAL)
    families = list(dict.fromkeys(row["family"] for row in rows))
    for family, colour in zip(families, COLOURS, strict=False):
        own = [(row, _update(row)) for row in rows if row["family"] == family]
        x = [cost["flops_per_update"] * row["seeds"] for row, cost in own]
        y = [1e-6 * cost["microseconds_per_update"] for _, cost in own]
        panel.plot(x, y, "o-", color=colour, linewidth=1.5, markersize=4, label=family)
        for at, height, (row, _) in zip(x, y, own, strict=True):
            panel.annotate(row["x"], (at, height), fontsize=6, xytext=(2, 3), textcoords="offset points")
    _few_ticks(panel.xaxis)
    _few_ticks(panel.yaxis, "s")
    panel.set_xlabel("FLOPs per update")
    panel.set_ylabel("time per update")


def _few_ticks(axis: Axis, unit: str = "") -> None:
    """At most eight labelled ticks, also on axes of less than a decade."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter(EngFormatter(unit, sep=" " if unit else ""))
    axis.set_minor_formatter(NullFormatter())


def _update(row: dict[str, Any]) -> dict[str, Any]:
    """The learner's measurements of a row, measured alone or as part of training."""
    return row.get("learner", row)


PANELS: dict[str, Callable[[Axes, Rows], None]] = {"seeds": _seeds, "envs": _envs, "nets": _nets}
