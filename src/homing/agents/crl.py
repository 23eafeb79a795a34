"""Contrastive RL: a critic that tells which goals a state and action lead to, and a policy that maximises it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing import bounds
from homing.agents.base import OffPolicyAgent, ReplayView, SpaceSpec
from homing.agents.gaussian import log_likelihood, mean_and_log_std, squash, squashed_sample, temperature_loss
from homing.errors import ConfigError, unknown
from homing.losses import contrastive
from homing.losses.energies import ENERGIES
from homing.losses.log_sums import l2_log_sums
from homing.losses.survival import geometric_survival_loss
from homing.networks import Fit, Member, NetConfig, Stack, adam
from homing.types import Array, Key, Metrics, Obs, Relabel, TransitionIndex, UpdateContext, is_static


@dataclasses.dataclass(frozen=True)
class CRLConfig:
    """Settings of contrastive RL; the defaults are the paper's."""

    objective: str = "infonce_symmetric"
    """Contrastive loss: infonce, infonce_backward, infonce_symmetric, binary_nce, flatnce, flatnce_backward,
    forward_backward, dpo, ipo or sppo."""
    energy: str = "l2"
    """Similarity f(φ, ψ): l2, l2_squared, l1, dot or cosine."""
    logsumexp_weight: float = 0.1
    """Weight of the penalty on squared logsumexps of the logits."""
    gamma: float = 0.99
    """Discount: future goals lie k steps ahead with probability ∝ γ^k."""
    representation_dim: int = 64
    """Size of φ(s, a) and ψ(g); with the survival head, one output of φ's network is its logit."""
    chunk: int = 1
    """Actions that the policy plans at once and executes open-loop."""
    critic_net: NetConfig = dataclasses.field(default_factory=NetConfig)
    """Both encoders."""
    actor_net: NetConfig = dataclasses.field(default_factory=NetConfig)
    """The policy."""
    critic_lr: float = 3e-4
    """Learning rate of the encoders."""
    actor_lr: float = 6e-4
    """Learning rate of the policy."""
    alpha_lr: float = 3e-4
    """Learning rate of the temperature α."""
    entropy_target: float = -0.5
    """Target entropy of the policy for each action dimension."""
    random_goal_ratio: float = 0.0
    """Fraction of the policy's training goals that come from another transition of the batch."""
    survival_head: bool = False
    """Also learn the probability that the episode survives until the goal, and add its log to the value."""
    bc_weight: float = 0.0
    """Weight of behaviour cloning in the policy's loss, −log π(a | s, g) of stored actions; for datasets."""
    normalise_observations: bool = False
    """Normalise states and goals by their running mean and standard deviation."""

    def __post_init__(self) -> None:
        bounds.check(self)
        if self.objective not in contrastive.OBJECTIVES:
            raise unknown("objective", self.objective, contrastive.OBJECTIVES)
        if self.energy not in ENERGIES:
            raise unknown("energy", self.energy, ENERGIES)
        if self.representation_dim < 1 + self.survival_head:
            raise ConfigError(
                f"representation_dim must be at least 2 with survival_head, not {self.representation_dim}"
            )


class CRLBatch(struct.PyTreeNode):
    """State-action pairs and goals from their futures; pair i and goal j ≠ i are negatives."""

    obs: Obs  # [B, ...]
    action: Array  # [B, chunk · action_dim]
    steps_to_termination: Array  # [B]


class Draws(NamedTuple):
    """The random numbers of one update."""

    noise: Array  # [B, chunk · action_dim], normal
    swap: Array | None  # [B] bool: the policy's goal comes from the neighbour in the batch


class CRL(OffPolicyAgent[Fit, CRLBatch]):
    """φ, ψ, the policy and the temperature take one step together, from the old parameters.

    The paper steps the critic before the policy. With the old critic neither waits for the other: their
    layers run side by side (`homing.networks.Stack`), and one gradient of the sum of all losses is the
    gradient of each, since no loss reaches the parameters of another.
    """

    min_batch_size = 2  # the other pairs of a batch are the negatives
    uses_rewards = False

    def __init__(self, config: CRLConfig, spec: SpaceSpec):
        self.config, self.spec, self.chunk, self.gamma = config, spec, config.chunk, config.gamma
        self.relabel = Relabel("future", gamma=config.gamma)
        self.objective = contrastive.OBJECTIVES[config.objective]
        self.energy = ENERGIES[config.energy]
        self.action_size = config.chunk * spec.action_dim
        self.target_entropy = config.entropy_target * self.action_size
        dim = config.representation_dim
        self.nets = Stack(
            {
                "phi": Member(config.critic_net, spec.state_dim + self.action_size, dim),
                "psi": Member(config.critic_net, spec.goal_dim, dim - config.survival_head),
                "actor": Member(config.actor_net, spec.state_dim + spec.goal_dim, 2 * self.action_size),
            }
        )

    def init(self, key: Key) -> Fit:
        params = {"nets": self.nets.init(key), "log_alpha": jnp.zeros((), jnp.float32)}
        return Fit.start(params)

    def act(self, learner: Fit, obs: Obs, key: Key, *, explore: bool) -> Array:
        mean, log_std = self.policy(learner.params, obs)
        return squashed_sample(mean, log_std, key)[0] if explore else jnp.tanh(mean)

    def value(self, learner: Fit, obs: Obs, action: Array) -> Array:
        """f(s, a, g) [...]: larger where the action leads to the goal sooner."""
        return self._value(*self.encode(learner.params, obs, action))

    def encode(self, params: Any, obs: Obs, action: Array) -> tuple[Array, Array]:
        """φ(s, a), whose last entry is the survival logit where there is one, and ψ(g)."""
        (phi,) = self.nets(params["nets"], phi=_join(obs.state, action))
        (psi,) = self.nets(params["nets"], psi=obs.goal)
        return phi, psi

    def _value(self, phi: Array, psi: Array) -> Array:
        """The energy, plus the log-probability to survive where that is learned."""
        phi, survival = self._split(phi)
        value = self.energy.rows(phi, psi)
        return value if survival is None else value + jax.nn.log_sigmoid(survival)

    def _split(self, phi: Array) -> tuple[Array, Array | None]:
        """φ itself, and the survival logit where it is learned."""
        return (phi[..., :-1], phi[..., -1]) if self.config.survival_head else (phi, None)

    def policy(self, params: Any, obs: Obs) -> tuple[Array, Array]:
        """Mean and log standard deviation of the Gaussian under the tanh."""
        return mean_and_log_std(*self.nets(params["nets"], actor=_join(obs.state, obs.goal)))

    def sample(self, replay: ReplayView, index: TransitionIndex, key: Key) -> CRLBatch:
        if self.chunk > 1:
            index = replay.with_whole_chunks(index, self.chunk)
        return CRLBatch(
            obs=Obs(replay.states(index), self.goals(replay, index, key)),
            action=replay.actions(index, self.chunk),
            steps_to_termination=replay.steps_to_termination(index),
        )

    def draw(self, key: Key, batch_size: int) -> Draws:
        k_noise, k_swap = jax.random.split(key)
        noise = jax.random.normal(k_noise, (batch_size, self.action_size), jnp.float32)
        ratio = self.config.random_goal_ratio
        swap = None if is_static(ratio, 0) else jax.random.bernoulli(k_swap, ratio, (batch_size,))
        return Draws(noise=noise, swap=swap)

    def update(
        self, learner: Fit, batch: CRLBatch, draws: Draws, context: UpdateContext
    ) -> tuple[Fit, Metrics]:
        config, scale = self.config, context.lr_scale
        critic, actor = scale * config.critic_lr, scale * config.actor_lr
        rates = {
            "nets": self.nets.rates(phi=critic, psi=critic, actor=actor),
            "log_alpha": jnp.asarray(scale * config.alpha_lr, jnp.float32),
        }
        return adam(learner, lambda params: self._loss(params, batch, draws), rates)

    def _loss(self, params: Any, batch: CRLBatch, draws: Draws) -> tuple[Array, Metrics]:
        obs, swap = batch.obs, draws.swap
        phi, psi, head = self.nets(
            params["nets"],
            phi=_join(obs.state, batch.action),
            psi=obs.goal,
            actor=_join(obs.state, _mixed(obs.goal, swap)),
        )
        action, log_prob = squash(*mean_and_log_std(head), draws.noise)
        phi, survival = self._split(phi)
        critic_loss, metrics = self._critic_loss(phi, psi)
        actor_loss, actor_metrics = self._actor_loss(params, obs.state, action, log_prob, _mixed(psi, swap))
        alpha_loss, alpha_metrics = temperature_loss(params["log_alpha"], log_prob, self.target_entropy)
        loss, metrics = critic_loss + actor_loss + alpha_loss, metrics | actor_metrics | alpha_metrics
        if not is_static(self.config.bc_weight, 0):
            bc_loss = self._cloning_loss(head, batch.action, swap)
            loss, metrics = loss + self.config.bc_weight * bc_loss, metrics | {"bc_loss": bc_loss}
        if survival is None:
            return loss, metrics
        survival_loss = geometric_survival_loss(survival, batch.steps_to_termination, self.gamma)
        return loss + survival_loss, metrics | {"survival_loss": survival_loss}

    def _critic_loss(self, phi: Array, psi: Array) -> tuple[Array, Metrics]:
        config, logits = self.config, self.energy.pairs(phi, psi)
        if config.energy == "l2" and self.objective.from_log_sums is not None:
            # The same loss, quicker; an update, which drops its metrics, then needs no logits.
            loss = contrastive.loss_of_sums(l2_log_sums(phi, psi), self.objective, config.logsumexp_weight)
        else:
            loss = contrastive.loss(logits, self.objective, config.logsumexp_weight)
        return loss, {"critic_loss": loss} | contrastive.describe(lax.stop_gradient(logits))

    def _actor_loss(
        self, params: Any, state: Array, action: Array, log_prob: Array, psi: Array
    ) -> tuple[Array, Metrics]:
        """mean(α log π − f(s, a, g)), a ~ π; no gradient reaches the critic."""
        params, psi = lax.stop_gradient((params, psi))
        (phi,) = self.nets(params["nets"], phi=_join(state, action))
        loss = jnp.mean(jnp.exp(params["log_alpha"]) * log_prob - self._value(phi, psi))
        return loss, {"actor_loss": loss, "entropy": -jnp.mean(log_prob)}

    def _cloning_loss(self, head: Array, action: Array, swap: Array | None) -> Array:
        """−mean log π(a | s, g) for each action dimension, where g is from the action's own future."""
        log_prob = log_likelihood(*mean_and_log_std(head), action) / self.action_size
        return -jnp.mean(log_prob if swap is None else jnp.where(swap, 0, log_prob))


def _join(*parts: Array) -> Array:
    return jnp.concatenate(parts, axis=-1)


def _mixed(x: Array, swap: Array | None) -> Array:
    """Entries [B, ...], those to `swap` replaced by their neighbour's."""
    return x if swap is None else jnp.where(swap[:, None], jnp.roll(x, 1, axis=0), x)
