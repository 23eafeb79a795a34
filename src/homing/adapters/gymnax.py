"""gymnax 1.x: environments for PureJaxRL-style agents, and for rejax, which unpacks five values of a step."""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp

from homing.adapters.single import SingleEnv
from homing.errors import HomingError, missing_package
from homing.types import Array, EnvState, Key

try:
    import jax
    from flax import struct
    from gymnax.environments import environment, spaces
except ModuleNotFoundError as error:
    raise missing_package("homing.adapters.gymnax", "gymnax", error) from None


@struct.dataclass
class GymnaxState(environment.EnvState):
    """gymnax's step counter and Homing's state of one environment."""

    env: EnvState


class HomingGymnax(environment.Environment):
    """One environment in gymnax's interface: `reset(key, params)`, `step(key, state, action, params)`.

    A step returns observation, state, reward, terminated, truncated and info, and resets an ended episode;
    `info["final_observation"]` is where the action led. The time limit is `params.max_steps_in_episode`.
    Further arguments are those of `SingleEnv`.
    """

    def __init__(self, env_id: str, max_steps_in_episode: int = 1000, **settings: Any):
        self.single = SingleEnv(env_id, None, **settings)
        self._params = environment.EnvParams(max_steps_in_episode=max_steps_in_episode)

    def __deepcopy__(self, memo: dict) -> HomingGymnax:
        return self

    @property
    def default_params(self) -> environment.EnvParams:
        return self._params

    def reset_env(self, key: Key, params: Any) -> tuple[Any, GymnaxState]:
        state = self.single.reset(key)
        return self.single.observation(state.obs), GymnaxState(time=state.steps, env=state)

    def step_env(
        self, key: Key, state: GymnaxState, action: Array, params: Any
    ) -> tuple[Any, GymnaxState, Array, Array, dict[str, Array]]:
        after = self.single.step(state.env, action)
        info = {"is_success": after.metrics["success"] > 0, "distance": after.metrics["distance"]}
        obs = self.single.observation(after.obs)
        return obs, GymnaxState(time=after.steps, env=after), after.reward, after.terminated, info

    def is_terminated(self, state: GymnaxState, params: Any) -> Array:
        return state.env.terminated

    @property
    def name(self) -> str:
        return f"homing/{self.single.spec.id}"

    @property
    def num_actions(self) -> int:
        return self.single.spec.action_dim

    def action_space(self, params: Any = None) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (self.num_actions,), jnp.float32)

    def observation_space(self, params: Any = None) -> spaces.Box | spaces.Dict:
        sizes = self.single.observation_sizes
        if isinstance(sizes, int):
            return _unbounded(sizes)
        return spaces.Dict({name: _unbounded(size) for name, size in sizes.items()})

    def state_space(self, params: Any = None) -> spaces.Space:
        raise HomingError(f"{self.name}: the simulator's state has no space; use observation_space")


class HomingRejax(HomingGymnax):
    """The same with the five values that rejax unpacks: observation, state, reward, done, info."""

    @functools.partial(jax.jit, static_argnames=("self",))
    def step(self, key: Key, state: GymnaxState, action: Array, params: Any = None) -> Any:
        obs, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, state, reward, terminated | truncated, info


def _unbounded(size: int) -> spaces.Box:
    return spaces.Box(-jnp.inf, jnp.inf, (size,), jnp.float32)
