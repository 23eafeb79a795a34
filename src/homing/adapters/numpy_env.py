"""A batch of environments for NumPy code: dict observations, compiled inside, and rewards of any goal."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile.cache import keep_compiled
from homing.envs.base import GoalEnv
from homing.envs.goal_space import GoalSpace, goal_space
from homing.errors import ConfigError, HomingError, shown, unknown
from homing.types import Array, EnvState, Key, Obs
from homing.viz.render import aimed

GoalObs = dict[str, np.ndarray]
Info = dict[str, np.ndarray]

# What the dense reward of another goal needs of the step; see `NumpyEnv.compute_reward`.
BEFORE, REST = "previous_achieved_goal", "goal_independent_reward"


class Step(NamedTuple):
    """Results of a step, all with the environment axis [N] first."""

    obs: GoalObs
    """What the next action responds to: after the end of an episode the first observation of the next one."""
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: Info
    """Of the step just taken, also where it ended an episode."""
    last_obs: Callable[[], GoalObs]
    """Where the action led; copied from the device on request."""

    @property
    def ended(self) -> np.ndarray:
        return self.terminated | self.truncated


class NumpyEnv:
    """A `GoalEnv` with its state inside and NumPy arrays at its border."""

    def __init__(self, env: GoalEnv):
        keep_compiled()
        self.env = env
        self._reset = jax.jit(env.reset)
        self._start = jax.jit(self._started)
        self._step = jax.jit(self._stepped)
        self._reward = jax.jit(env.reward)
        self._dense = None if env.shaping is None else jax.jit(self._dense_reward)
        self._state: EnvState | None = None

    @functools.cached_property
    def space(self) -> GoalSpace:
        """Where goals can be."""
        return goal_space(self.env)

    @property
    def state(self) -> EnvState:
        """The current state on the device."""
        if self._state is None:
            raise HomingError(f"{self.env.spec.id}: call reset() before step() or render()")
        return self._state

    def reset(self, key: Key, options: Mapping[str, Any] | None = None) -> tuple[GoalObs, Info]:
        """Start an episode in every environment; the option `goal` sets the first goal.

        A goal in a wall or out of reach is moved to the nearest place that can be reached, with a warning.
        """
        goal = self._goal(options or {})
        self._state = aimed(self._reset(key), goal)
        return copied(self._start(self._state))

    def step(self, action: Any) -> Step:
        """Step every environment: action [N, action_dim], clipped to [-1, 1]."""
        action = np.asarray(action, np.float32)
        expected = (self.env.num_envs, self.env.spec.action_dim)
        if action.shape != expected:
            raise ConfigError(f"{self.env.spec.id}: actions have shape {action.shape}; expected {expected}")
        self._state, results, last = self._step(self.state, action)
        return Step(*copied(results), last_obs=lambda: copied(last))

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> np.ndarray:
        """Rewards [...] of goals [..., goal_dim], as `step` would have given them.

        Sparse rewards need no `info`. The dense one also depends on the step: `info` is that of the step, or a
        sequence of them for a batch.
        """
        achieved, desired = np.broadcast_arrays(self._goals(achieved_goal), self._goals(desired_goal))
        if self._dense is None:
            return np.array(self._reward(achieved, desired))
        return np.array(self._dense(achieved, desired, *self._step_terms(info, achieved.shape[:-1])))

    def compute_ended(self, name: str, achieved_goal: Any, info: Any) -> np.ndarray:
        """Whether steps [...] `terminated` or `truncated` their episodes by their info: no goal has a part in it."""
        shape = self._goals(achieved_goal).shape[:-1]
        flags = [one.get(name, False) for one in _infos(info)]
        return np.asarray(flags, bool).reshape(shape) if flags else np.zeros(shape, bool)

    # -- compiled ---------------------------------------------------------------------------------------

    def _started(self, state: EnvState) -> tuple[dict[str, Array], dict[str, Array]]:
        """First observations and their info."""
        distance = self.env.distance(state.achieved_goal, state.obs.goal)
        reached = self.env.reward(state.achieved_goal, state.obs.goal) > 0
        return self._face(state.obs), {"is_success": reached, "distance": distance}

    def _stepped(self, state: EnvState, action: Array) -> tuple[EnvState, Any, dict[str, Array]]:
        after = self.env.step(state, action)
        info = {name: value for name, value in after.metrics.items() if name != "success"}
        info["is_success"] = after.metrics["success"] > 0
        info |= {"terminated": after.terminated, "truncated": after.truncated}
        if self.env.shaping is not None:
            info[BEFORE] = self.env.achieved(state.obs.state)
            info[REST] = after.reward - self.env.shaping(state.obs.state, after.achieved_goal, state.obs.goal)
        results = self._face(after.obs), after.reward, after.terminated, after.truncated, info
        return after, results, self._face(after.next_obs)

    def _face(self, obs: Obs) -> dict[str, Array]:
        achieved = self.env.achieved(obs.state)
        return {"observation": obs.state, "achieved_goal": achieved, "desired_goal": obs.goal}

    def _dense_reward(self, achieved: Array, desired: Array, before: Array, rest: Array) -> Array:
        # The goal-dependent part reads nothing of the state but its achieved goal.
        spec, shaping = self.env.spec, self.env.shaping
        assert shaping is not None
        state = jnp.zeros((*before.shape[:-1], spec.state_dim), jnp.float32)
        return rest + shaping(state.at[..., np.asarray(spec.goal_indices)].set(before), achieved, desired)

    # -- checks -----------------------------------------------------------------------------------------

    def _goals(self, goal: Any) -> np.ndarray:
        """Goals as float32 [..., goal_dim]."""
        spec = self.env.spec
        try:
            goal = np.asarray(goal, np.float32)
        except (TypeError, ValueError):
            raise ConfigError(f"a goal of {spec.id} is an array of numbers, not {shown(goal)}") from None
        if goal.shape[-1:] != (spec.goal_dim,):
            raise ConfigError(f"a goal of {spec.id} has {spec.goal_dim} entries, not shape {goal.shape}")
        return goal

    def _goal(self, options: Mapping[str, Any]) -> np.ndarray | None:
        """The goal [goal_dim] or [N, goal_dim] of a reset's options."""
        for name in options:
            if name != "goal":
                raise unknown("reset option", name, ("goal",))
        if options.get("goal") is None:
            return None
        goal, spec = self._goals(options["goal"]), self.env.spec
        if goal.shape not in ((spec.goal_dim,), (self.env.num_envs, spec.goal_dim)):
            raise ConfigError(
                f"{spec.id}: goals have shape {goal.shape}; give one for all environments or each"
            )
        if not np.isfinite(goal).all():
            raise ConfigError(f"a goal of {spec.id} consists of finite numbers, not {shown(goal.tolist())}")
        return self.space.commanded(goal)

    def _step_terms(self, info: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        """The previous achieved goals and goal-independent rewards of steps' info."""
        infos = _infos(info)
        if not infos or not all(BEFORE in one and REST in one for one in infos):
            raise ConfigError(
                f"the dense reward depends on the step: compute_reward needs its info ({BEFORE}, {REST}); with "
                "HerReplayBuffer of Stable-Baselines3 pass copy_info_dict=True, or use the sparse reward"
            )
        before, rest = (np.asarray([one[name] for one in infos], np.float32) for name in (BEFORE, REST))
        if rest.size != math.prod(shape):
            raise ConfigError(f"compute_reward has info of {rest.size} steps for {math.prod(shape)} goals")
        return before.reshape(*shape, self.env.spec.goal_dim), rest.reshape(shape)


def _infos(info: Any) -> Sequence[Mapping[str, Any]]:
    """One info, of arrays for a batch, or a sequence of them."""
    return [info] if isinstance(info, Mapping) else list(info)


def copied(tree: Any) -> Any:
    """Writable NumPy copies: a view would be read-only, which torch warns of."""
    return jax.tree.map(np.array, jax.device_get(tree))
