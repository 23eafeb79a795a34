"""What SAC and TD3 share: their common settings, twin critics, and slow copies of networks."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from homing.errors import ConfigError, unknown
from homing.networks import MLP, NetConfig
from homing.types import Array, Key

# Strategies of hindsight experience replay, and the goal samplers that carry them out.
HER_STRATEGIES = {"final": "final", "future": "uniform_future", "episode": "episode"}

RELU = NetConfig(activation="relu")


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig:
    """Settings that SAC and TD3 have in common; the defaults are the paper's."""

    gamma: float = 0.99
    """Discount of rewards."""
    her: bool = False
    """Hindsight: a share of the goals a batch is about are goals that were achieved."""
    her_strategy: Literal["final", "future", "episode"] = "final"
    """Achieved when: at the episode's end, at any later step of it, or at any step of it."""
    her_share: float = 0.5
    """Share of the rows that hindsight gives another goal."""
    her_others: float = 0.0
    """Share of the rows that take another row's goal, so that a fall counts for goals it was on no way to."""
    critic_net: NetConfig = RELU
    """Each of the two critics."""
    actor_net: NetConfig = RELU
    """The policy."""
    critic_lr: float = 3e-4
    actor_lr: float = 3e-4
    tau: float = 0.005
    """How far target networks move towards the learned ones at a time."""
    normalise_observations: bool = False
    """Shift and scale states and goals by their running means and deviations."""

    def __post_init__(self) -> None:
        if self.her_strategy not in HER_STRATEGIES:
            raise unknown("HER strategy", self.her_strategy, HER_STRATEGIES)
        if not 0 <= self.gamma < 1:
            raise ConfigError(f"gamma {self.gamma} must lie between 0 and 1, for instance 0.99")
        for name in ("her_share", "her_others"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} {getattr(self, name)} is a share: choose it from 0 to 1")
        if not 0 < self.tau <= 1:
            raise ConfigError(f"tau {self.tau} must be more than 0 and at most 1, for instance 0.005")

    @property
    def goal_sampler(self) -> str:
        """Which of `homing.data.relabel.GOAL_SAMPLERS` the settings ask for."""
        return HER_STRATEGIES[self.her_strategy] if self.her else "commanded"

    @property
    def goal_share(self) -> float:
        """Share of the rows whose goal is the sampler's."""
        return self.her_share if self.her else 1.0

    @property
    def goal_others(self) -> float:
        """Share of the rows that take another row's goal."""
        return self.her_others if self.her else 0.0


@dataclasses.dataclass(frozen=True)
class Critics:
    """Networks Q(s, a, g) of one shape, run as batched products; leaves of their parameters are [M, ...]."""

    config: NetConfig

    @property
    def module(self) -> MLP:
        return MLP(self.config, 1)

    def init(self, key: Key, inputs: int, count: int = 2) -> Any:
        one = lambda k: init_params(self.module, k, inputs)
        return jax.vmap(one)(jax.random.split(key, count))

    def __call__(self, params: Any, x: Array) -> Array:
        """Values [M, ...] of joined inputs [..., D], the same for all networks."""
        return jax.vmap(self._one, in_axes=(0, None))(params, x)

    def each(self, params: Any, x: Array) -> Array:
        """Values [M, ...] where every network has inputs of its own [M, ..., D]."""
        return jax.vmap(self._one)(params, x)

    def _one(self, params: Any, x: Array) -> Array:
        return forward(self.module, params, x)[..., 0]


def join(*parts: Array) -> Array:
    """Entries side by side, filled up with zeros to a multiple of eight: what tensor cores read in one go."""
    joined = jnp.concatenate(parts, axis=-1)
    return jnp.pad(joined, [(0, 0)] * (joined.ndim - 1) + [(0, -joined.shape[-1] % 8)])


def init_params(module: MLP, key: Key, inputs: int) -> Any:
    """Fresh parameters for `inputs` joined entries."""
    return module.init(key, join(jnp.zeros((1, inputs), jnp.float32)))["params"]


def forward(module: MLP, params: Any, x: Array) -> Array:
    """The module's output for joined inputs [..., D]."""
    outputs: Any = module.apply({"params": params}, x)
    return outputs


def stacked(*params: Any) -> Any:
    """Networks [M, ...] and more of them along one axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *params)


def td_loss(q: Array, target: Array, weight: Array) -> Array:
    """½ mean of the squared errors of both critics [2, B]; rows of weight 0 have no target and count as 0."""
    return 0.5 * jnp.mean(weight * jnp.square(q - target))


def polyak(slow: Any, fast: Any, tau: float) -> Any:
    """(1 − τ) slow + τ fast."""
    return jax.tree.map(lambda old, new: old + tau * (new - old), slow, fast)
