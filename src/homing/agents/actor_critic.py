"""What SAC and TD3 share: their common settings, twin critics and target networks."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from homing import bounds
from homing.networks import MLP, NetConfig
from homing.networks.stack import zero_padded
from homing.types import Array, Key, Relabel

# Strategies of hindsight experience replay, and the goal samplers that carry them out.
HER_STRATEGIES = {"final": "final", "future": "uniform_future", "episode": "episode"}

RELU = NetConfig(activation="relu")


@dataclasses.dataclass(frozen=True)
class ActorCriticConfig:
    """Settings that SAC and TD3 have in common; the defaults are the paper's."""

    gamma: float = 0.99
    """Discount of rewards."""
    her: bool = False
    """Hindsight experience replay: relabel transitions with goals that their episode achieved."""
    her_strategy: Literal["final", "future", "episode"] = "final"
    """Which achieved goal: that of the episode's end, of a later step, or of any step of the episode."""
    her_ratio: float = 0.5
    """Fraction of transitions that HER relabels; the others keep the commanded goal."""
    random_goal_ratio: float = 0.0
    """With HER, fraction of transitions that take the goal of another transition of the batch instead."""
    chunk: int = 1
    """Actions that the policy plans at once and executes open-loop; targets are then n-step returns."""
    critic_net: NetConfig = RELU
    """Each of the two critics."""
    actor_net: NetConfig = RELU
    """The policy."""
    critic_lr: float = 3e-4
    """Learning rate of the critics."""
    actor_lr: float = 3e-4
    """Learning rate of the policy."""
    tau: float = 0.005
    """Polyak factor: how far target networks move towards the online ones in an update."""
    normalise_observations: bool = False
    """Normalise states and goals by their running mean and standard deviation."""

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def relabel(self) -> Relabel:
        """How goals of a batch are drawn."""
        if not self.her:
            return Relabel("commanded", gamma=self.gamma)
        return Relabel(
            HER_STRATEGIES[self.her_strategy], self.her_ratio, self.random_goal_ratio, gamma=self.gamma
        )


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
    """Entries side by side, padded with zeros to a multiple of eight, which tensor cores load at once."""
    joined = jnp.concatenate(parts, axis=-1)
    return jnp.pad(joined, [(0, 0)] * (joined.ndim - 1) + [(0, -joined.shape[-1] % 8)])


def init_params(module: MLP, key: Key, inputs: int) -> Any:
    """Fresh parameters for `inputs` joined entries; the scale of weights is that of the entries without padding."""
    entries = jnp.zeros((1, inputs), jnp.float32)
    shapes = jax.eval_shape(module.init, key, join(entries))["params"]
    params = module.init(key, entries)["params"]
    return jax.tree.map(lambda x, to: zero_padded(x, to.shape), params, shapes)


def forward(module: MLP, params: Any, x: Array) -> Array:
    """The module's output for joined inputs [..., D]."""
    outputs: Any = module.apply({"params": params}, x)
    return outputs


def stacked(*params: Any) -> Any:
    """Networks [M, ...] and more of them along one axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *params)


def td_loss(q: Array, target: Array, weight: Array) -> Array:
    """½ mean of the squared errors of both critics [2, B]; transitions of weight 0 have no target and count as 0."""
    return 0.5 * jnp.mean(weight * jnp.square(q - target))


def polyak(slow: Any, fast: Any, tau: float) -> Any:
    """(1 − τ) slow + τ fast."""
    return jax.tree.map(lambda old, new: old + tau * (new - old), slow, fast)
