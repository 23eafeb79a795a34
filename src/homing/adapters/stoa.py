"""stoa (the package stoa-env), the interface of Stoix: environments that its wrappers vmap and reset."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from homing.adapters.single import SingleEnv
from homing.errors import HomingError, missing_package
from homing.types import Array, EnvState, Key

try:
    from stoa.env_adapters.base import AdapterStateWithKey
    from stoa.env_types import StepType, TimeStep
    from stoa.environment import Environment
    from stoa.spaces import ArraySpace, BoundedArraySpace, DictSpace, Space
except ModuleNotFoundError as error:
    raise missing_package("homing.adapters.stoa", "stoa", error) from None


class HomingStoa(Environment):
    """One environment in stoa's interface, without auto-reset: wrap it in `AutoResetWrapper` and `VmapWrapper`.

    `episode_length` is the time limit, which ends a step sequence as TRUNCATED with discount 1; a fall ends it as
    TERMINATED with discount 0. Further arguments are those of `SingleEnv`.
    """

    def __init__(self, env_id: str, episode_length: int = 1000, **settings: Any):
        self.single = SingleEnv(env_id, episode_length, **settings)

    def reset(self, rng_key: Key, env_params: Any = None) -> tuple[AdapterStateWithKey, TimeStep]:
        k_reset, k_next = jax.random.split(rng_key)
        state = self.single.reset(k_reset)
        step = self._time_step(state, StepType.FIRST)
        return AdapterStateWithKey(base_env_state=state, rng_key=k_next), step

    def step(
        self, state: AdapterStateWithKey, action: Array, env_params: Any = None
    ) -> tuple[AdapterStateWithKey, TimeStep]:
        after = self.single.step(state.base_env_state, action)
        kind = jnp.where(after.truncated, StepType.TRUNCATED, StepType.MID)
        kind = jnp.where(after.terminated, StepType.TERMINATED, kind)
        return AdapterStateWithKey(base_env_state=after, rng_key=state.rng_key), self._time_step(after, kind)

    def observation_space(self, env_params: Any = None) -> Space:
        sizes = self.single.observation_sizes
        if isinstance(sizes, int):
            return ArraySpace((sizes,), jnp.float32, "observation")
        return DictSpace({name: ArraySpace((size,), jnp.float32, name) for name, size in sizes.items()})

    def action_space(self, env_params: Any = None) -> BoundedArraySpace:
        return BoundedArraySpace((self.single.spec.action_dim,), jnp.float32, -1.0, 1.0, "action")

    def state_space(self, env_params: Any = None) -> Space:
        raise HomingError("the simulator's state has no space; use observation_space")

    def _time_step(self, state: EnvState, kind: Array) -> TimeStep:
        return TimeStep(
            step_type=kind,
            reward=state.reward,
            discount=1.0 - state.terminated.astype(jnp.float32),
            observation=self.single.observation(state.obs),
            extras={"is_success": state.metrics["success"] > 0, "distance": state.metrics["distance"]},
        )
