"""How a run is cut into pieces, and how their metrics add up to one row for each seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from homing.config.plan import Schedule
from homing.runs.folder import Row

PIECES = 8  # of an epoch, after each of which a run can stop, save and show how far it is


def evaluations_up_to(plan: Schedule, iteration: int) -> list[int]:
    """Iterations with an evaluation, up to and with this one."""
    return [stop for epoch in range(plan.epochs) if (stop := plan.epoch_bounds(epoch)[1]) <= iteration]


def pieces(plan: Schedule, after: int = 0) -> Iterator[tuple[int, int, bool]]:
    """(start, stop, whether an evaluation follows) from iteration `after` on.

    They depend on the plan alone, so that a resumed run sums its metrics in the same order. Where the plan was
    changed since, `after` may lie inside of a piece: the rest of it comes first.
    """
    for epoch in range(plan.epochs):
        start, stop = plan.epoch_bounds(epoch)
        size = max(1, math.ceil((stop - start) / PIECES))
        for first in range(start, stop, size):
            last = min(first + size, stop)
            if last > after:
                yield max(first, after), last, last == stop


@dataclasses.dataclass
class Tally:
    """Training metrics since the last evaluation; plain numbers, since a checkpoint keeps it as JSON."""

    finite: list[bool]
    learned: int = 0
    seconds: float = 0.0
    steps: int = 0
    sums: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    def add(self, metrics: dict[str, np.ndarray], steps: int, learned: int, seconds: float) -> None:
        """Metrics [S] are means over the `learned` iterations of a piece: those past the prefill."""
        finite = metrics.pop("finite")
        self.finite = [bool(a and b) for a, b in zip(self.finite, finite, strict=True)]
        self.steps += steps
        self.learned += learned
        self.seconds += seconds
        if learned:
            for name, values in metrics.items():
                old = self.sums.get(name, [0.0] * len(values))
                self.sums[name] = [a + float(b) * learned for a, b in zip(old, values, strict=True)]

    def means(self) -> dict[str, list[float]]:
        return {name: [v / self.learned for v in values] for name, values in self.sums.items()}


def columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Measured values by name, of the seeds that have them."""
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if "/" in name and row.get("finite", True):
                values.setdefault(name, []).append(value)
    return values
