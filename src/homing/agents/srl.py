"""Survival RL: a critic that learns when a goal is first reached, and a policy that minimises the time until then."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.agents.base import OffPolicyAgent, ReplayView, SpaceSpec
from homing.agents.gaussian import mean_and_log_std, squash, squashed_sample, temperature_loss
from homing.agents.srl_config import SRLConfig
from homing.agents.survival_batch import SRLBatch, labelled, way_goals
from homing.losses import survival
from homing.losses.energies import ENERGIES
from homing.losses.survival import weighted_mean as _mean
from homing.networks import Fit, Member, Stack, adam
from homing.networks.survival_head import Prediction, SurvivalHead
from homing.types import Array, Key, Metrics, Obs, Relabel, TransitionIndex, UpdateContext, is_static

# Transitions whose pairs are kept apart: four groups in a batch of 1024 are as many pairs as one batch of 512 has.
PAIRED = 256


class SRL(OffPolicyAgent[Fit, SRLBatch]):
    """Encoders, head, policy and temperature take one step together, from the old parameters."""

    min_batch_size = 2  # pairs of a batch with other goals are kept apart
    uses_rewards = False

    def __init__(self, config: SRLConfig, spec: SpaceSpec):
        self.config, self.spec, self.chunk = config, spec, config.chunk
        self.relabel = Relabel("future", gamma=config.goal_gamma)
        self.radius = spec.threshold
        self.radii = survival.nested_radii(self.radius)
        self.action_size = config.chunk * spec.action_dim
        self.target_entropy = config.entropy_target * self.action_size
        self.edges = survival.time_bins(config.horizon, config.hazard_bins)
        self.occupancy_edges = survival.time_bins(config.horizon, config.occupancy_bins)
        self.path = survival.even_steps(config.dwell, config.goal_points)
        dim, survives = config.representation_dim, config.survival_weight != 0
        self.nets = Stack(
            {
                "phi": Member(config.encoder_net, spec.state_dim + self.action_size, dim + survives),
                "psi": Member(config.encoder_net, config.goal_points * spec.goal_dim, dim),
                "actor": Member(config.actor_net, spec.state_dim + spec.goal_dim, 2 * self.action_size),
            },
            apart=True,  # the critic's gradients need not wait for the policy's
        )
        self.head = SurvivalHead(config.head_net, dim, len(self.edges) - 1, len(self.occupancy_edges) - 1)

    def init(self, key: Key) -> Fit:
        k_nets, k_head = jax.random.split(key)
        params = {
            "nets": self.nets.init(k_nets),
            "head": self.head.init(k_head),
            "log_alpha": jnp.zeros((), jnp.float32),
        }
        return Fit.start(params)

    def act(self, learner: Fit, obs: Obs, key: Key, *, explore: bool) -> Array:
        head = self.nets(learner.params["nets"], actor=_join(obs.state, obs.goal))
        mean, log_std = mean_and_log_std(*head)
        return squashed_sample(mean, log_std, key)[0] if explore else jnp.tanh(mean)

    def value(self, learner: Fit, obs: Obs, action: Array) -> Array:
        """−Σ γ^k S(k) [...]: minus the discounted expected number of steps until the goal is reached."""
        return self._time_value(self.predict(learner.params, obs, action))

    def predict(self, params: Any, obs: Obs, action: Array) -> Prediction:
        """What the critic says of reaching goals."""
        (phi,) = self.nets(params["nets"], phi=_join(obs.state, action))
        return self.head(params["head"], self._split(phi)[0], self._encoded_place(params, obs.goal))

    def _encoded_place(self, params: Any, goal: Array) -> Array:
        """ψ of goals [..., goal_dim] to be held, each point of the sequence the same."""
        points = jnp.broadcast_to(goal[..., None, :], (*goal.shape[:-1], len(self.path), goal.shape[-1]))
        (psi,) = self.nets(params["nets"], psi=points.reshape(*goal.shape[:-1], -1))
        return psi

    def _split(self, phi: Array) -> tuple[Array, Array | None]:
        """φ itself, and the logit of Z where it is learned."""
        dim = self.config.representation_dim
        return phi[..., :dim], phi[..., dim] if phi.shape[-1] > dim else None

    def _time_value(self, prediction: Prediction) -> Array:
        return survival.time_to_goal_value(
            prediction.arrived, prediction.hazard, self.edges, self.config.gamma
        )

    # Batches.

    def sample(self, replay: ReplayView, index: TransitionIndex, key: Key) -> SRLBatch:
        config, goal = self.config, self.goals(replay, index, key)
        batch = labelled(
            replay,
            index,
            goal,
            self.radii,
            self.occupancy_edges,
            horizon=config.horizon,
            chunk=self.chunk,
            dwell=config.dwell,
            path=self.path,
            true_censoring=config.true_censoring,
        )
        if is_static(config.waypoint_ratio, 0):
            return batch
        law = {"ratio": config.waypoint_ratio, "gamma": config.waypoint_gamma}
        k_way = jax.random.fold_in(key, 1)
        way = way_goals(replay, index, k_way, batch.goal[:, 0], self.radius, **law)
        return batch.replace(way=Obs(batch.obs.state, way))

    def goals(self, replay: ReplayView, index: TransitionIndex, key: Key) -> Array:
        """Goals from the own future, near and far, the present, the whole episode and random transitions.

        [B, goal_dim], and [B, points, goal_dim] where they are sequences.
        """
        config = self.config
        ratios = {
            "future": config.future_ratio,
            "current": config.current_ratio,
            "uniform_future": config.far_ratio,
            "episode": config.episode_ratio,
        }
        return replay.mixed_goals(ratios, "random", index, key, config.goal_gamma, self.path)

    def draw(self, key: Key, batch_size: int) -> Array:
        """Noise [B, chunk · action_dim] of the policy's actions."""
        return jax.random.normal(key, (batch_size, self.action_size), jnp.float32)

    # Learning.

    def update(
        self, learner: Fit, batch: SRLBatch, draws: Array, context: UpdateContext
    ) -> tuple[Fit, Metrics]:
        config, scale = self.config, context.lr_scale
        critic, actor = scale * config.critic_lr, scale * config.actor_lr
        rates = {
            "nets": self.nets.rates(phi=critic, psi=critic, actor=actor),
            "head": jnp.asarray(critic, jnp.float32),
            "log_alpha": jnp.asarray(scale * config.alpha_lr, jnp.float32),
        }
        return adam(learner, lambda params: self._loss(params, batch, draws), rates)

    def _loss(self, params: Any, batch: SRLBatch, noise: Array) -> tuple[Array, Metrics]:
        state, goal = batch.obs.state, batch.obs.goal
        given, judged = _policy_goals(batch)
        phi, psi, head = self.nets(
            params["nets"],
            phi=_join(state, batch.action),
            psi=goal.reshape(len(goal), -1),
            actor=_join(state, given),
        )
        action, log_prob = squash(*mean_and_log_std(head), noise)
        critic_loss, metrics = self._critic_loss(params, phi, psi, batch)
        same = batch.way is None and len(self.path) == 1
        place = psi if same else self._encoded_place(params, judged)
        actor_loss, actor_metrics = self._actor_loss(params, state, action, log_prob, place, batch)
        alpha_loss, alpha_metrics = temperature_loss(params["log_alpha"], log_prob, self.target_entropy)
        return critic_loss + actor_loss + alpha_loss, metrics | actor_metrics | alpha_metrics

    def _critic_loss(self, params: Any, phi: Array, psi: Array, batch: SRLBatch) -> tuple[Array, Metrics]:
        config = self.config
        phi, logit = self._split(phi)
        prediction = self.head(params["head"], phi, psi)
        likelihood = survival.hazard_log_likelihood(
            prediction.arrived, prediction.hazard, batch.first, self.edges
        )
        loss = -_mean(likelihood, batch.whole)
        metrics = {"hazard_loss": loss}
        for name, weight, part in (
            ("time_loss", config.time_weight, lambda: self._time_loss(phi, psi, batch)),
            ("separation_loss", config.separation_weight, lambda: self._separation_loss(phi, psi, batch)),
            ("occupancy_loss", config.occupancy_weight, lambda: _occupancy_loss(prediction, batch)),
        ):
            if weight != 0:
                metrics[name] = part()
                loss = loss + weight * metrics[name]
        if logit is not None:
            metrics["survival_loss"] = survival.geometric_survival_loss(
                logit, batch.steps_to_termination, config.goal_gamma
            )
            loss = loss + metrics["survival_loss"]
        return loss, metrics | {
            "critic_loss": loss,
            "reached": jnp.mean(batch.first.reached.astype(jnp.float32)),
        }

    def _time_loss(self, phi: Array, psi: Array, batch: SRLBatch) -> Array:
        distance = -ENERGIES["l2"].rows(phi, psi)
        return survival.time_regression_loss(distance, batch.first, batch.whole, self.config.gamma)

    def _separation_loss(self, phi: Array, psi: Array, batch: SRLBatch) -> Array:
        far = -math.log(self.config.gamma) * self.config.horizon
        size = PAIRED if len(phi) % PAIRED == 0 else len(phi)
        groups = [x.reshape(-1, size, x.shape[-1]) for x in (phi, psi)]
        own, pairs = -ENERGIES["l2"].rows(phi, psi), -jax.vmap(ENERGIES["l2"].pairs)(*groups)
        return survival.separation_loss(own, pairs, batch.goal, batch.first, batch.whole, self.radius, far)

    def _actor_loss(
        self, params: Any, state: Array, action: Array, log_prob: Array, psi: Array, batch: SRLBatch
    ) -> tuple[Array, Metrics]:
        """mean(α log π − Q), a ~ π; Q is the time value, plus β times the occupancy of the goal, plus w ln Z."""
        config = self.config
        params, psi = lax.stop_gradient((params, psi))
        (phi,) = self.nets(params["nets"], phi=_join(state, action))
        phi, logit = self._split(phi)
        prediction = self.head(params["head"], phi, psi)
        value = self._time_value(prediction)
        metrics = {"value": jnp.mean(value), "fails": _mean(batch.fails, batch.whole)}
        if config.occupancy_weight != 0:
            weights = survival.bin_weights(self.occupancy_edges, config.gamma)
            occupancy = jnp.sum(jax.nn.sigmoid(prediction.occupancy) * weights, axis=-1)
            value = value + config.occupancy_weight * metrics["fails"] * occupancy
        if logit is not None:
            value = value + config.survival_weight * jax.nn.log_sigmoid(logit)
        loss = jnp.mean(jnp.exp(params["log_alpha"]) * log_prob - value)
        return loss, metrics | {"actor_loss": loss, "entropy": -jnp.mean(log_prob)}


def _policy_goals(batch: SRLBatch) -> tuple[Array, Array]:
    """Goals [B, goal_dim] that the policy is given and judged by; of a sequence it is to hold the first point."""
    if batch.way is None:
        return batch.obs.goal[:, 0], batch.obs.goal[:, 0]
    return batch.way.goal[:, 0], batch.way.goal[:, 1]


def _occupancy_loss(prediction: Prediction, batch: SRLBatch) -> Array:
    weight = batch.observed * batch.whole[:, None]
    return survival.occupancy_loss(prediction.occupancy, batch.occupancy, weight)


def _join(*parts: Array) -> Array:
    return jnp.concatenate(parts, axis=-1)
