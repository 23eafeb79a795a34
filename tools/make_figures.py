"""Draw the figures of docs/concepts.md; all numbers in them are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from homing.runs import stats

OUT = Path(__file__).parent.parent / "docs" / "images" / "concepts"
BLUE, ORANGE, GREEN, GREY, INK = "#3b82c4", "#e0762b", "#2e9e5b", "#b8c0c9", "#333a42"
STYLE = {"font.size": 10, "svg.hashsalt": "homing", "svg.fonttype": "path", "text.color": INK}


def _blank(width: float, height: float, x: tuple[float, float], y: tuple[float, float]):
    figure = Figure(figsize=(width, height), layout="constrained")
    panel = figure.subplots()
    panel.set_xlim(*x)
    panel.set_ylim(*y)
    panel.set_aspect("equal")
    panel.axis("off")
    return figure, panel


def _path(*corners: tuple[float, float]) -> np.ndarray:
    """A Bézier curve [T, 2] with the given control points."""
    points = np.array(corners)[:, None] * np.ones((1, 60, 1))
    t = np.linspace(0, 1, 60)[:, None]
    while len(points) > 1:
        points = (1 - t) * points[:-1] + t * points[1:]
    return points[0]


def goal_reaching() -> Figure:
    """One policy, many goals."""
    figure, panel = _blank(5.6, 3.2, (-0.8, 7.4), (-2.4, 2.2))
    paths = [
        ((0, 0), (1, 2.5), (3, 0), (5, 1.5)),
        ((0, 0), (2, -1), (3, 1), (6, 0.0)),
        ((0, 0), (1, -2), (3, -1), (4.4, -1.4)),
    ]
    for k, (corners, colour) in enumerate(zip(paths, (BLUE, ORANGE, GREEN), strict=True)):
        path = _path(*corners)
        panel.plot(*path.T, color=colour, linewidth=2)
        panel.add_patch(Circle(path[-1], 0.35, color=colour, alpha=0.25))
        panel.plot(*path[-1], "*", color=colour, markersize=11)
        panel.text(path[-1][0] + 0.5, path[-1][1], f"goal {k + 1}", va="center")
    panel.plot(0, 0, "o", color=INK, markersize=10)
    panel.text(-0.1, -0.5, "start", ha="center")
    panel.text(-0.7, -2.3, "reached: inside the disc, whose radius is the threshold", fontsize=9)
    return figure


def relabelling() -> Figure:
    """Hindsight goals: positions that the episode reached, near ones more likely."""
    figure, panel = _blank(6.2, 3.0, (-0.4, 7.8), (-1.7, 2.3))
    path, now, gamma = _path((0, 0), (1.5, 2.6), (3.5, 1.6), (4.5, -0.6), (6.4, 1.2)), 12, 0.94
    panel.plot(*path.T, color=GREY, linewidth=2, zorder=1)
    ahead = np.arange(1, len(path) - now)
    weights = gamma**ahead / np.sum(gamma**ahead)
    panel.scatter(*path[now + ahead].T, s=5 + 2400 * weights, color=BLUE, alpha=0.5, zorder=2, linewidth=0)
    panel.plot(*path[now], "o", color=INK, markersize=9)
    panel.annotate("state and action", path[now], (0.0, 1.9), arrowprops={"arrowstyle": "-"}, ha="left")
    panel.plot(6.9, -0.7, "*", color=ORANGE, markersize=14)
    panel.text(6.6, -0.7, "commanded goal, missed", ha="right", va="center", fontsize=9)
    panel.text(path[-1][0], path[-1][1] + 0.2, "end of the episode", fontsize=9, ha="center", va="bottom")
    panel.text(
        -0.2, -1.55, "area of a dot: how likely this later state becomes the goal (γ = 0.94)", fontsize=9
    )
    return figure


def contrastive() -> Figure:
    """A batch of B state–action pairs against B goals; the diagonal belongs together."""
    size, rng = 8, np.random.default_rng(0)
    phi = rng.normal(size=(size, 3))
    psi = phi + 0.35 * rng.normal(size=(size, 3))
    logits = -np.linalg.norm(phi[:, None] - psi, axis=-1)
    figure = Figure(figsize=(4.6, 3.8), layout="constrained")
    panel = figure.subplots()
    picture = panel.imshow(logits, cmap="Blues")
    for i in range(size):
        panel.add_patch(Rectangle((i - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=2))
    panel.set_xticks(range(size), [f"$\\psi(g_{j + 1})$" for j in range(size)], fontsize=8)
    panel.set_yticks(range(size), [f"$\\phi(s_{i + 1},a_{i + 1})$" for i in range(size)], fontsize=8)
    figure.colorbar(picture, label=r"$f = -\|\phi-\psi\|$", shrink=0.85)
    return figure


def loop() -> Figure:
    """The training loop of one compiled program, for every seed."""
    figure, panel = _blank(7.2, 2.7, (0, 14.4), (0, 5.4))
    for k in range(3):
        corner = (0.3 + 0.22 * k, 0.2 + 0.22 * k)
        panel.add_patch(Rectangle(corner, 13.4, 4.5, facecolor="#eef3f8", edgecolor=GREY, zorder=k))
    panel.text(13.9, 4.55, "seeds 0 … S−1, vmapped", ha="right", fontsize=9, zorder=9)
    texts = ("N\nenvironments", "replay\non the device", "relabelled\ngoals", "updates")
    for k, text in enumerate(texts):
        x = 1.2 + 3.4 * k
        box = FancyBboxPatch(
            (x, 2.2), 2, 1.5, boxstyle="round,pad=0.15", fc="white", ec=BLUE, lw=1.5, zorder=5
        )
        panel.add_patch(box)
        panel.text(x + 1.0, 2.95, text, ha="center", va="center", fontsize=9, zorder=6)
        if k:
            _arrow(panel, (x - 1.2, 2.95), (x - 0.2, 2.95))
    _arrow(panel, (12.4, 2.0), (2.2, 2.0), bend=-0.1)
    panel.text(7.3, 0.85, "the new policy collects the next steps", ha="center", fontsize=9, zorder=7)
    return figure


def _arrow(panel: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0.0) -> None:
    style = {"arrowstyle": "-|>", "mutation_scale": 12, "color": INK, "zorder": 6}
    panel.add_patch(FancyArrowPatch(start, end, connectionstyle=f"arc3,rad={bend}", **style))


def iqm() -> Figure:
    """Ten seeds, the middle half, its mean, and the bootstrap interval: by the library's own functions."""
    scores = np.array([0.05, 0.42, 0.55, 0.58, 0.61, 0.63, 0.66, 0.70, 0.74, 0.97])
    found, cut = stats.estimate(scores), len(scores) // 4
    figure = Figure(figsize=(6.4, 2.1), layout="constrained")
    panel = figure.subplots()
    middle = np.zeros(len(scores), bool)
    middle[cut:-cut] = True
    panel.plot(scores[middle], np.zeros(middle.sum()), "o", color=BLUE, markersize=9, label="middle half")
    panel.plot(scores[~middle], np.zeros((~middle).sum()), "o", color=GREY, markersize=9, label="cut off")
    panel.plot(
        [found.low, found.high], [-0.5, -0.5], color=ORANGE, linewidth=7, alpha=0.4, solid_capstyle="butt"
    )
    panel.plot(found.value, -0.5, "D", color=ORANGE, markersize=8)
    text = f"IQM {found.value:.2f}, 95 % interval {found.low:.2f} … {found.high:.2f}"
    panel.text(found.value, -0.92, text, ha="center", fontsize=9)
    panel.set_ylim(-1.15, 0.9)
    panel.set_xlim(0, 1)
    panel.set_yticks([])
    panel.set_xlabel("success rate of each of ten seeds (made-up numbers)")
    panel.spines[["top", "left", "right"]].set_visible(False)
    panel.legend(loc="upper center", ncols=2, frameon=False, fontsize=9)
    return figure


FIGURES: tuple[Callable[[], Figure], ...] = (goal_reaching, relabelling, contrastive, loop, iqm)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for draw in FIGURES:
            draw().savefig(OUT / f"{draw.__name__}.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
