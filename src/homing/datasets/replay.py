"""A dataset as the replay buffer that agents learn from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.data import replay
from homing.data.replay import BufferShape, Stored
from homing.datasets.episodes import Dataset
from homing.envs.base import GoalEnv
from homing.errors import ConfigError
from homing.types import Obs, Segment


def check_dataset(dataset: Dataset, env: GoalEnv, agent: Any) -> None:
    """Refuse a dataset that was not made in such an environment, or lacks the goals that an agent learns from."""
    sizes = {
        "state_dim": (dataset.state_dim, env.spec.state_dim),
        "action_dim": (dataset.action_dim, env.spec.action_dim),
    }
    if dataset.goals is not None:
        sizes["goal_dim"] = (dataset.goals.shape[1], env.spec.goal_dim)
    made_in = f" was made in {dataset.notes['env']} and" if "env" in dataset.notes else ""
    for name, (theirs, ours) in sizes.items():
        if theirs != ours:
            raise ConfigError(
                f"the dataset{made_in} does not fit {env.spec.id}: {name} is {theirs} there and {ours} here; "
                "`homing data info FILE` describes it"
            )
    indices = dataset.notes.get("goal_indices")
    if indices is not None and tuple(indices) != tuple(env.spec.goal_indices):
        raise ConfigError(
            f"the dataset{made_in} does not fit {env.spec.id}: goals are the entries {indices} of a state there "
            f"and {list(env.spec.goal_indices)} here"
        )
    _check_goals(dataset, agent)


def _check_goals(dataset: Dataset, agent: Any) -> None:
    relabel = getattr(agent, "relabel", None)
    commanded = relabel is not None and (relabel.sampler == "commanded" or relabel.ratio < 1)
    if commanded and dataset.goals is None:
        raise ConfigError(
            "this agent learns from commanded goals and the dataset has none; use hindsight for all of them "
            "(--her --her-ratio 1), or crl or gcbc"
        )


def stored(dataset: Dataset, env: GoalEnv, shape: BufferShape) -> Stored:
    """All transitions as those of one environment, in the order of the file; episodes may differ in length."""
    segment = transitions(dataset, env)
    padding = shape.slots * shape.segment_length - dataset.transitions

    def padded(x: Any) -> np.ndarray:
        x = np.asarray(x)[:, None]
        return np.concatenate([x, np.repeat(x[-1:], padding, axis=0)])

    return replay.recorded(jax.tree.map(padded, segment), shape, dataset.transitions)


def transitions(dataset: Dataset, env: GoalEnv) -> Segment:
    """The transitions [M, ...] of a dataset, with rewards for the commanded goals.

    Where a dataset has no commanded goals, an episode's goal is what it achieves in the end.
    """
    here = np.delete(np.arange(dataset.rows), dataset.ends)
    achieved = dataset.observations[:, list(env.spec.goal_indices)]
    goals = dataset.goals
    if goals is None:
        goals = np.repeat(achieved[dataset.ends], dataset.lengths + 1, axis=0)
    last = np.isin(here + 1, dataset.ends, assume_unique=True)
    falls = np.zeros(len(here), np.float32)
    falls[last] = dataset.terminated
    return Segment(
        obs=Obs(state=dataset.observations[here], goal=goals[here]),  # type: ignore[arg-type]
        action=dataset.actions[here],  # type: ignore[arg-type]
        achieved_goal=achieved[here + 1],  # type: ignore[arg-type]
        reward=env.reward(jnp.asarray(achieved[here + 1]), jnp.asarray(goals[here])),
        discount=1 - falls,  # type: ignore[arg-type]
        last=last,  # type: ignore[arg-type]
    )
