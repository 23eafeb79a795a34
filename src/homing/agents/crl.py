"""Contrastive RL: a critic that tells which goals a state and action lead to, and a policy that climbs it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.agents.base import SpaceSpec
from homing.agents.gaussian import mean_and_log_std, squash, squashed_sample
from homing.errors import ConfigError, unknown
from homing.losses import contrastive
from homing.losses.energies import ENERGIES
from homing.losses.log_sums import l2_log_sums
from homing.networks import ADAM, Fit, Member, NetConfig, Stack, adam
from homing.types import Array, Batch, Key, Metrics, Moment, Obs, is_just


@dataclasses.dataclass(frozen=True)
class CRLConfig:
    """Settings of contrastive RL; the defaults are the paper's."""

    objective: str = "infonce_symmetric"
    """One of homing.losses.contrastive.OBJECTIVES."""
    energy: str = "l2"
    """One of homing.losses.energies.ENERGIES."""
    logsumexp_weight: float = 0.1
    """Weight of the penalty on squared row logsumexps."""
    gamma: float = 0.99
    """Discount: future goals lie k steps ahead with probability ∝ γ^k."""
    representation_dim: int = 64
    """Size of φ(s, a) and ψ(g); with `mind_falls` one of φ's entries is for that."""
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
    mind_falls: bool = False
    """Also learn how likely an episode lasts until the moment of a goal, so that the policy shuns its end."""
    normalise_observations: bool = False
    """Shift and scale states and goals by their running means and deviations."""

    def __post_init__(self) -> None:
        if self.objective not in contrastive.OBJECTIVES:
            raise unknown("objective", self.objective, contrastive.OBJECTIVES)
        if self.energy not in ENERGIES:
            raise unknown("energy", self.energy, ENERGIES)
        if not 0 < self.gamma < 1:
            raise ConfigError(
                f"gamma {self.gamma} must lie between 0 and 1, both excluded, for instance 0.99"
            )
        if self.representation_dim < 1 + self.mind_falls:
            least = "2 with mind_falls" if self.mind_falls else "1"
            raise ConfigError(f"representation_dim is {self.representation_dim}; it must be at least {least}")
        if not 0 <= self.random_goals <= 1:
            raise ConfigError(f"random_goals {self.random_goals} is a share: choose it from 0 to 1")


class Draws(NamedTuple):
    """The random numbers of one update."""

    noise: Array  # [B, action_dim], normal
    swap: Array | None  # [B] bool: the policy's goal comes from the row before


class CRL:
    """φ, ψ, the policy and the entropy's weight take one step together, from the old parameters.

    The paper steps the critic before the policy. With the old critic neither waits for the other: their
    layers run side by side (`homing.networks.Stack`), and one gradient of the sum of all losses is the gradient
    of each, since no loss reaches the parameters of another.
    """

    goal_sampler = "future"
    goal_share = 1.0

    def __init__(self, config: CRLConfig, spec: SpaceSpec):
        self.config = config
        self.spec = spec
        self.gamma = config.gamma
        self.energy = ENERGIES[config.energy]
        self.target_entropy = config.entropy_target * spec.action_dim
        dim = config.representation_dim
        self.nets = Stack(
            {
                "phi": Member(config.critic_net, spec.state_dim + spec.action_dim, dim),
                "psi": Member(config.critic_net, spec.goal_dim, dim - config.mind_falls),
                "actor": Member(config.actor_net, spec.state_dim + spec.goal_dim, 2 * spec.action_dim),
            }
        )

    def init(self, key: Key) -> Fit:
        params = {"nets": self.nets.init(key), "log_alpha": jnp.zeros((), jnp.float32)}
        return Fit(params=params, opt_state=ADAM.init(params))

    def act(self, learner: Fit, obs: Obs, key: Key, *, explore: bool) -> Array:
        mean, log_std = self.policy(learner.params, obs)
        return squashed_sample(mean, log_std, key)[0] if explore else jnp.tanh(mean)

    def value(self, learner: Fit, obs: Obs, action: Array) -> Array:
        """f(s, a, g) [...]: larger where the action leads to the goal sooner."""
        return self._value(*self.encode(learner.params, obs, action))

    def encode(self, params: Any, obs: Obs, action: Array) -> tuple[Array, Array]:
        """φ(s, a), its last entry that of `mind_falls`, and ψ(g)."""
        (phi,) = self.nets(params["nets"], phi=_join(obs.state, action))
        (psi,) = self.nets(params["nets"], psi=obs.goal)
        return phi, psi

    def _value(self, phi: Array, psi: Array) -> Array:
        """The energy, and the log-probability to last that long where falls are minded."""
        phi, lasts = self._apart(phi)
        value = self.energy.rows(phi, psi)
        return value if lasts is None else value + jax.nn.log_sigmoid(lasts)

    def _apart(self, phi: Array) -> tuple[Array, Array | None]:
        """φ itself, and the logit of lasting where falls are minded."""
        return (phi[..., :-1], phi[..., -1]) if self.config.mind_falls else (phi, None)

    def policy(self, params: Any, obs: Obs) -> tuple[Array, Array]:
        """Mean and log-deviation of the Gaussian under the tanh."""
        return mean_and_log_std(*self.nets(params["nets"], actor=_join(obs.state, obs.goal)))

    def draw(self, key: Key, rows: int) -> Draws:
        """The random numbers of one update."""
        k_noise, k_swap = jax.random.split(key)
        noise = jax.random.normal(k_noise, (rows, self.spec.action_dim), jnp.float32)
        return Draws(noise=noise, swap=self._swaps(k_swap, rows))

    def update(self, learner: Fit, batch: Batch, draws: Draws, moment: Moment) -> tuple[Fit, Metrics]:
        config, pace = self.config, moment.pace
        critic, actor = pace * config.critic_lr, pace * config.actor_lr
        rates = {
            "nets": self.nets.rates(phi=critic, psi=critic, actor=actor),
            "log_alpha": jnp.asarray(config.alpha_lr, jnp.float32),
        }
        return adam(learner, lambda params: self._loss(params, batch, draws), rates)

    def _loss(self, params: Any, batch: Batch, draws: Draws) -> tuple[Array, Metrics]:
        obs, swap = batch.obs, draws.swap
        phi, psi, head = self.nets(
            params["nets"],
            phi=_join(obs.state, batch.action),
            psi=obs.goal,
            actor=_join(obs.state, _mixed(obs.goal, swap)),
        )
        action, log_prob = squash(*mean_and_log_std(head), draws.noise)
        phi, lasts = self._apart(phi)
        critic_loss, told = self._critic_loss(phi, psi)
        actor_loss, actor_told = self._actor_loss(params, obs.state, action, log_prob, _mixed(psi, swap))
        alpha_loss, alpha_told = self._alpha_loss(params, log_prob)
        loss, told = critic_loss + actor_loss + alpha_loss, told | actor_told | alpha_told
        if lasts is None:
            return loss, told
        lasting = lasting_loss(lasts, batch.left, self.gamma)
        return loss + lasting, told | {"lasting_loss": lasting}

    def _critic_loss(self, phi: Array, psi: Array) -> tuple[Array, Metrics]:
        config, logits = self.config, self.energy.pairs(phi, psi)
        if config.energy == "l2" and config.objective in contrastive.OF_SUMS:
            # The same loss, quicker; an update, which drops its metrics, then needs no logits.
            loss = contrastive.loss_of_sums(l2_log_sums(phi, psi), config.objective, config.logsumexp_weight)
        else:
            loss = contrastive.loss(logits, config.objective, config.logsumexp_weight)
        return loss, {"critic_loss": loss} | contrastive.describe(lax.stop_gradient(logits))

    def _actor_loss(
        self, params: Any, state: Array, action: Array, log_prob: Array, psi: Array
    ) -> tuple[Array, Metrics]:
        """mean(α log π − f(s, a, g)), a ~ π: climbs the critic, which stands still meanwhile."""
        params, psi = lax.stop_gradient((params, psi))
        (phi,) = self.nets(params["nets"], phi=_join(state, action))
        loss = jnp.mean(jnp.exp(params["log_alpha"]) * log_prob - self._value(phi, psi))
        return loss, {"actor_loss": loss, "entropy": -jnp.mean(log_prob)}

    def _alpha_loss(self, params: Any, log_prob: Array) -> tuple[Array, Metrics]:
        """Moves α until the policy has the wanted entropy."""
        alpha = jnp.exp(params["log_alpha"])
        loss = alpha * lax.stop_gradient(-jnp.mean(log_prob) - self.target_entropy)
        return loss, {"alpha_loss": loss, "alpha": alpha}

    def _swaps(self, key: Key, rows: int) -> Array | None:
        """[B] bool: the policy's goal comes from the row before, with probability `random_goals`."""
        share = self.config.random_goals
        return None if is_just(share, 0) else jax.random.bernoulli(key, share, (rows,))


def lasting_loss(logit: Array, left: Array, gamma: float) -> Array:
    """Of the probability σ(logit) [B] to last until the goal, which lies k steps on, P(k) ∝ γ^k.

    An episode that terminates in n steps lasts with probability 1 − γ^n, any other for sure. A future goal is
    drawn from what the episode did reach; this is the mass that such a goal stands for.
    """
    ends = jnp.power(gamma, left)
    return jnp.mean((1 - ends) * jax.nn.softplus(-logit) + ends * jax.nn.softplus(logit))


def _join(*parts: Array) -> Array:
    return jnp.concatenate(parts, axis=-1)


def _mixed(rows: Array, swap: Array | None) -> Array:
    """Rows [B, ...], those to `swap` replaced by the row before."""
    return rows if swap is None else jnp.where(swap[:, None], jnp.roll(rows, 1, axis=0), rows)
