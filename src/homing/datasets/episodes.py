"""A dataset in memory: the episodes of a policy, one after the other, and the checks that all of them pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from homing.errors import HomingError
from homing.runs.validation import COUNT, METRIC, OBJECT, TEXT, Check, fault, listed

MAX_ACTION = 1 + 1e-4  # rounding of another program; beyond it actions are in other units
NOTES: dict[str, Check] = {
    "env": TEXT,
    "goal_indices": listed(COUNT, "a list of indices"),
    "episode_length": COUNT,
    "physics": Check("a string or null", lambda v: v is None or isinstance(v, str)),
    "env_options": OBJECT,
    "policy": OBJECT,
    "noise": METRIC,
    "random_actions": METRIC,
    "seed": COUNT,
    "written_by": TEXT,
    "date": TEXT,
}
"""What the notes of a dataset may say of it; other entries are kept and not read."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Episodes of T steps as T + 1 rows each; R rows and E episodes in all.

    An episode's last row holds the observation that its last action led to; the action of that row has no meaning.
    """

    observations: np.ndarray
    """[R, state_dim] float32"""
    actions: np.ndarray
    """[R, action_dim] float32, in [−1, 1]"""
    ends: np.ndarray
    """[E] int64: the last row of each episode"""
    terminated: np.ndarray
    """[E] bool: the episode ended by its own rules (a fall), not by a time limit"""
    goals: np.ndarray | None = None
    """[R, goal_dim] float32: the commanded goals, where they were recorded"""
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How it was made, plain values: see NOTES"""
    sha256: str = ""
    """Digest of the file it was read from"""

    @property
    def rows(self) -> int:
        return len(self.observations)

    @property
    def episodes(self) -> int:
        return len(self.ends)

    @property
    def transitions(self) -> int:
        return self.rows - self.episodes

    @property
    def state_dim(self) -> int:
        return self.observations.shape[1]

    @property
    def action_dim(self) -> int:
        return self.actions.shape[1]

    @property
    def starts(self) -> np.ndarray:
        """[E] int64: the first row of each episode."""
        return np.concatenate([[0], self.ends[:-1] + 1])

    @property
    def lengths(self) -> np.ndarray:
        """[E] int64: transitions of each episode."""
        return self.ends - self.starts

    def first(self, episodes: int) -> Dataset:
        """The first episodes alone."""
        return self._part(slice(0, int(self.ends[episodes - 1]) + 1), slice(0, episodes), 0)

    def after(self, episodes: int) -> Dataset:
        """All but the first episodes."""
        begin = int(self.ends[episodes - 1]) + 1
        return self._part(slice(begin, None), slice(episodes, None), begin)

    def _part(self, rows: slice, episodes: slice, begin: int) -> Dataset:
        return dataclasses.replace(
            self,
            observations=self.observations[rows],
            actions=self.actions[rows],
            ends=self.ends[episodes] - begin,
            terminated=self.terminated[episodes],
            goals=None if self.goals is None else self.goals[rows],
            sha256="",
        )


def from_rows(
    observations: np.ndarray,
    actions: np.ndarray,
    terminals: np.ndarray,
    terminated: np.ndarray | None = None,
    goals: np.ndarray | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Dataset:
    """A dataset from arrays of R rows each, checked; HomingError says what is wrong with them.

    terminals:  1 at the last row of each episode
    terminated: 1 there where the episode ended by its own rules; none did if it is not given
    """
    _check_rows(observations, actions, terminals, terminated, goals)
    ends = np.flatnonzero(terminals)
    if not len(ends) or ends[-1] != len(terminals) - 1:
        raise HomingError("its last row is not the end of an episode (terminals must be 1 there)")
    dataset = Dataset(
        observations=np.asarray(observations, np.float32),
        actions=np.clip(np.asarray(actions, np.float32), -1, 1),
        ends=ends,
        terminated=np.zeros(len(ends), bool) if terminated is None else np.asarray(terminated)[ends] != 0,
        goals=None if goals is None else np.asarray(goals, np.float32),
        notes=dict(notes or {}),
    )
    if not dataset.lengths.min():
        row = int(dataset.ends[np.argmin(dataset.lengths)])
        raise HomingError(f"the episode that ends at row {row} has no transition, only an observation")
    _check_numbers(dataset, actions)
    return dataset


def _check_rows(
    observations: np.ndarray,
    actions: np.ndarray,
    terminals: np.ndarray,
    terminated: np.ndarray | None,
    goals: np.ndarray | None,
) -> None:
    """Refuse arrays whose axes are not those of a dataset."""
    tables = {"observations": observations, "actions": actions, "goals": goals}
    for name, array in tables.items():
        if array is not None and (array.ndim != 2 or 0 in array.shape):
            what = "images are not read" if array.ndim == 4 else "it must be [rows, size]"
            raise HomingError(f"{name} has shape {list(array.shape)}; {what}")
    for name, array in {"terminals": terminals, "terminated": terminated}.items():
        if array is not None and array.ndim != 1:
            raise HomingError(f"{name} has shape {list(array.shape)}; it must be [rows]")
        if array is not None and not np.isin(array, (0, 1)).all():
            raise HomingError(f"{name} must be 0 or 1 everywhere")
    for name, array in (tables | {"terminals": terminals, "terminated": terminated}).items():
        if array is not None and len(array) != len(observations):
            raise HomingError(f"{name} has {len(array)} rows, observations has {len(observations)}")


def _check_numbers(dataset: Dataset, given: np.ndarray) -> None:
    """Refuse NaN, infinities, and actions that are no fractions of their range; dummy actions do not count."""
    for name, array in {"observations": dataset.observations, "goals": dataset.goals}.items():
        if array is not None and not np.isfinite(array).all():
            row = int(np.argmin(np.isfinite(array).all(axis=1)))
            raise HomingError(f"{name} holds a NaN or an infinity in row {row}")
    largest = np.delete(np.abs(given).max(axis=1), dataset.ends)
    if not np.isfinite(largest).all():
        raise HomingError("actions holds a NaN or an infinity")
    if largest.max() > MAX_ACTION:
        raise HomingError(
            f"actions reach {largest.max():.4g} and must lie in [-1, 1]: divide them by their limits first"
        )
    np.nan_to_num(dataset.actions, copy=False)


def check_notes(notes: Any) -> dict[str, Any]:
    """The notes of a file, if every entry that is known has its type."""
    if not isinstance(notes, dict):
        raise HomingError("its notes are not an object")
    if wrong := fault(notes, NOTES):
        raise HomingError(f"its notes are wrong: {wrong}")
    return notes
