"""Survival losses: when a goal is first reached, whether an episode survives, how long a goal is occupied.

Time is counted in steps from the state, H of them at most. `arrived` is the logit of being at the goal already,
p₀; `hazard` [..., H] are the logits of h₁ … h_H, the probabilities to reach it at a step, not having reached it
before. S(k) = (1 − p₀) Π_{j ≤ k} (1 − h_j) is then the probability to be still on the way after k steps.
"""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jax import nn

from homing.types import Array, FirstReach


def hazard_log_likelihood(arrived: Array, hazard: Array, first: FirstReach) -> Array:
    """[B]: log-probability of what was seen of first-reach times.

    Reached at τ = 0: ln p₀. At τ ≥ 1: ln(1 − p₀) + Σ_{j<τ} ln(1 − h_j) + ln h_τ. Censored after c steps, all that
    is known is that it was not reached by then: ln S(c).
    """
    horizon = hazard.shape[-1]
    steps = jnp.arange(1, horizon + 1, dtype=jnp.int32)
    # ln(1 − σ(x)) = −softplus(x) and ln σ(x) = x − softplus(x): the step of arrival adds its logit, no more.
    passed = jnp.sum(jnp.where(steps <= first.steps[:, None], nn.softplus(hazard), 0.0), axis=-1)
    at_arrival = jnp.sum(jnp.where(steps == first.steps[:, None], hazard, 0.0), axis=-1)
    on_the_way = -nn.softplus(arrived) - passed + jnp.where(first.reached, at_arrival, 0.0)
    return jnp.where(first.reached & (first.steps == 0), nn.log_sigmoid(arrived), on_the_way)


def log_survival(arrived: Array, hazard: Array) -> Array:
    """[..., H + 1]: ln S(0), …, ln S(H)."""
    start = -nn.softplus(arrived)[..., None]
    return jnp.concatenate([start, start - jnp.cumsum(nn.softplus(hazard), axis=-1)], axis=-1)


def time_to_goal_value(arrived: Array, hazard: Array, gamma: float | Array) -> Array:
    """[...]: −Σ_{k<H} γ^k S(k), minus the discounted expected time on the way."""
    steps = jnp.arange(hazard.shape[-1], dtype=jnp.float32)
    return -jnp.sum(jnp.power(gamma, steps) * jnp.exp(log_survival(arrived, hazard)[..., :-1]), axis=-1)


def geometric_survival_loss(logit: Array, steps_to_termination: Array, gamma: float | Array) -> Array:
    """Cross-entropy of σ(logit) [B], the probability that an episode survives a horizon k, P(k) ∝ γ^k.

    An episode that terminates in n steps survives it with probability 1 − γ^n, any other for sure.
    """
    falls = jnp.power(gamma, steps_to_termination)
    return jnp.mean((1 - falls) * nn.softplus(-logit) + falls * nn.softplus(logit))


def huber(x: Array) -> Array:
    """½x² up to 1, |x| − ½ beyond."""
    size = jnp.abs(x)
    return jnp.where(size <= 1, 0.5 * jnp.square(x), size - 0.5)


# Occupancy: how much of each bin of future time is spent near the goal.


def time_bins(horizon: int, count: int = 32) -> np.ndarray:
    """Edges 0 = e₀ < e₁ < … = horizon of at most `count` bins that grow geometrically."""
    edges = np.unique(np.round(np.geomspace(1, horizon, count)).astype(np.int64))
    return np.concatenate([[0], edges]) if count > 1 else np.array([0, horizon])


def bin_weights(edges: np.ndarray, gamma: float) -> np.ndarray:
    """Σ γ^k over the steps k of each bin, in the value's unit; the first bin, the present, has none."""
    start, size = edges[:-1].astype(np.float64), np.diff(edges).astype(np.float64)
    log_gamma = math.log(gamma)
    weights = np.exp(start * log_gamma) * -np.expm1(size * log_gamma) / (1 - gamma)
    return np.concatenate([[0.0], weights[1:]]).astype(np.float32)


def occupancy_labels(
    distance: Array, remaining: Array, terminates: Array, radius: float, edges: np.ndarray
) -> tuple[Array, Array]:
    """Fraction of each time bin [B, bins] spent near the goal, and whether the bin was observed at all.

    distance: [B, H + 1] from `ReplayView.goal_distances`, infinite past what is stored
    A step counts by how many of the radii r, r/2, r/4 contain it. After a termination nothing is near any more;
    after a time limit nothing is known.
    """
    horizon = distance.shape[1] - 1
    nested = jnp.asarray([radius, radius / 2, radius / 4], jnp.float32)
    near = jnp.mean((distance[..., None] <= nested).astype(jnp.float32), axis=-1)[:, :horizon]
    steps = jnp.arange(horizon, dtype=jnp.int32)
    known = (steps <= remaining[:, None]) | terminates[:, None]
    member = np.zeros((horizon, len(edges) - 1), np.float32)
    for i, (start, stop) in enumerate(itertools.pairwise(edges)):
        member[start:stop, i] = 1
    counts = known.astype(jnp.float32) @ member
    return (near * known) @ member / jnp.maximum(counts, 1.0), counts > 0
