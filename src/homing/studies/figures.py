"""The figure of a study and its summary numbers, from the table of results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from homing.errors import ConfigError, unknown
from homing.report.groups import Group, curves_of
from homing.report.names import metric
from homing.report.reading import RunRecord
from homing.runs.stats import estimate
from homing.studies.spec import Figure
from homing.studies.table import Row, axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

HEAT = "viridis"


def checked(figure: Figure, rows: Sequence[Row]) -> Figure:
    """The figure, after checking that the table has its axes and metric."""
    axes = axes_of(rows)
    for role in ("panels", "lines", "rows", "columns"):
        axis = getattr(figure, role)
        if axis is not None and axis not in axes:
            raise unknown("axis of the table", axis, axes)
    measured = sorted({name for row in rows for name in row if "/" in name})
    if figure.metric not in measured:
        raise unknown("metric of the table", figure.metric, measured)
    return figure


def roles(figure: Figure, rows: Sequence[Row]) -> tuple[str, list[str]]:
    """The axis of the panels, and the axes whose combinations are lines or bars."""
    axes = {name: labels for name, labels in axes_of(rows).items() if len(labels) > 1}
    panels = figure.panels or "env"
    if figure.kind == "heatmap":
        assert figure.rows and figure.columns
        named = [figure.rows, figure.columns]
        return panels, named + [name for name in axes if name not in (panels, *named, "agent")]
    if figure.lines is None:
        return panels, [name for name in axes if name != panels and name != "agent"] or ["agent"]
    return panels, [figure.lines] + [
        name for name in axes if name not in (panels, figure.lines) and name not in ("agent", "env")
    ]


def groups_of(figure: Figure, rows: Sequence[Row]) -> list[Group]:
    """The seeds of each panel and line, in table order."""
    panels, lines = roles(figure, rows)
    if diverse := _hidden(rows, (panels, *lines)):
        raise ConfigError(f"the figure would mix runs that differ in {diverse}; use it for panels or lines")
    members: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        method = ", ".join(_named(axis, row.get(axis), figure.kind) for axis in lines)
        members.setdefault((_shown(row.get(panels)), method), []).append(row)
    labels = axes_of(rows)
    place = lambda axis: [_shown(label) for label in labels.get(axis, [])]
    order = sorted(
        members,
        key=lambda key: (
            place(panels).index(key[0]) if key[0] in place(panels) else 0,
            list(dict.fromkeys(method for _, method in members)).index(key[1]),
        ),
    )
    return [_group(task, method, members[task, method]) for task, method in order]


def _hidden(rows: Sequence[Row], used: Sequence[str]) -> str:
    """An axis on which rows of the same group differ; empty if there is none."""
    seen: dict[tuple[Any, ...], Row] = {}
    axes = axes_of(rows)
    for row in rows:
        first = seen.setdefault(tuple(str(row.get(axis)) for axis in used), row)
        for axis in axes:
            if row.get(axis) != first.get(axis):
                return axis
    return ""


def _group(task: str, method: str, rows: Sequence[Row]) -> Group:
    """One group of curves, also from runs that were split by seeds."""
    record = RunRecord(Path(rows[0]["run"]), {}, rows)
    return Group(method, task, list(curves_of(record, rows[0]["run"])))


def _shown(label: Any) -> str:
    if isinstance(label, bool):
        return "yes" if label else "no"
    return f"{label:g}" if isinstance(label, float) else str(label)


def _named(axis: str, label: Any, kind: str) -> str:
    """A label that includes its axis where it would be ambiguous; heat maps label their axes."""
    shown = _shown(label)
    plain = kind == "heatmap" or (isinstance(label, str) and not shown[:1].isdigit())
    return shown if plain else f"{axis} {shown}"


def summary(groups: Sequence[Group], name: str) -> list[dict[str, Any]]:
    """Final value of each group: IQM over seeds with its 95 % interval, and the number of seeds."""
    entries = []
    for group in groups:
        values = group.final(name)
        entry: dict[str, Any] = {"panel": group.task, "line": group.method, "seeds": len(group.curves)}
        steps = [curve.step[-1] for curve in group.curves if curve.step.size]
        entry["step"] = int(min(steps)) if steps else 0
        entry["diverged"] = sum(curve.diverged for curve in group.curves)
        if values.size:
            found = estimate(values)
            entry |= {"iqm": found.value, "low": found.low, "high": found.high, "counted": found.count}
        entries.append(entry)
    return entries


def draw(figure: Figure, rows: Sequence[Row], out: Path, title: str = "") -> list[Path]:
    """Write the figure as .png and .pdf, or as the one file that `out` names."""
    from matplotlib import rc_context

    from homing.report.figures import STYLE

    groups = groups_of(checked(figure, rows), rows)
    with rc_context(STYLE):
        drawn = KINDS[figure.kind](groups, figure, rows)
        if title:
            drawn.suptitle(title, fontsize=10)
        out.parent.mkdir(parents=True, exist_ok=True)
        paths = [out] if out.suffix else [out.with_suffix(suffix) for suffix in (".png", ".pdf")]
        for path in paths:
            # Without a date, so that the same table gives the same file.
            drawn.savefig(path, bbox_inches="tight", metadata=_undated(path))
    return paths


def _undated(path: Path) -> dict[str, Any]:
    return {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}.get(path.suffix, {})


def _curves(groups: Sequence[Group], figure: Figure, rows: Sequence[Row]) -> Canvas:
    from homing.report.figures import curves

    drawn = curves(groups, figure.metric, "step", _colours(groups))
    if drawn is None:
        raise ConfigError(f"no run has measured {figure.metric} yet")
    return drawn


def _bars(groups: Sequence[Group], figure: Figure, rows: Sequence[Row]) -> Canvas:
    """A panel per task: the final IQM of each method as a bar, with its interval."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    colours = _colours(groups)
    entries = {(s["panel"], s["line"]): s for s in summary(groups, figure.metric) if "iqm" in s}
    drawn, panels = _panels(len(tasks), 0.6 + 0.22 * len(colours))
    for panel, task in zip(panels, tasks, strict=True):
        for y, (method, colour) in enumerate(colours.items()):
            if (task, method) in entries:
                s = entries[task, method]
                panel.barh(y, s["iqm"], color=colour, height=0.75)
                panel.plot([s["low"], s["high"]], [y, y], color="#30363d", linewidth=1.2)
        panel.set_yticks(range(len(colours)), list(colours))
        panel.invert_yaxis()
        panel.set_title(task, fontsize=9)
        _per_cent(panel, figure.metric)
    drawn.supxlabel(f"{metric(figure.metric).label} at the end (IQM, 95 % interval)", fontsize=9)
    return drawn


def _heatmap(groups: Sequence[Group], figure: Figure, rows: Sequence[Row]) -> Canvas:
    """A panel per task and value of further axes: the final IQM over two axes."""
    _, (down, along, *further) = roles(figure, rows)
    labels = {axis: [_shown(label) for label in axes_of(rows)[axis]] for axis in (down, along)}
    entries = [s for s in summary(groups, figure.metric) if "iqm" in s]
    keyed = [(s["panel"], *s["line"].split(", ", 2), s["iqm"]) for s in entries]
    boards = list(dict.fromkeys((key[0], key[3] if further else "") for key in keyed))
    high = max((key[-1] for key in keyed), default=1.0) or 1.0
    drawn, panels = _panels(len(boards), 0.9 + 0.35 * len(labels[down]))
    for panel, (task, rest) in zip(panels, boards, strict=True):
        grid = np.full((len(labels[down]), len(labels[along])), np.nan)
        for key in keyed:
            if (key[0], key[3] if further else "") == (task, rest):
                grid[labels[down].index(key[1]), labels[along].index(key[2])] = key[-1]
        panel.imshow(grid, cmap=HEAT, vmin=0.0, vmax=high, aspect="auto")
        for (i, j), value in np.ndenumerate(grid):
            if math.isfinite(value):
                panel.text(j, i, _text(value, figure.metric), ha="center", va="center", color="white")
        panel.grid(False)
        panel.set_xticks(range(len(labels[along])), labels[along])
        panel.set_yticks(range(len(labels[down])), labels[down])
        panel.set_xlabel(along)
        panel.set_ylabel(down)
        panel.set_title(f"{task}, {' '.join(further)} {rest}" if further else task, fontsize=9)
    drawn.supxlabel(f"{metric(figure.metric).label} at the end (IQM)", fontsize=9)
    return drawn


KINDS: Mapping[str, Callable[[Sequence[Group], Figure, Sequence[Row]], Canvas]] = {
    "curves": _curves,
    "bars": _bars,
    "heatmap": _heatmap,
}


def _colours(groups: Sequence[Group]) -> dict[str, str]:
    from homing.report.figures import COLOURS

    methods = dict.fromkeys(group.method for group in groups)
    return {method: COLOURS[i % len(COLOURS)] for i, method in enumerate(methods)}


def _panels(count: int, height: float) -> tuple[Canvas, list[Axes]]:
    from matplotlib.figure import Figure as Canvas

    columns = min(count, 3)
    rows = math.ceil(count / columns)
    drawn = Canvas(figsize=(3.1 * columns + 0.6, height * rows + 0.5), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False).ravel()
    for spare in axes[count:]:
        spare.remove()
    return drawn, list(axes[:count])


def _per_cent(panel: Axes, name: str) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    if metric(name).fraction:
        panel.xaxis.set_major_locator(MaxNLocator(4))  # more labels would overlap
        panel.xaxis.set_major_formatter(PercentFormatter(1.0))
        panel.set_xlim(left=0)


def _text(value: float, name: str) -> str:
    return f"{100 * value:.0f} %" if metric(name).fraction else f"{value:.3g}"
