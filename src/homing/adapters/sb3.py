"""Stable-Baselines3: a `VecEnv` that steps a whole batch at once, for SAC, TD3 and `HerReplayBuffer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from homing.adapters.fixed_goals import make_with_fixed_goals
from homing.adapters.frames import Frames, check_render_mode
from homing.adapters.gymnasium import next_key, spaces_of
from homing.adapters.numpy_env import GoalObs, NumpyEnv
from homing.errors import ConfigError, missing_package

try:
    from gymnasium.utils import seeding
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise missing_package("homing.adapters.sb3", "sb3", error) from None


class HomingVecEnv(VecEnv):
    """A batch of environments in the interface of Stable-Baselines3.

    Where an episode ends, the observation is the first of the next one, and `infos[n]["terminal_observation"]` is the
    last of the old; `infos[n]["TimeLimit.truncated"]` says whether the time limit ended it.

    max_episode_steps: time limit of an episode
    reward:            "sparse" or "dense"; HER with the dense one needs `copy_info_dict=True`
    physics:           physics pipeline; None is the environment's default
    env_options:       settings of body, task or arena by dotted name, `{"task.within": 0.3}`; goals.renew is refused
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        max_episode_steps: int = 1000,
        reward: str = "sparse",
        physics: str | None = None,
        env_options: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        width: int = 240,
        height: int = 240,
    ):
        check_render_mode(render_mode, width, height)
        self.goal_env = make_with_fixed_goals(
            env_id, num_envs, max_episode_steps, physics, reward, env_options
        )
        self.render_mode = render_mode
        self._env, self._frames = NumpyEnv(self.goal_env), Frames(self.goal_env, width, height)
        self._random = seeding.np_random()[0]
        self._actions: np.ndarray | None = None
        super().__init__(self.goal_env.num_envs, *spaces_of(self.goal_env.spec))

    def reset(self) -> GoalObs:
        if self._seeds[0] is not None:  # one seed serves the whole batch: the first
            self._random = seeding.np_random(self._seeds[0])[0]
        obs, info = self._env.reset(next_key(self._random), self._goal_option())
        self.reset_infos = self._split(info)
        self._reset_seeds()
        self._reset_options()
        self._frames.forget(np.arange(self.num_envs))
        return obs

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[GoalObs, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        result = self._env.step(self._actions)
        infos, ended = self._split(result.info), result.ended
        if ended.any():
            last = result.last_obs()
            for n in np.flatnonzero(ended):
                infos[n]["terminal_observation"] = {name: rows[n] for name, rows in last.items()}
                infos[n]["TimeLimit.truncated"] = bool(result.truncated[n])
            self._frames.forget(np.flatnonzero(ended))
        return result.obs, result.reward, ended, infos

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """Rewards [...] of a batch of goals; see `NumpyEnv.compute_reward`."""
        return self._env.compute_reward(achieved_goal, desired_goal, info)

    def get_images(self) -> Sequence[np.ndarray]:
        return self._frames.draw(self._env.state)

    def close(self) -> None:
        self._frames.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The attribute once for each environment: all share it."""
        return [getattr(self, attr_name)] * self._count(indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set the attribute of all environments."""
        if self._count(indices) != self.num_envs:
            raise ConfigError(f"the environments of a batch share {attr_name}; set it for all of them")
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the batch; its result once for each environment asked for."""
        return [getattr(self, method_name)(*args, **kwargs)] * self._count(indices)

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * self._count(indices)

    def _count(self, indices: Any) -> int:
        return len(list(self._get_indices(indices)))

    def _split(self, info: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """One info for each environment, with Python numbers."""
        kept = {name: rows for name, rows in info.items() if name not in ("terminated", "truncated")}
        columns = [rows.tolist() if rows.ndim == 1 else list(rows) for rows in kept.values()]
        return [dict(zip(kept, values, strict=True)) for values in zip(*columns, strict=True)]

    def _goal_option(self) -> dict[str, Any]:
        """The options of `set_options`, given for all environments or for each."""
        goals = [options.get("goal") for options in self._options]
        extra = {
            name: value for options in self._options for name, value in options.items() if name != "goal"
        }
        if all(goal is None for goal in goals):
            return extra
        if any(goal is None for goal in goals):
            raise ConfigError("give the option goal for all environments or for none")
        return {**extra, "goal": np.asarray(goals, np.float32)}
