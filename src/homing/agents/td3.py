"""TD3: twin critics with smoothed targets, and a deterministic policy with delayed updates."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.agents.actor_critic import ActorCriticConfig, Critics, forward, init_params, join, polyak, td_loss
from homing.agents.base import OffPolicyAgent, SpaceSpec
from homing.networks import MLP, Fit, adam
from homing.types import Array, Batch, Key, Metrics, Obs, UpdateContext


@dataclasses.dataclass(frozen=True)
class TD3Config(ActorCriticConfig):
    """Settings of TD3."""

    delay: int = 2
    """Critic updates for each update of the policy and the target networks."""
    exploration_noise: float = 0.4
    """Standard deviation of the noise on actions while collecting."""
    target_noise: float = 0.2
    """Standard deviation of the noise on target actions (target policy smoothing)."""
    noise_clip: float = 0.5
    """Both noises are clipped to ± this."""
    action_cost: float = 0.0
    """Weight of the mean squared action in the policy's loss; it keeps actions from saturating."""


class TD3Learner(struct.PyTreeNode):
    """All that TD3 learns; targets move only by `polyak`, from where they were."""

    critic: Fit  # [2, ...]
    actor: Fit
    target_critic: Any  # [2, ...]
    target_actor: Any


class TD3(OffPolicyAgent[TD3Learner, Batch]):
    """The critics step at every update; the policy and all targets at every `delay`-th."""

    def __init__(self, config: TD3Config, spec: SpaceSpec):
        self.config, self.spec, self.chunk, self.gamma = config, spec, config.chunk, config.gamma
        self.relabel = config.relabel
        self.action_size = config.chunk * spec.action_dim
        self.actor = MLP(config.actor_net, self.action_size)
        self.critics = Critics(config.critic_net)

    def init(self, key: Key) -> TD3Learner:
        k_actor, k_critic = jax.random.split(key)
        seen = self.spec.state_dim + self.spec.goal_dim
        actor = init_params(self.actor, k_actor, seen)
        critic = self.critics.init(k_critic, seen + self.action_size)
        # Copies: what is donated to a program must not appear in it twice.
        return TD3Learner(
            critic=Fit.start(critic),
            actor=Fit.start(actor),
            target_critic=jax.tree.map(jnp.copy, critic),
            target_actor=jax.tree.map(jnp.copy, actor),
        )

    def policy(self, params: Any, obs: Obs) -> Array:
        return jnp.tanh(forward(self.actor, params, join(obs.state, obs.goal)))

    def act(self, learner: TD3Learner, obs: Obs, key: Key, *, explore: bool) -> Array:
        action = self.policy(learner.actor.params, obs)
        if not explore:
            return action
        noise = jax.random.normal(key, action.shape, action.dtype)
        return self._noisy(action, self.config.exploration_noise * noise)

    def value(self, learner: TD3Learner, obs: Obs, action: Array) -> Array:
        """min Q(s, a, g) [...]: discounted rewards to come."""
        return jnp.min(self.critics(learner.critic.params, join(obs.state, obs.goal, action)), axis=0)

    def draw(self, key: Key, batch_size: int) -> Array:
        """Noise [B, chunk · action_dim] of the target actions in one update."""
        return jax.random.normal(key, (batch_size, self.action_size), jnp.float32)

    def update(
        self, learner: TD3Learner, batch: Batch, draws: Array, context: UpdateContext
    ) -> tuple[TD3Learner, Metrics]:
        target = self._target(learner, batch, draws)
        loss = lambda params: self._critic_loss(params, batch, target)
        rate = jnp.asarray(context.lr_scale * self.config.critic_lr, jnp.float32)
        critic, metrics = adam(learner.critic, loss, rate)
        learner = learner.replace(critic=critic)
        metrics |= self._actor_loss(learner.actor.params, critic.params, batch.obs)[1]
        # The count is the same for all seeds, so this stays a branch where they run side by side.
        due = (context.updates + 1) % self.config.delay == 0
        return lax.cond(
            due, lambda: self._follow(learner, batch.obs, context.lr_scale), lambda: learner
        ), metrics

    def _target(self, learner: TD3Learner, batch: Batch, noise: Array) -> Array:
        """r + γ min Q′(s′, π′(s′) + noise) [B]; nothing follows a fall."""
        action = self.policy(learner.target_actor, batch.next_obs)
        action = self._noisy(action, self.config.target_noise * noise)
        x = join(batch.next_obs.state, batch.next_obs.goal, action)
        q = jnp.min(self.critics(learner.target_critic, x), axis=0)
        return batch.reward + self.gamma * batch.discount * q

    def _noisy(self, action: Array, noise: Array) -> Array:
        clip = self.config.noise_clip
        return jnp.clip(action + jnp.clip(noise, -clip, clip), -1, 1)

    def _critic_loss(self, params: Any, batch: Batch, target: Array) -> tuple[Array, Metrics]:
        q = self.critics(params, join(batch.obs.state, batch.obs.goal, batch.action))
        loss = td_loss(q, target, batch.weight)
        return loss, {"critic_loss": loss, "q": jnp.mean(q), "reward": jnp.mean(batch.reward)}

    def _follow(self, learner: TD3Learner, obs: Obs, lr_scale: Array | float) -> TD3Learner:
        """One step of the policy up the first critic, and of all targets towards what was learned."""
        loss = lambda params: self._actor_loss(params, learner.critic.params, obs)
        actor, _ = adam(learner.actor, loss, jnp.asarray(lr_scale * self.config.actor_lr, jnp.float32))
        return learner.replace(
            actor=actor,
            target_critic=polyak(learner.target_critic, learner.critic.params, self.config.tau),
            target_actor=polyak(learner.target_actor, actor.params, self.config.tau),
        )

    def _actor_loss(self, params: Any, critic: Any, obs: Obs) -> tuple[Array, Metrics]:
        """−mean Q₁(s, π(s)), plus the weighted action cost."""
        action = self.policy(params, obs)
        first = jax.tree.map(lambda leaf: leaf[:1], critic)
        loss = -jnp.mean(self.critics(first, join(obs.state, obs.goal, action)))
        loss += self.config.action_cost * jnp.mean(jnp.square(action))
        return loss, {"actor_loss": loss}
