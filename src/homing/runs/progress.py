"""The display of a run: a live screen on a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from typing import Any, Protocol

from rich.console import Console, Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from homing.config.plan import Schedule, human_bytes
from homing.runs.folder import Row

TICKS = "▁▂▃▄▅▆▇█"
# The first of these that an evaluation has is drawn.
CURVES = ("eval/success_any", "eval/return")


class Progress(Protocol):
    """What the run loop reports to."""

    def begin(self, plan: Schedule, seeds: Sequence[int], iteration: int, rows: Sequence[Row]) -> None: ...
    def say(self, text: str) -> None: ...
    def warn(self, text: str) -> None: ...
    def doing(self, what: str) -> None: ...
    def advanced(self, iteration: int) -> None: ...
    def evaluated(self, iteration: int, rows: Sequence[Row], summary: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


def sparkline(values: Sequence[float], width: int = 30, low: float = 0.0, high: float = 1.0) -> str:
    """A curve in one line of text; many values are averaged into `width` columns."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [len(values) * i // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    scale = (len(TICKS) - 1) / (high - low)
    return "".join(TICKS[round(min(max((v - low) * scale, 0), len(TICKS) - 1))] for v in means)


def human_count(count: float) -> str:
    """12.3M, 450k, 87."""
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{unit}"
    return f"{count:.3g}"


def human_time(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class Story:
    """What has happened so far, for either kind of display."""

    def __init__(self, plan: Schedule, seeds: Sequence[int], iteration: int, rows: Sequence[Row]):
        self.plan, self.seeds = plan, tuple(seeds)
        self.first = self.iteration = iteration
        self.begun = time.monotonic()
        self.curves: dict[int, list[float]] = {seed: [] for seed in seeds}
        self.broken: set[int] = set()
        self.speed: float | None = None
        self.name = CURVES[0]
        self.add(rows)

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if not row.get("finite", True):
                self.broken.add(row["seed"])
            self.name = next((name for name in CURVES if name in row), self.name)
            if self.name in row:
                self.curves.setdefault(row["seed"], []).append(row[self.name])
            self.speed = row.get(f"speed/{self._counted}_per_second", self.speed)

    @property
    def _counted(self) -> str:
        return "env_steps" if self.plan.collects else "updates"

    @property
    def unit(self) -> str:
        """What is counted: steps of environments, or updates where nothing is collected."""
        return "steps" if self.plan.collects else "updates"

    @property
    def step(self) -> int:
        return self.plan.steps_at(self.iteration)

    @property
    def seconds_left(self) -> float | None:
        """From what this session has done; unknown before it has done something."""
        done = self.iteration - self.first
        if not done:
            return None
        return (time.monotonic() - self.begun) / done * (self.plan.iterations - self.iteration)

    def range(self) -> tuple[float, float]:
        """Limits of the drawn curves: 0 and 1 for fractions, else the smallest and largest value."""
        seen = [v for curve in self.curves.values() for v in curve]
        if not seen or 0 <= min(seen) <= max(seen) <= 1:
            return 0.0, 1.0
        return min(seen), max(max(seen), min(seen) + 1e-9)


class Lines:
    """Plain lines, one for each evaluation: for files, pipes and batch systems."""

    def __init__(self, quiet: bool = False):
        self._quiet = quiet
        self._story: Story | None = None

    def begin(self, plan: Schedule, seeds: Sequence[int], iteration: int, rows: Sequence[Row]) -> None:
        self._story = Story(plan, seeds, iteration, rows)

    def say(self, text: str) -> None:
        if not self._quiet:
            print(text, flush=True)

    def warn(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def doing(self, what: str) -> None:
        if self._story is None:
            self.say(what)

    def advanced(self, iteration: int) -> None:
        assert self._story is not None
        self._story.iteration = iteration

    def evaluated(self, iteration: int, rows: Sequence[Row], summary: dict[str, Any]) -> None:
        story = self._story
        assert story is not None
        story.iteration = iteration
        story.add(rows)
        parts = [f"{human_count(story.step):>6} of {human_count(story.plan.total_steps)} {story.unit}"]
        if story.name in summary:
            s = summary[story.name]
            score = f"{story.name.removeprefix('eval/')} {s['iqm']:.3f}"
            parts.append(score + (f" [{s['low']:.3f}, {s['high']:.3f}]" if s["seeds"] > 1 else ""))
        if story.speed:
            parts.append(f"{human_count(story.speed)} {story.unit}/s")
        if story.seconds_left:
            parts.append(f"{human_time(story.seconds_left)} left")
        self.say("  ".join(parts))

    def close(self) -> None:
        self._story = None


class Screen:
    """A display that is drawn again in place: a bar, the speed, and a curve for each seed."""

    SHOWN = 12  # seeds; more would not fit on the screen

    def __init__(self, console: Console):
        from rich.live import Live

        self._console = console
        self._story: Story | None = None
        self._doing = ""
        self._live = Live(self, console=console, refresh_per_second=4, transient=False)

    def begin(self, plan: Schedule, seeds: Sequence[int], iteration: int, rows: Sequence[Row]) -> None:
        self._story = Story(plan, seeds, iteration, rows)
        self._live.start()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def warn(self, text: str) -> None:
        self._console.print(Text(text, style="bold red"))

    def doing(self, what: str) -> None:
        self._doing = what
        if self._story is None:
            self.say(what)

    def advanced(self, iteration: int) -> None:
        assert self._story is not None
        self._story.iteration, self._doing = iteration, ""

    def evaluated(self, iteration: int, rows: Sequence[Row], summary: dict[str, Any]) -> None:
        assert self._story is not None
        self.advanced(iteration)
        self._story.add(rows)

    def close(self) -> None:
        self._doing = ""
        self._live.stop()

    def __rich__(self) -> Group:
        story = self._story
        if story is None:
            return Group()
        plan = story.plan
        head = [f"{human_count(story.step)} of {human_count(plan.total_steps)} {story.unit}"]
        if story.speed:
            head.append(f"{human_count(story.speed)} {story.unit}/s")
        head.append(f"{human_time(time.monotonic() - story.begun)} gone")
        if story.seconds_left is not None:
            head.append(f"{human_time(story.seconds_left)} left")
        if self._doing:
            head.append(self._doing)
        bar = Table.grid()  # a bar alone would not end its line
        bar.add_row(ProgressBar(total=plan.iterations, completed=story.iteration, width=60))
        return Group(bar, Text("  ".join(head)), self._curves(story))

    def _curves(self, story: Story) -> Table:
        table = Table.grid(padding=(0, 2))
        low, high = story.range()
        for seed in story.seeds[: self.SHOWN]:
            curve = story.curves[seed]
            last = f"{curve[-1]:.3f}" if curve else "–"
            note = "diverged" if seed in story.broken else story.name.removeprefix("eval/")
            table.add_row(f"seed {seed}", Text(sparkline(curve, 40, low, high), style="green"), last, note)
        if len(story.seeds) > self.SHOWN:
            table.add_row(f"and {len(story.seeds) - self.SHOWN} more")
        return table


def make_progress(quiet: bool = False) -> Progress:
    """A live display on a terminal, plain lines elsewhere."""
    if quiet:
        return Lines(quiet=True)
    console = Console()
    return Screen(console) if console.is_terminal else Lines()


def memory_line(plan: Schedule, free: int | None) -> str:
    """What the run needs against what there is."""
    there = "the device does not tell what is free" if free is None else f"{human_bytes(free)} are free"
    return f"needs {human_bytes(plan.bytes_in_all)} ({human_bytes(plan.bytes_per_seed)} a seed); {there}"
