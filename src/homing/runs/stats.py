"""Statistics over seeds and tasks: IQM, bootstrap, performance profiles, probability of improvement.

Scores are values [S] of the seeds of one task, or a mapping from tasks to such values. Resampling draws seeds
anew within every task (stratified), and its random numbers are always the same ones.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

RESAMPLES = 2000
CONFIDENCE = 0.95
FEW_SEEDS = 5  # intervals of fewer seeds are too narrow

Scores = Mapping[str, Any] | Sequence[float] | np.ndarray


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A statistic, its bootstrap interval, and how many values it is of; one seed alone has no interval."""

    value: float
    low: float
    high: float
    count: int


@dataclasses.dataclass(frozen=True)
class Band:
    """A statistic at each of P points, its interval there, and how many seeds were measured, all [P]."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    count: np.ndarray


def iqm(values: Any, axis: int | None = None) -> Any:
    """Interquartile mean: the mean of the middle half, of all values alike or along an axis.

    A quarter of the count, rounded down, is cut at either end, as is usual in the field: up to three values
    are averaged as they are.
    """
    values = np.asarray(values, np.float64)
    if axis is None:
        return float(iqm(values.ravel(), axis=0))
    count = values.shape[axis]
    cut = count // 4
    ranked = np.partition(values, (cut, count - cut - 1), axis=axis)
    return np.moveaxis(ranked, axis, 0)[cut : count - cut].mean(axis=0)


STATISTICS: dict[str, Callable[..., Any]] = {
    "iqm": iqm,
    "mean": np.mean,
    "median": np.median,
    # How far scores in [0, 1] stay below 1 on average; lower is better.
    "optimality_gap": lambda values, axis=None: np.mean(1.0 - np.minimum(values, 1.0), axis=axis),
}


def by_task(scores: Scores) -> dict[str, np.ndarray]:
    """Finite values [S] of every task that has any, ranked: results do not depend on the order of seeds."""
    tasks = scores if isinstance(scores, Mapping) else {"": scores}
    arrays = {task: np.asarray(values, np.float64).ravel() for task, values in tasks.items()}
    finite = {task: np.sort(values[np.isfinite(values)]) for task, values in arrays.items()}
    return {task: values for task, values in finite.items() if values.size}


def _picks(counts: Sequence[int], resamples: int, seed: int = 0) -> list[np.ndarray]:
    """For each task indices [R, S] of seeds, drawn with replacement."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, count, (resamples, count)) for count in counts]


def _limits(draws: np.ndarray, confidence: float, axis: int = 0) -> tuple[np.ndarray, np.ndarray]:
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=axis)
    return low, high


def estimate(
    scores: Scores, statistic: str = "iqm", *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate:
    """A statistic of all values together, with its percentile interval by stratified resampling."""
    tasks = list(by_task(scores).values())
    if not tasks:
        raise ValueError("no finite score to estimate from")
    measure = STATISTICS[statistic]
    together = np.concatenate(tasks)
    value = float(measure(together))
    if max(len(values) for values in tasks) < 2:
        return Estimate(value, value, value, together.size)
    picks = _picks([len(values) for values in tasks], resamples)
    draws = np.concatenate([values[pick] for values, pick in zip(tasks, picks, strict=True)], axis=1)
    low, high = _limits(measure(draws, axis=1), confidence)
    return Estimate(value, float(low), float(high), together.size)


def band(curves: Any, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES) -> Band:
    """IQM and its interval at each point of curves [S, P]; NaN marks what was not measured.

    The same draws serve all points, so the band does not tremble from point to point. A point that one seed
    alone has measured gets no interval (NaN), one that none has measured no value.
    """
    curves = np.asarray(curves, np.float64)
    measured = np.isfinite(curves)
    value, low, high = (np.full(curves.shape[1], np.nan) for _ in range(3))
    patterns, which = np.unique(measured, axis=1, return_inverse=True)
    for k, seeds in enumerate(patterns.T):
        points = np.flatnonzero(which.ravel() == k)
        if seeds.any():
            ranked = np.sort(curves[np.ix_(np.flatnonzero(seeds), points)], axis=0)
            value[points] = iqm(ranked, axis=0)
            if len(ranked) > 1:
                draws = ranked.T @ _rank_weights(len(ranked), resamples)
                low[points], high[points] = _limits(draws, confidence, axis=1)
    return Band(value, low, high, measured.sum(axis=0))


@functools.cache
def _rank_weights(count: int, resamples: int) -> np.ndarray:
    """[S, R]: the weight of each of S ranked values in the IQM of each draw.

    Drawing seeds is drawing their ranks, and a draw sorted is its ranks repeated: of the rank that fills the
    places m+1 to n, those between the cuts count.
    """
    (pick,) = _picks([count], resamples)
    cut = int(0.25 * count)
    filled = np.clip(np.cumsum(_times_drawn(pick), axis=1), cut, count - cut)
    return np.diff(filled, axis=1, prepend=cut).T / (count - 2 * cut)


def performance_profile(
    scores: Scores,
    thresholds: Sequence[float] | np.ndarray,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
) -> Band:
    """Share of runs that score more than each threshold [P]; tasks count alike, whatever their seeds."""
    tasks = list(by_task(scores).values())
    if not tasks:
        raise ValueError("no finite score to make a profile of")
    thresholds = np.asarray(thresholds, np.float64)
    above = [(values[:, None] > thresholds).astype(np.float64) for values in tasks]
    value = np.mean([a.mean(axis=0) for a in above], axis=0)
    count = np.full(thresholds.size, sum(len(a) for a in above))
    if max(len(a) for a in above) < 2:
        empty = np.full(thresholds.size, np.nan)
        return Band(value, empty, empty, count)
    # The mean of resampled seeds is a product with how often each was drawn.
    draws = np.zeros((resamples, thresholds.size))
    for a, pick in zip(above, _picks([len(a) for a in above], resamples), strict=True):
        draws += _times_drawn(pick) @ a / (len(a) * len(above))
    return Band(value, *_limits(draws, confidence), count)


def _times_drawn(pick: np.ndarray) -> np.ndarray:
    """How often each of S seeds is in each of R draws [R, S]."""
    return (pick[:, :, None] == np.arange(pick.shape[1])).sum(axis=1).astype(np.float64)


def probability_of_improvement(
    ours: Scores, theirs: Scores, *, confidence: float = CONFIDENCE, resamples: int = RESAMPLES
) -> Estimate | None:
    """How likely a run of ours scores more than a run of theirs on the same task; ties count half.

    The mean over the tasks that both have; None where they have none in common. `count` is that of the tasks.
    """
    first, second = by_task(ours), by_task(theirs)
    shared = [task for task in first if task in second]
    if not shared:
        return None
    wins = [_wins(first[task], second[task]) for task in shared]
    value = float(np.mean([w.mean() for w in wins]))
    if max(max(w.shape) for w in wins) < 2:
        return Estimate(value, value, value, len(shared))
    rows = _picks([len(w) for w in wins], resamples, seed=0)
    columns = _picks([w.shape[1] for w in wins], resamples, seed=1)
    draws = np.zeros(resamples)
    for w, row, column in zip(wins, rows, columns, strict=True):
        draws += ((_times_drawn(row) @ w) * _times_drawn(column)).sum(axis=1) / (w.size * len(wins))
    low, high = _limits(draws, confidence)
    return Estimate(value, float(low), float(high), len(shared))


def _wins(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """[n, m]: 1 where ours is above theirs, ½ where they are equal."""
    return (ours[:, None] > theirs) + 0.5 * (ours[:, None] == theirs)


def aggregate(metrics: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """For each metric with per-seed values [S]: `iqm`, `low` and `high` (95 % bootstrap), of finite seeds.

    A metric that is finite in no seed is left out.
    """
    arrays = {name: np.asarray(values, np.float64).ravel() for name, values in metrics.items()}
    arrays = {name: values for name, values in arrays.items() if np.isfinite(values).any()}
    if not arrays:
        return {}
    seeds = max(values.size for values in arrays.values())
    padded = [np.pad(values, (0, seeds - values.size), constant_values=np.nan) for values in arrays.values()]
    summary = band(np.stack(padded, axis=1))  # all at once: a run asks for it at every evaluation
    low, high = (np.where(np.isnan(limit), summary.value, limit) for limit in (summary.low, summary.high))
    return {
        name: {
            "iqm": float(summary.value[i]),
            "low": float(low[i]),
            "high": float(high[i]),
            "seeds": int(summary.count[i]),
        }
        for i, name in enumerate(arrays)
    }


def interval_caveat(seeds: int) -> str | None:
    """What to say of the interval of few seeds; None for one seed, which has none, and for enough of them.

    A bootstrap interval lies within the range of its n values, which holds the median with probability 1 − 2^(1−n).
    """
    if not 1 < seeds < FEW_SEEDS:
        return None
    most = 100 * (1 - 2.0 ** (1 - seeds))
    return f"the interval of {seeds} seeds is too narrow: it covers at most {most:.0f} %, not 95 %"
