"""Datasets of the probe `walk`, made by a plain loop: no program is compiled for them."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from homing.datasets import Dataset, write_dataset
from homing.datasets.episodes import from_rows


def walk_episode(random: np.random.Generator, length: int, noise: float) -> list[np.ndarray]:
    """A point that goes to its goal, with noise on its actions: rows in the order of `from_rows`."""
    state, goal = random.uniform(-1, 1, 2), random.uniform(-0.9, 0.9, 2)
    states, actions = [state], []
    for _ in range(length):
        action = np.clip((goal - state) / 0.15 + noise * random.normal(size=2), -1, 1)
        state = np.clip(state + 0.15 * action, -1, 1)
        states.append(state)
        actions.append(action)
    at_end = np.zeros(length + 1)
    at_end[-1] = 1
    return [
        np.asarray(states, np.float32),
        np.asarray([*actions, np.zeros(2)], np.float32),
        at_end,
        np.zeros(length + 1),
        np.repeat(goal[None].astype(np.float32), length + 1, axis=0),
    ]


def walk_dataset(
    episodes: int = 60, length: int = 25, noise: float = 0.3, seed: int = 0, ragged: bool = False
) -> Dataset:
    """Episodes of the walk; `ragged` ones have different lengths, and every third terminates."""
    random = np.random.default_rng(seed)
    lengths = [int(random.integers(1, length + 1)) if ragged else length for _ in range(episodes)]
    parts = [walk_episode(random, n, noise) for n in lengths]
    if ragged:
        for rows in parts[::3]:
            rows[3] = rows[2]
    notes = {"env": "walk", "goal_indices": [0, 1], "episode_length": length}
    return from_rows(*(np.concatenate(column) for column in zip(*parts, strict=True)), notes=notes)


@cache
def walk_file(episodes: int = 60, ragged: bool = False) -> Path:
    """The file of such a dataset, written once."""
    return write_dataset(Path(tempfile.mkdtemp()) / "walk.npz", walk_dataset(episodes, ragged=ragged))
