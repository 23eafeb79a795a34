"""Contrastive RL: a critic that tells which goals a state and action lead to, and a policy that climbs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct

from homing.agents.base import SpaceSpec
from homing.agents.parts import Actor, squashed_sample
from homing.errors import ConfigError, unknown
from homing.nets import MLP, Fit, Net, NetConfig, Scalar
from homing.objectives import contrastive
from homing.objectives.energies import ENERGIES
from homing.types import Array, Batch, Key, Metrics, Obs


@dataclasses.dataclass(frozen=True)
class CRLConfig:
    """Settings of contrastive RL; the defaults are the paper's."""

    objective: str = "infonce_symmetric"
    """One of homing.objectives.contrastive.OBJECTIVES."""
    energy: str = "l2"
    """One of homing.objectives.energies.ENERGIES."""
    logsumexp_weight: float = 0.1
    """Weight of the penalty on squared row logsumexps."""
    gamma: float = 0.99
    """Discount: future goals lie k steps ahead with probability ∝ γ^k."""
    representation_dim: int = 64
    """Size of φ(s, a) and ψ(g)."""
    critic_net: NetConfig = dataclasses.field(default_factory=NetConfig)
    """Both encoders."""
    actor_net: NetConfig = dataclasses.field(default_factory=NetConfig)
    """The policy."""
    critic_lr: float = 3e-4
    actor_lr: float = 6e-4
    alpha_lr: float = 3e-4
    entropy_target: float = -0.5
    """Wanted entropy of the policy for each action dimension."""
    random_goals: float = 0.0
    """Share of the policy's training goals that come from another row instead of the row's own future."""

    def __post_init__(self) -> None:
        if self.objective not in contrastive.OBJECTIVES:
            raise unknown("objective", self.objective, contrastive.OBJECTIVES)
        if self.energy not in ENERGIES:
            raise unknown("energy", self.energy, ENERGIES)
        if not 0 < self.gamma < 1:
            raise ConfigError(
                f"gamma {self.gamma} must lie between 0 and 1, both excluded, for instance 0.99"
            )
        if not 0 <= self.random_goals <= 1:
            raise ConfigError(f"random_goals {self.random_goals} is a share: choose it from 0 to 1")


class CRLLearner(struct.PyTreeNode):
    """All that contrastive RL learns."""

    critic: Fit
    actor: Fit
    alpha: Fit  # log of the entropy's weight


class Encoders(nn.Module):
    """φ(s, a) and ψ(g)."""

    config: NetConfig
    outputs: int

    def setup(self) -> None:
        self.phi = MLP(self.config, self.outputs)
        self.psi = MLP(self.config, self.outputs)

    def __call__(self, state: Array, action: Array, goal: Array) -> tuple[Array, Array]:
        return self.phi(jnp.concatenate([state, action], axis=-1)), self.psi(goal)


class CRL:
    """Critic, policy and entropy weight take their steps from the same batch and the same old parameters.

    The paper steps the critic before the policy; with the old critic neither step waits for the other.
    """

    goal_sampler = "future"

    def __init__(self, config: CRLConfig, spec: SpaceSpec):
        self.config = config
        self.spec = spec
        self.gamma = config.gamma
        self.energy = ENERGIES[config.energy]
        self.objective = contrastive.OBJECTIVES[config.objective]
        self.target_entropy = config.entropy_target * spec.action_dim
        self.critic = Net(
            Encoders(config.critic_net, config.representation_dim), optax.adam(config.critic_lr)
        )
        self.actor = Net(Actor(config.actor_net, spec.action_dim), optax.adam(config.actor_lr))
        self.alpha = Net(Scalar(), optax.adam(config.alpha_lr))

    def init(self, key: Key) -> CRLLearner:
        k_critic, k_actor, k_alpha = jax.random.split(key, 3)
        state = jnp.zeros((1, self.spec.state_dim), jnp.float32)
        action = jnp.zeros((1, self.spec.action_dim), jnp.float32)
        goal = jnp.zeros((1, self.spec.goal_dim), jnp.float32)
        return CRLLearner(
            critic=self.critic.init(k_critic, state, action, goal),
            actor=self.actor.init(k_actor, Obs(state=state, goal=goal)),
            alpha=self.alpha.init(k_alpha),
        )

    def act(self, learner: CRLLearner, obs: Obs, key: Key, *, explore: bool) -> Array:
        mean, log_std = self.actor(learner.actor.params, obs)
        return squashed_sample(mean, log_std, key)[0] if explore else jnp.tanh(mean)

    def value(self, learner: CRLLearner, obs: Obs, action: Array) -> Array:
        """f(s, a, g) [...]: larger where the action leads to the goal sooner."""
        return self.energy.rows(*self.critic(learner.critic.params, obs.state, action, obs.goal))

    def update(
        self, learner: CRLLearner, batch: Batch, key: Key, updates: Array
    ) -> tuple[CRLLearner, Metrics]:
        del updates
        critic, critic_metrics = self.critic.descend(learner.critic, self._critic_loss(batch))
        actor, actor_metrics = self.actor.descend(learner.actor, self._actor_loss(learner, batch, key))
        alpha, alpha_metrics = self.alpha.descend(learner.alpha, self._alpha_loss(actor_metrics["entropy"]))
        metrics = critic_metrics | actor_metrics | alpha_metrics
        return CRLLearner(critic=critic, actor=actor, alpha=alpha), metrics

    def _critic_loss(self, batch: Batch) -> Callable[[Any], tuple[Array, Metrics]]:
        def loss(params: Any) -> tuple[Array, Metrics]:
            logits = self.energy.pairs(*self.critic(params, batch.obs.state, batch.action, batch.obs.goal))
            penalty = contrastive.logsumexp_penalty(logits)
            value = self.objective(logits) + self.config.logsumexp_weight * penalty
            return value, {"critic_loss": value} | contrastive.describe(logits)

        return loss

    def _actor_loss(
        self, learner: CRLLearner, batch: Batch, key: Key
    ) -> Callable[[Any], tuple[Array, Metrics]]:
        k_action, k_goal = jax.random.split(key)
        obs = batch.obs.replace(goal=self._mixed_goals(batch.obs.goal, k_goal))
        alpha = jnp.exp(self.alpha(learner.alpha.params))

        def loss(params: Any) -> tuple[Array, Metrics]:
            mean, log_std = self.actor(params, obs)
            action, log_prob = squashed_sample(mean, log_std, k_action)
            value = jnp.mean(alpha * log_prob - self.value(learner, obs, action))
            return value, {"actor_loss": value, "entropy": -jnp.mean(log_prob)}

        return loss

    def _mixed_goals(self, goal: Array, key: Key) -> Array:
        """Goals [B, goal_dim], a share of `random_goals` of them taken from the row before."""
        if self.config.random_goals == 0:
            return goal
        swap = jax.random.bernoulli(key, self.config.random_goals, goal.shape[:1])
        return jnp.where(swap[:, None], jnp.roll(goal, 1, axis=0), goal)

    def _alpha_loss(self, entropy: Array) -> Callable[[Any], tuple[Array, Metrics]]:
        def loss(params: Any) -> tuple[Array, Metrics]:
            alpha = jnp.exp(self.alpha(params))
            value = alpha * (entropy - self.target_entropy)
            return value, {"alpha_loss": value, "alpha": alpha}

        return loss
