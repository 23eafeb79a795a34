"""One environment as pure functions of arrays without an environment axis, for JAX libraries that vmap themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from homing.adapters.fixed_goals import make_with_fixed_goals
from homing.bounds import MAX_COUNT
from homing.types import Array, EnvState, Key, Obs


class SingleEnv:
    """One environment without auto-reset: `reset(key)` and `step(state, action)`, to be jitted and vmapped.

    Its state is an `EnvState` without the environment axis and without what auto-reset needs.

    episode_length: time limit, reported as `state.truncated`; None for none
    reward:         "sparse" or "dense"
    physics:        physics pipeline; None is the environment's default
    env_options:    settings of body, task or arena by dotted name, `{"task.within": 0.3}`
    flat:           observations are one array, the state followed by the goal; else a dict as in Gymnasium
    """

    def __init__(
        self,
        env_id: str,
        episode_length: int | None = 1000,
        reward: str = "sparse",
        physics: str | None = None,
        env_options: Mapping[str, Any] | None = None,
        flat: bool = True,
    ):
        length = MAX_COUNT if episode_length is None else episode_length
        made = make_with_fixed_goals(env_id, 1, length, physics, reward, env_options)
        self.goal_env, self.spec, self.flat = made.of_size(1, restarts=False), made.spec, flat

    def __deepcopy__(self, memo: dict) -> SingleEnv:
        """The environment itself: it does not change, and its models need not be copied with a config."""
        return self

    def reset(self, key: Key) -> EnvState:
        """Start an episode."""
        return _without_axis(self.goal_env.reset(key))

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Take a step: action [action_dim] in [-1, 1]."""
        batch = jax.tree.map(lambda x: x[None], state).replace(clock=jnp.zeros((), jnp.int32))
        return _without_axis(self.goal_env.step(batch, action[None]))

    def observation(self, obs: Obs) -> Any:
        """What an agent observes: one array [state_dim + goal_dim], or a dict with the achieved goal."""
        if self.flat:
            return jnp.concatenate([obs.state, obs.goal], axis=-1)
        achieved = self.goal_env.achieved(obs.state)
        return {"observation": obs.state, "achieved_goal": achieved, "desired_goal": obs.goal}

    @property
    def observation_sizes(self) -> int | dict[str, int]:
        """Size of the observation, or of each of its entries."""
        state, goal = self.spec.state_dim, self.spec.goal_dim
        if self.flat:
            return state + goal
        return {"observation": state, "achieved_goal": goal, "desired_goal": goal}


def _without_axis(state: EnvState) -> EnvState:
    kept = state.replace(pool=None, used=None, key=None, clock=None)
    return jax.tree.map(lambda x: x[0], kept)
