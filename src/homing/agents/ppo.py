"""PPO: clipped policy gradients with generalised advantage estimation."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jax import lax

from homing import bounds
from homing.agents.actor_critic import forward, init_params, join
from homing.agents.base import OnPolicyAgent, SpaceSpec
from homing.agents.gaussian import log_density, log_slope, softplus_gaussian
from homing.errors import ConfigError
from homing.networks import MLP, Fit, NetConfig, adam
from homing.types import Array, Key, Metrics, Obs, Rollout

POLICY_NET = NetConfig(width=32, depth=4)
VALUE_NET = NetConfig(width=256, depth=5)

# Above a ratio of e^3 an action has no gradient: a bad action that became far more probable would dominate the
# batch, and e^89 overflows.
MAX_LOG_RATIO = 3.0


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO; the defaults are the paper's."""

    gamma: float = 0.97
    """Discount of rewards."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation: 1 for Monte Carlo returns, 0 for one-step TD."""
    clip: float = 0.3
    """Clip range ε of the probability ratio."""
    entropy_weight: float = 1e-4
    """Weight of the entropy bonus."""
    value_weight: float = 0.25
    """Weight of the mean squared error of the value function."""
    reward_scale: float = 1.0
    """Reward scale."""
    minibatches: int = 16
    """Minibatches per epoch; a rollout is split by environments."""
    epochs: int = 1
    """Epochs over each rollout."""
    lr: float = 3e-4
    """Learning rate."""
    max_grad_norm: float = 1.0
    """Gradient clipping: maximum gradient norm, of the policy and of the value function separately."""
    actor_net: NetConfig = POLICY_NET
    """The policy."""
    value_net: NetConfig = VALUE_NET
    """The value function."""
    normalise_observations: bool = False
    """Normalise states and goals by their running mean and standard deviation."""

    def __post_init__(self) -> None:
        bounds.check(self)


class Samples(struct.PyTreeNode):
    """A rollout as the losses need it, [T, N, ...]."""

    obs: Obs
    choice: Array
    log_prob: Array  # under the behaviour policy
    advantage: Array
    value_target: Array


class PPO(OnPolicyAgent[Fit]):
    """Policy and value function in one learner; a `choice` is a pre-tanh action."""

    def __init__(self, config: PPOConfig, spec: SpaceSpec):
        self.config, self.spec = config, spec
        self.actor = MLP(config.actor_net, 2 * spec.action_dim)
        self.values = MLP(config.value_net, 1)

    def init(self, key: Key) -> Fit:
        k_actor, k_value = jax.random.split(key)
        seen = self.spec.state_dim + self.spec.goal_dim
        params = {
            "actor": init_params(self.actor, k_actor, seen),
            "value": init_params(self.values, k_value, seen),
        }
        return Fit.start(params)

    def policy(self, params: Any, obs: Obs) -> tuple[Array, Array]:
        """Mean and log standard deviation of the pre-tanh Gaussian."""
        return softplus_gaussian(forward(self.actor, params["actor"], join(obs.state, obs.goal)))

    def choose(self, learner: Fit, obs: Obs, key: Key) -> Array:
        mean, log_std = self.policy(learner.params, obs)
        return mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)

    def action_of(self, choice: Array) -> Array:
        return jnp.tanh(choice)

    def act(self, learner: Fit, obs: Obs, key: Key, *, explore: bool) -> Array:
        if explore:
            return self.action_of(self.choose(learner, obs, key))
        return jnp.tanh(self.policy(learner.params, obs)[0])

    def value(self, learner: Fit, obs: Obs, action: Array) -> Array:
        """State value V(s, g) [...]; the action is ignored."""
        del action
        return self._value(learner.params, obs)

    def _value(self, params: Any, obs: Obs) -> Array:
        return forward(self.values, params["value"], join(obs.state, obs.goal))[..., 0]

    def updates_per_rollout(self, num_envs: int) -> int:
        parts = self.config.minibatches
        if num_envs % parts:
            near = max(round(num_envs / parts), 1) * parts
            raise ConfigError(
                f"{num_envs} environments cannot be split evenly into {parts} minibatches; "
                f"nearest: num_envs {near}"
            )
        return self.config.epochs * parts

    def learn(
        self, learner: Fit, rollout: Rollout, key: Key, lr_scale: Array | float = 1.0
    ) -> tuple[Fit, Metrics]:
        k_order, k_noise = jax.random.split(key)
        samples = self._samples(learner.params, rollout)
        epochs = self.config.epochs
        keys = jax.random.split(k_noise, epochs * self.config.minibatches).reshape(epochs, -1)

        def step(learner: Fit, given: tuple[Samples, Key]) -> tuple[Fit, Metrics]:
            rate = jnp.asarray(lr_scale * self.config.lr, jnp.float32)
            return adam(learner, lambda params: self._loss(params, *given), rate)

        def once(learner: Fit, given: tuple[Key, Key]) -> tuple[Fit, Metrics]:
            # One permutation at a time, so that memory holds the rollout only twice for any number of epochs.
            return lax.scan(step, learner, (self._minibatches(samples, given[0]), given[1]))

        learner, metrics = lax.scan(once, learner, (jax.random.split(k_order, epochs), keys))
        return learner, jax.tree.map(jnp.mean, metrics) | self._facts(samples, rollout)

    def _samples(self, params: Any, rollout: Rollout) -> Samples:
        """Advantages, value targets and log-probabilities under the parameters before the update."""
        both = jax.tree.map(lambda *rows: jnp.stack(rows), rollout.obs, rollout.next_obs)
        now, after = self._value(params, both)
        reward, config = self.config.reward_scale * rollout.reward, self.config
        advantage = advantages(
            reward, now, after, rollout.discount, rollout.last, config.gamma, config.gae_lambda
        )
        return Samples(
            obs=rollout.obs,
            choice=rollout.choice,
            log_prob=log_density(*self.policy(params, rollout.obs), rollout.choice),
            advantage=advantage,
            value_target=now + advantage,
        )

    def _minibatches(self, samples: Samples, key: Key) -> Samples:
        """Environments split at random into minibatches: [minibatches, T, N / minibatches, ...]."""
        num_envs, parts = samples.advantage.shape[1], self.config.minibatches
        order = jax.random.permutation(key, num_envs).reshape(parts, -1)
        return jax.tree.map(lambda x: jnp.moveaxis(x[:, order], 1, 0), samples)

    def _loss(self, params: Any, samples: Samples, key: Key) -> tuple[Array, Metrics]:
        config = self.config
        params = {name: limited(config.max_grad_norm, part) for name, part in params.items()}
        mean, log_std = self.policy(params, samples.obs)
        log_ratio = log_density(mean, log_std, samples.choice) - samples.log_prob
        policy_loss = clipped_loss(log_ratio, normalised(samples.advantage), config.clip)
        value_loss = jnp.mean(jnp.square(self._value(params, samples.obs) - samples.value_target))
        x = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape, mean.dtype)
        entropy = jnp.mean(jnp.sum(0.5 * math.log(2 * math.pi * math.e) + log_std + log_slope(x), axis=-1))
        loss = policy_loss + config.value_weight * value_loss - config.entropy_weight * entropy
        return loss, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "kl": jnp.mean(jnp.exp(log_ratio) - 1 - log_ratio),
            "clipped": jnp.mean((jnp.abs(jnp.expm1(log_ratio)) > config.clip).astype(jnp.float32)),
        }

    def _facts(self, samples: Samples, rollout: Rollout) -> Metrics:
        return {"reward": jnp.mean(rollout.reward), "value": jnp.mean(samples.value_target)}


def advantages(
    reward: Array, now: Array, after: Array, discount: Array, last: Array, gamma: float, gae_lambda: float
) -> Array:
    """Generalised advantage estimates [T, N] from values of the states before and after every action.

    δ = r + γ V(s′) − V(s), with V(s′) = 0 after a termination; A = δ + γλ A′ within an episode. At a time limit,
    V(s′) bootstraps from the true last state.
    """
    delta = reward + gamma * discount * after - now
    carried = gamma * gae_lambda * (1 - last.astype(jnp.float32))

    def back(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = row[0] + row[1] * later
        return advantage, advantage

    return lax.scan(back, jnp.zeros_like(delta[0]), (delta, carried), reverse=True, unroll=8)[1]


def clipped_loss(log_ratio: Array, advantage: Array, clip: float) -> Array:
    """−mean min(ρ A, clip(ρ, 1 ± clip) A), with the probability ratio ρ = new / old ≤ e³."""
    ratio = jnp.exp(jnp.minimum(log_ratio, MAX_LOG_RATIO))
    return -jnp.mean(jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def limited(norm: float, params: Any) -> Any:
    """Identity on the parameters, with gradient clipping to the global norm `norm`.

    A bad action that became far more probable has an unbounded gradient, which would inflate Adam's second moment
    for thousands of updates.
    """
    del norm
    return params


def _limited_forward(norm: float, params: Any) -> tuple[Any, None]:
    return limited(norm, params), None


def _limited_backward(norm: float, saved: None, grads: Any) -> tuple[Any]:
    del saved
    length = optax.global_norm(grads)
    return (jax.tree.map(lambda g: g * jnp.minimum(1.0, norm / (length + 1e-8)), grads),)


limited.defvjp(_limited_forward, _limited_backward)


def normalised(x: Array) -> Array:
    """x normalised to mean 0 and standard deviation 1."""
    return (x - jnp.mean(x)) / (jnp.std(x) + 1e-8)
