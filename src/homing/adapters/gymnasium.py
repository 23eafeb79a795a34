"""Gymnasium: importing this module registers every environment, `ant_u_maze` as `homing/AntUMaze-v0`.

`gymnasium.make` gives one environment, `gymnasium.make_vec` a batch that is stepped by one compiled program. Both are
goal environments: dict observations and `compute_reward`. Each episode has one goal: `goals.renew` is refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from homing.adapters.fixed_goals import make_with_fixed_goals
from homing.adapters.frames import RENDER_MODES, Frames, check_render_mode
from homing.adapters.numpy_env import GoalObs, NumpyEnv, Step
from homing.bounds import MAX_COUNT
from homing.envs import env_ids
from homing.envs.info import EnvInfo, gymnasium_id
from homing.errors import ConfigError, missing_package, shown
from homing.types import Key

try:
    import gymnasium as gym
    from gymnasium import spaces
    from gymnasium.vector.utils import batch_space
except ModuleNotFoundError as error:
    raise missing_package("homing.adapters.gymnasium", "gymnasium", error) from None

TIME_LIMIT = 1000


def register_envs() -> None:
    """Register all environments with Gymnasium; call it again after registering one of your own."""
    for env_id in env_ids():
        if gymnasium_id(env_id) not in gym.registry:
            gym.register(
                gymnasium_id(env_id),
                entry_point="homing.adapters.gymnasium:HomingEnv",
                vector_entry_point="homing.adapters.gymnasium:HomingVectorEnv",
                max_episode_steps=TIME_LIMIT,
                kwargs={"env_id": env_id},
            )


class HomingEnv(gym.Env[GoalObs, np.ndarray]):
    """One environment, without a time limit of its own: `gymnasium.make` adds it (`max_episode_steps`).

    reward:      "sparse" (1 within the threshold, else 0) or "dense"
    physics:     physics pipeline; None is the environment's default
    env_options: settings of body, task or arena by dotted name, `{"task.within": 0.3}`
    """

    # Gymnasium reads the modes from the class, the frame rate from the instance.
    metadata: dict[str, Any] = {"render_modes": list(RENDER_MODES), "render_fps": 20}  # noqa: RUF012

    def __init__(
        self,
        env_id: str,
        reward: str = "sparse",
        physics: str | None = None,
        env_options: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
    ):
        check_render_mode(render_mode, width, height)
        made = make_with_fixed_goals(env_id, 1, MAX_COUNT, physics, reward, env_options)
        self.goal_env = made.of_size(1, restarts=False)  # the caller resets
        self.metadata = self.metadata | {"render_fps": frame_rate(made.spec)}
        self.render_mode = render_mode
        self.observation_space, self.action_space = spaces_of(made.spec)
        self._env, self._frames = NumpyEnv(self.goal_env), Frames(self.goal_env, width, height)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[GoalObs, dict[str, Any]]:
        super().reset(seed=seed)
        obs, info = self._env.reset(next_key(self.np_random), options)
        self._frames.forget(np.arange(1))
        return _first(obs), _first(info)

    def step(self, action: np.ndarray) -> tuple[GoalObs, float, bool, bool, dict[str, Any]]:
        result = self._env.step(np.asarray(action, np.float32)[None])
        obs = result.last_obs() if result.ended[0] else result.obs
        ends = bool(result.terminated[0]), bool(result.truncated[0])
        return _first(obs), float(result.reward[0]), *ends, _first(result.info)

    def render(self) -> np.ndarray | None:  # type: ignore[override]
        if self.render_mode is None:
            gym.logger.warn("render() needs a render mode: gymnasium.make(..., render_mode='rgb_array')")
            return None
        return self._frames.draw(self._env.state)[0]

    def close(self) -> None:
        self._frames.close()

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Reward of a goal, or [...] of a batch; see `NumpyEnv.compute_reward`."""
        return _plain(self._env.compute_reward(achieved_goal, desired_goal, info))

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether the step of `info` ended the episode by a fall, the same for every goal."""
        return _plain(self._env.compute_ended("terminated", achieved_goal, info))

    def compute_truncated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        """Whether the step of `info` was cut off; a single environment leaves time limits to Gymnasium's wrapper."""
        return _plain(self._env.compute_ended("truncated", achieved_goal, info))


class HomingVectorEnv(gym.vector.VectorEnv[GoalObs, np.ndarray, np.ndarray]):
    """A batch of environments, stepped by one compiled program, with auto-reset in the same step.

    Where an episode ends, the observation is the first of the next episode; `info["final_obs"]` holds the last one of
    the old, `None` elsewhere, with the mask `info["_final_obs"]`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": list(RENDER_MODES),
        "render_fps": 20,
        "autoreset_mode": gym.vector.AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        env_id: str,
        num_envs: int = 1,
        max_episode_steps: int = TIME_LIMIT,
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
        self.num_envs, self.render_mode = self.goal_env.num_envs, render_mode
        self.metadata = self.metadata | {"render_fps": frame_rate(self.goal_env.spec)}
        self.single_observation_space, self.single_action_space = spaces_of(self.goal_env.spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._env, self._frames = NumpyEnv(self.goal_env), Frames(self.goal_env, width, height)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[GoalObs, dict[str, Any]]:
        if not (seed is None or isinstance(seed, (int, np.integer))):
            raise ConfigError(f"one seed serves the whole batch, not {shown(seed)}")
        super().reset(seed=None if seed is None else int(seed))
        obs, info = self._env.reset(next_key(self.np_random), options)
        self._frames.forget(np.arange(self.num_envs))
        return obs, self._masked(info, np.ones(self.num_envs, bool))

    def step(self, actions: np.ndarray) -> tuple[GoalObs, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        result = self._env.step(actions)
        info = self._masked(result.info, np.ones(self.num_envs, bool))
        if result.ended.any():
            info |= self._final(result)
            self._frames.forget(np.flatnonzero(result.ended))
        return result.obs, result.reward, result.terminated, result.truncated, info

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        if self.render_mode is None:
            gym.logger.warn("render() needs a render mode: gymnasium.make_vec(..., render_mode='rgb_array')")
            return None
        return self._frames.draw(self._env.state)

    def close_extras(self, **kwargs: Any) -> None:
        self._frames.close()

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """Rewards [...] of a batch of goals; see `NumpyEnv.compute_reward`."""
        return self._env.compute_reward(achieved_goal, desired_goal, info)

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """Which steps of `info` ended their episode by a fall, bool [...]."""
        return self._env.compute_ended("terminated", achieved_goal, info)

    def compute_truncated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """Which steps of `info` ended their episode by the time limit, bool [...]."""
        return self._env.compute_ended("truncated", achieved_goal, info)

    def _final(self, result: Step) -> dict[str, Any]:
        """Last observations and info of the episodes that ended, in Gymnasium's layout."""
        last, ended = result.last_obs(), result.ended
        final = np.full(self.num_envs, None, dtype=object)
        for n in np.flatnonzero(ended):
            final[n] = {name: rows[n] for name, rows in last.items()}
        final_info = self._masked(result.info, ended)
        return self._masked({"final_obs": final, "final_info": final_info}, ended)

    def _masked(self, info: Mapping[str, Any], mask: np.ndarray) -> dict[str, Any]:
        """Info with a mask beside each entry, as Gymnasium has it."""
        return {**info, **{f"_{name}": mask for name in info}}


class RecordEpisodeStatistics(gym.wrappers.vector.RecordEpisodeStatistics):
    """Gymnasium's wrapper for batches, which by itself leaves out the first step after a same-step auto-reset."""

    def step(self, actions: Any) -> Any:
        result = super().step(actions)
        ended = self.prev_dones
        self.episode_returns[ended], self.episode_lengths[ended] = 0, 0
        self.episode_start_times[ended] = time.perf_counter()
        self.prev_dones = np.zeros_like(ended)
        return result


def spaces_of(info: EnvInfo) -> tuple[spaces.Dict, spaces.Box]:
    """Spaces of observations and actions; physics sets no bound on what is observed."""
    anything = lambda size: spaces.Box(-np.inf, np.inf, (size,), np.float32)
    sizes = {"observation": info.state_dim, "achieved_goal": info.goal_dim, "desired_goal": info.goal_dim}
    boxes: dict[str, spaces.Space] = {name: anything(size) for name, size in sizes.items()}
    return spaces.Dict(boxes), spaces.Box(-1.0, 1.0, (info.action_dim,), np.float32)


def frame_rate(info: EnvInfo) -> int:
    """Frames per second of a video in real time."""
    return max(1, round(1.0 / info.dt))


def next_key(random: np.random.Generator) -> Key:
    """A key from Gymnasium's generator, so that a seed determines all later resets too."""
    return jax.random.key(int(random.integers(2**31)))


def _first(batch: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The entries of the only environment."""
    return {name: _plain(rows[0]) for name, rows in batch.items()}


def _plain(value: np.ndarray) -> Any:
    """A Python number of an array without axes."""
    return value.item() if np.ndim(value) == 0 else value


register_envs()
