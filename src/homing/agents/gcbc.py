"""Goal-conditioned behaviour cloning: maximum likelihood of a dataset's actions, for goals from their own future."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from homing import bounds
from homing.agents.actor_critic import forward, init_params, join
from homing.agents.base import OffPolicyAgent, ReplayView, SpaceSpec
from homing.agents.gaussian import LOG_STD_MAX, LOG_STD_MIN
from homing.networks import MLP, Fit, NetConfig, adam
from homing.types import Array, Key, Metrics, Obs, Relabel, TransitionIndex, UpdateContext

GELU = NetConfig(width=512, depth=3, activation="gelu")


@dataclasses.dataclass(frozen=True)
class GCBCConfig:
    """Settings of goal-conditioned behaviour cloning."""

    gamma: float = 0.99
    """Discount: goals lie k steps ahead with probability ∝ γ^k."""
    actor_net: NetConfig = GELU
    """The policy."""
    actor_lr: float = 3e-4
    """Learning rate of the policy."""
    normalise_observations: bool = False
    """Normalise states and goals by the dataset's mean and standard deviation."""

    def __post_init__(self) -> None:
        bounds.check(self)


class GCBCBatch(struct.PyTreeNode):
    """States, goals that their episodes achieve later, and the actions taken."""

    obs: Obs  # [B, ...]
    action: Array  # [B, action_dim]


class GCBC(OffPolicyAgent[Fit, GCBCBatch]):
    """π(a | s, g) = N(tanh μ(s, g), σ²), with one σ for each action dimension; the greedy action is its mean.

    The mean is squashed, not the sample: a density over tanh(x) has no finite maximum at actions of ±1, which
    datasets are full of.
    """

    needs_data = True
    uses_rewards = False

    def __init__(self, config: GCBCConfig, spec: SpaceSpec):
        self.config, self.spec = config, spec
        self.relabel = Relabel("future", gamma=config.gamma)
        self.actor = MLP(config.actor_net, spec.action_dim)

    def init(self, key: Key) -> Fit:
        actor = init_params(self.actor, key, self.spec.state_dim + self.spec.goal_dim)
        params = {"actor": actor, "log_std": jnp.zeros((self.spec.action_dim,), jnp.float32)}
        return Fit.start(params)

    def act(self, learner: Fit, obs: Obs, key: Key, *, explore: bool) -> Array:
        mean, log_std = self.policy(learner.params, obs)
        if not explore:
            return mean
        return jnp.clip(mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype), -1, 1)

    def policy(self, params: Any, obs: Obs) -> tuple[Array, Array]:
        """Mean [..., action_dim] and log standard deviation [action_dim] of the actions."""
        mean = jnp.tanh(forward(self.actor, params["actor"], join(obs.state, obs.goal)))
        return mean, jnp.clip(params["log_std"], LOG_STD_MIN, LOG_STD_MAX)

    def sample(self, replay: ReplayView, index: TransitionIndex, key: Key) -> GCBCBatch:
        obs = Obs(replay.states(index), self.goals(replay, index, key))
        return GCBCBatch(obs=obs, action=replay.actions(index))

    def update(
        self, learner: Fit, batch: GCBCBatch, draws: Any, context: UpdateContext
    ) -> tuple[Fit, Metrics]:
        rate = jnp.asarray(context.lr_scale * self.config.actor_lr, jnp.float32)
        return adam(learner, lambda params: self._loss(params, batch), dict.fromkeys(learner.params, rate))

    def _loss(self, params: Any, batch: GCBCBatch) -> tuple[Array, Metrics]:
        """−mean log π(a | s, g)."""
        mean, log_std = self.policy(params, batch.obs)
        error = batch.action - mean
        log_prob = -0.5 * jnp.square(error * jnp.exp(-log_std)) - log_std
        loss = -jnp.mean(jnp.sum(log_prob - 0.5 * jnp.log(2 * jnp.pi), axis=-1))
        return loss, {"actor_loss": loss, "action_error": jnp.sqrt(jnp.mean(jnp.square(error)))}
