"""Soft actor-critic: twin critics of reward and entropy, and a policy that maximises their minimum."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.agents.actor_critic import (
    ActorCriticConfig,
    Critics,
    forward,
    init_params,
    join,
    polyak,
    stacked,
    td_loss,
)
from homing.agents.base import OffPolicyAgent, SpaceSpec
from homing.agents.gaussian import softplus_gaussian, squash, squashed_sample, temperature_loss
from homing.networks import MLP, Fit, adam
from homing.types import Array, Batch, Key, Metrics, Obs, UpdateContext


@dataclasses.dataclass(frozen=True)
class SACConfig(ActorCriticConfig):
    """Settings of soft actor-critic."""

    alpha_lr: float = 3e-4
    """Learning rate of the temperature α."""
    entropy_target: float = -0.5
    """Target entropy of the policy for each action dimension."""


class SACLearner(struct.PyTreeNode):
    """All that SAC learns."""

    fit: Fit  # params: actor, critic [2, ...], log_alpha
    target: Any  # target critics [2, ...]


class SAC(OffPolicyAgent[SACLearner, Batch]):
    """Critics, policy and temperature step together, from one batch and the old parameters.

    One gradient of the sum of their losses is the gradient of each: no loss reaches another's parameters.
    """

    def __init__(self, config: SACConfig, spec: SpaceSpec):
        self.config, self.spec, self.chunk, self.gamma = config, spec, config.chunk, config.gamma
        self.relabel = config.relabel
        self.action_size = config.chunk * spec.action_dim
        self.target_entropy = config.entropy_target * self.action_size
        self.actor = MLP(config.actor_net, 2 * self.action_size)
        self.critics = Critics(config.critic_net)

    def init(self, key: Key) -> SACLearner:
        k_actor, k_critic = jax.random.split(key)
        seen = self.spec.state_dim + self.spec.goal_dim
        critic = self.critics.init(k_critic, seen + self.action_size)
        params = {
            "actor": init_params(self.actor, k_actor, seen),
            "critic": critic,
            "log_alpha": jnp.zeros((), jnp.float32),
        }
        # A copy: what is donated to a program must not appear in it twice.
        target = jax.tree.map(jnp.copy, critic)
        return SACLearner(fit=Fit.start(params), target=target)

    def policy(self, params: Any, obs: Obs) -> tuple[Array, Array]:
        """Mean and log standard deviation of the Gaussian under the tanh."""
        return softplus_gaussian(forward(self.actor, params["actor"], join(obs.state, obs.goal)))

    def act(self, learner: SACLearner, obs: Obs, key: Key, *, explore: bool) -> Array:
        mean, log_std = self.policy(learner.fit.params, obs)
        return squashed_sample(mean, log_std, key)[0] if explore else jnp.tanh(mean)

    def value(self, learner: SACLearner, obs: Obs, action: Array) -> Array:
        """min Q(s, a, g) [...]: discounted rewards to come, and entropy."""
        q = self.critics(learner.fit.params["critic"], join(obs.state, obs.goal, action))
        return jnp.min(q, axis=0)

    def draw(self, key: Key, batch_size: int) -> Array:
        """Noise [2, B, chunk · action_dim] of the actions in one update: now and next."""
        return jax.random.normal(key, (2, batch_size, self.action_size), jnp.float32)

    def update(
        self, learner: SACLearner, batch: Batch, draws: Array, context: UpdateContext
    ) -> tuple[SACLearner, Metrics]:
        config, scale = self.config, context.lr_scale
        rates = {"actor": scale * config.actor_lr, "critic": scale * config.critic_lr}
        rates |= {"log_alpha": scale * config.alpha_lr}
        rates = jax.tree.map(lambda rate: jnp.asarray(rate, jnp.float32), rates)
        loss = lambda params: self._loss(params, learner.target, batch, draws)
        fit, metrics = adam(learner.fit, loss, rates)
        return SACLearner(fit=fit, target=polyak(learner.target, fit.params["critic"], config.tau)), metrics

    def _loss(self, params: Any, target: Any, batch: Batch, noise: Array) -> tuple[Array, Metrics]:
        # One pass of the policy for both times, one of all critics that stand still: few, large kernels.
        both = jax.tree.map(lambda *parts: jnp.stack(parts), batch.obs, batch.next_obs)
        action, log_prob = squash(*self.policy(params, both), noise)
        after, log_prob_after = lax.stop_gradient((action[1], log_prob[1]))
        now = join(batch.obs.state, batch.obs.goal, action[0])
        next = join(batch.next_obs.state, batch.next_obs.goal, after)
        still = stacked(lax.stop_gradient(params["critic"]), target)
        q_now, q_next = jnp.split(self.critics.each(still, jnp.stack([now, now, next, next])), 2)
        critic_loss, metrics = self._critic_loss(params, batch, jnp.min(q_next, axis=0), log_prob_after)
        actor_loss, actor_metrics = self._actor_loss(params, jnp.min(q_now, axis=0), log_prob[0])
        alpha_loss, alpha_metrics = temperature_loss(params["log_alpha"], log_prob[0], self.target_entropy)
        return critic_loss + actor_loss + alpha_loss, metrics | actor_metrics | alpha_metrics

    def _critic_loss(
        self, params: Any, batch: Batch, q_next: Array, log_prob_next: Array
    ) -> tuple[Array, Metrics]:
        """Both critics towards r + γ (min Q′(s′, a′) − α log π(a′)), a′ ~ π; nothing follows a fall."""
        alpha = lax.stop_gradient(jnp.exp(params["log_alpha"]))
        target = batch.reward + self.gamma * batch.discount * (q_next - alpha * log_prob_next)
        q = self.critics(params["critic"], join(batch.obs.state, batch.obs.goal, batch.action))
        loss = td_loss(q, target, batch.weight)
        return loss, {"critic_loss": loss, "q": jnp.mean(q), "reward": jnp.mean(batch.reward)}

    def _actor_loss(self, params: Any, q: Array, log_prob: Array) -> tuple[Array, Metrics]:
        """mean(α log π − min Q(s, a)), a ~ π."""
        loss = jnp.mean(lax.stop_gradient(jnp.exp(params["log_alpha"])) * log_prob - q)
        return loss, {"actor_loss": loss, "entropy": -jnp.mean(log_prob)}
