"""OGBench: one environment as its agents and its evaluation expect it.

There a goal is a whole observation (`info["goal"]` of `reset`), an episode ends where the goal is reached, and
`info["success"]` says whether it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from homing.adapters.gymnasium import TIME_LIMIT, HomingEnv, gym, register_envs, spaces_of
from homing.datasets import Dataset
from homing.envs.info import gymnasium_id
from homing.envs.registry import canonical, resolve
from homing.envs.renewal import without_renewal
from homing.errors import ConfigError

RESET_OPTIONS = ("task_id", "render_goal")
"""What OGBench's evaluation says at a reset; our goals are drawn, so there are no numbered tasks."""


class OGBenchEnv(gym.Wrapper):
    """The environment of a dataset, with flat observations and whole observations as goals.

    A commanded goal sets only the entries `goal_indices` of an observation. The others are taken from the observation
    in the data whose goal entries are nearest, so that a goal looks like what an agent saw in training.

    data:   episodes of this environment, as `read_dataset` returns them
    env_id: another environment than the one that the data names
    kwargs: those of `gymnasium.make`; `physics` and `env_options` are by default the data's in its own environment
    """

    def __init__(self, data: Dataset, env_id: str | None = None, **kwargs: Any):
        env_id = env_id or data.notes.get("env")
        if env_id is None:
            raise ConfigError("the dataset names no environment: give one as env_id")
        env_id = resolve(env_id)
        register_envs()  # also what was registered since the import
        super().__init__(gym.make(gymnasium_id(env_id), **{**_settings(data.notes, env_id), **kwargs}))
        made = self.unwrapped
        assert isinstance(made, HomingEnv)
        spec = made.goal_env.spec
        sizes, expected = (data.state_dim, data.action_dim), (spec.state_dim, spec.action_dim)
        if sizes != expected:
            raise ConfigError(
                f"states and actions of the data have sizes {sizes}, those of {env_id} {expected}; "
                "`homing data info` names the environments that fit"
            )
        boxes, self.action_space = spaces_of(spec)
        self.observation_space = boxes["observation"]
        self._observations, self._goal_indices = data.observations, list(spec.goal_indices)
        self._achieved = data.observations[:, self._goal_indices]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        ours = {name: value for name, value in (options or {}).items() if name not in RESET_OPTIONS}
        obs, info = self.env.reset(seed=seed, options=ours)
        return obs["observation"], info | {"goal": self.goal_observation(obs["desired_goal"])}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        success = bool(info["is_success"])
        info = info | {"success": float(success)}
        return obs["observation"], float(reward), terminated or success, truncated, info

    def goal_observation(self, goal: np.ndarray) -> np.ndarray:
        """A whole observation [state_dim] that has reached `goal` [goal_dim]."""
        nearest = np.argmin(np.square(self._achieved - goal).sum(axis=-1))
        whole = self._observations[nearest].copy()
        whole[self._goal_indices] = goal
        return whole


def _settings(notes: Mapping[str, Any], env_id: str) -> dict[str, Any]:
    """Arguments of `gymnasium.make` by what a dataset notes of its environment.

    Its episodes have one goal each, also where its policy was trained with new goals inside of them.
    """
    settings = {"max_episode_steps": notes.get("episode_length", TIME_LIMIT)}
    if canonical(notes.get("env", "")) != env_id:
        return settings
    if notes.get("physics"):
        settings["physics"] = notes["physics"]
    if options := without_renewal(notes.get("env_options") or {}):
        settings["env_options"] = options
    return settings
