"""Figures for papers: learning curves, aggregates, profiles, probability of improvement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from homing.errors import HomingError
from homing.report import comparison
from homing.report.groups import Group
from homing.report.names import SCORES, metric
from homing.runs.stats import Band, Estimate

COLOURS: tuple[str, ...] = (
    "#3b82c4",
    "#e0762b",
    "#2e9e5b",
    "#c2559d",
    "#b0921f",
    "#d9534f",
    "#1fa3a3",
    "#8a7ae0",
    "#a08060",
    "#7c8a99",
)
MOST = len(COLOURS)  # methods in one figure: the best
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e8eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text
    "savefig.dpi": 200,
}
STATISTICS = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}


def write_figures(groups: Sequence[Group], folder: Path, formats: Sequence[str]) -> list[Path]:
    """All figures in all formats; returns what was written."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with rc_context(STYLE):
            for name, figure in _figures(groups):
                for suffix in formats:
                    path = folder / f"{name}.{suffix}"
                    figure.savefig(path, bbox_inches="tight")
                    written.append(path)
    except OSError as error:
        raise HomingError(f"cannot write figures to {folder}: {error.strerror}") from error
    return written


def _figures(groups: Sequence[Group]) -> Iterator[tuple[str, Figure]]:
    methods = comparison.ranked(groups)[:MOST]
    colours: dict[str, str] = dict(zip(methods, COLOURS, strict=False))
    for name in SCORES[:2]:
        for axis, suffix in (("step", "steps"), ("hours", "time")):
            figure = curves(groups, name, axis, colours)
            if figure is not None:
                yield f"{name.removeprefix('eval/')}_{suffix}", figure
    found = comparison.compare(groups)
    if found is None:
        return
    label = metric(found["score"]).label
    yield "aggregates", aggregates(found["aggregates"], label, colours)
    yield "profile", profile(found["profiles"], label, colours)
    pairs = [(a, b, e) for a, b, e in found["improvement"] if e is not None and {a, b} <= set(colours)]
    if pairs:
        yield "improvement", improvement(pairs, colours)


def curves(groups: Sequence[Group], name: str, axis: str, colours: dict[str, str]) -> Figure | None:
    """A panel for each task: IQM and 95 % band of each method."""
    drawn = [(g, g.band(name, axis, 200, 1000)) for g in groups if g.method in colours]
    kept = [(g, found) for g, found in drawn if found is not None]
    tasks = list(dict.fromkeys(g.task for g, _ in kept))
    if not tasks:
        return None
    figure, panels = _board(len(tasks))
    longest = max(float(x[-1]) for _, (x, _) in kept if x.size)
    for panel, task in zip(panels, tasks, strict=True):
        for group, (x, band) in ((g, found) for g, found in kept if g.task == task):
            _line(panel, x * _time_scale(axis, longest)[0], band, group.method, colours[group.method])
        panel.set_title(task, fontsize=9)
        panel.set_xlabel(_time_scale(axis, longest)[1])
        _fraction_axis(panel, whole=name.startswith("eval/success"))
        if axis == "step":
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panels[0].set_ylabel(metric(name).label)
    _legend(figure, panels, colours)
    return figure


def _board(count: int, width: float = 2.6, height: float = 2.0) -> tuple[Figure, list[Axes]]:
    columns = 3 if count in (5, 6, 9) else min(count, 4)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(width * columns + 0.6, height * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.remove()
    return figure, list(axes[:count])


def _time_scale(axis: str, longest: float) -> tuple[float, str]:
    if axis == "step":
        return 1.0, "environment steps"
    if longest < 0.05:
        return 3600.0, "wall-clock seconds"
    return (60.0, "wall-clock minutes") if longest < 3 else (1.0, "wall-clock hours")


def _line(panel: Axes, x: np.ndarray, band: Band, label: str, colour: str) -> None:
    panel.plot(x, band.value, color=colour, label=label, marker="o" if x.size == 1 else None, linewidth=1.5)
    panel.fill_between(x, band.low, band.high, color=colour, alpha=0.18, linewidth=0)


def _fraction_axis(panel: Axes, whole: bool) -> None:
    panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    panel.set_ylim(0, 1.02 if whole else None)
    panel.set_xlim(left=0)


def _legend(figure: Figure, panels: Sequence[Axes], colours: dict[str, str]) -> None:
    """One for all panels, below them; a single method needs none."""
    handles: dict[str, Any] = {}
    for panel in panels:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    names = [name for name in colours if name in handles]
    if len(names) > 1:
        columns = min(len(names), max(1, len(panels) * 2))
        figure.legend([handles[n] for n in names], names, loc="outside lower center", ncols=columns)


def aggregates(estimates: dict[str, dict[str, Estimate]], label: str, colours: dict[str, str]) -> Figure:
    """Four statistics over tasks and seeds with their intervals."""
    methods = [m for m in colours if m in estimates][::-1]
    size = (9.0, 0.8 + 0.28 * len(methods))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(STATISTICS), sharey=True)
    for panel, (name, title) in zip(panels, STATISTICS.items(), strict=True):
        for y, method in enumerate(methods):
            e = estimates[method][name]
            panel.plot(
                [e.low, e.high], [y, y], color=colours[method], alpha=0.35, linewidth=7, solid_capstyle="butt"
            )
            panel.plot(e.value, y, "o", color=colours[method], markersize=5)
        panel.set_title(title, fontsize=9)
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_yticks(range(len(methods)), methods)
        panel.set_ylim(-0.6, len(methods) - 0.4)
    figure.supxlabel(f"final {label}", fontsize=9)
    return figure


def profile(profiles: dict[str, Band], label: str, colours: dict[str, str]) -> Figure:
    """Fraction of seeds above each threshold."""
    figure = Figure(figsize=(4.2, 2.9), layout="constrained")
    panel = figure.subplots()
    for method in (m for m in colours if m in profiles):
        _line(panel, comparison.THRESHOLDS, profiles[method], method, colours[method])
    panel.set_xlabel(f"τ ({label})")
    panel.set_ylabel("fraction of seeds above τ")
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    _fraction_axis(panel, whole=True)
    _legend(figure, [panel], colours)
    return figure


def improvement(pairs: Sequence[tuple[str, str, Estimate]], colours: dict[str, str]) -> Figure:
    """P(X > Y) for every pair of methods."""
    figure = Figure(figsize=(5.2, 0.8 + 0.28 * len(pairs)), layout="constrained")
    panel = figure.subplots()
    for y, (a, _, e) in enumerate(reversed(pairs)):
        panel.plot([e.low, e.high], [y, y], color=colours[a], alpha=0.35, linewidth=7, solid_capstyle="butt")
        panel.plot(e.value, y, "o", color=colours[a], markersize=5)
    panel.axvline(0.5, color="#7c8a99", linewidth=1, linestyle="--")
    panel.set_yticks(range(len(pairs)), [f"{a}  >  {b}" for a, b, _ in reversed(pairs)])
    panel.set_ylim(-0.6, len(pairs) - 0.4)
    panel.set_xlim(-0.02, 1.02)
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set_xlabel("probability of improvement")
    return figure
