"""Survival losses: when a goal is first reached, whether an episode survives, how long a goal is occupied.

Time is counted in steps from the state, up to a horizon H. p₀ = σ(arrived) is the probability to be at the goal
already; h_j the probability to reach it at step j, not having reached it before. Hazards are constant within bins of
time, steps e_b + 1 … e_{b+1} of bin b for `edges` 0 = e₀ < e₁ < … = H; `hazard` [..., bins] are their logits. Bins of
one step each make no approximation. S(k) = (1 − p₀) Π_{j ≤ k} (1 − h_j) is the probability to be still on the way
after k steps.
"""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np
from jax import nn

from homing.types import Array, FirstReach


def hazard_log_likelihood(arrived: Array, hazard: Array, first: FirstReach, edges: np.ndarray) -> Array:
    """[B]: log-probability of the observed first-reach times.

    Reached at τ = 0: ln p₀. At τ ≥ 1: ln(1 − p₀) + Σ_{j<τ} ln(1 − h_j) + ln h_τ. Censored after c steps, all that is
    known is that it was not reached by then: ln S(c).
    """
    start, size = jnp.asarray(edges[:-1], jnp.int32), jnp.asarray(np.diff(edges), jnp.int32)
    # Steps of each bin up to τ or c. ln(1 − σ(x)) = −softplus(x) and ln σ(x) = x − softplus(x): the step of arrival
    # adds its logit, no more.
    passed = jnp.clip(first.steps[:, None] - start, 0, size)
    arrives = (first.steps[:, None] > start) & (first.steps[:, None] <= start + size) & first.reached[:, None]
    weights = passed.astype(jnp.float32)
    on_the_way = jnp.sum(jnp.where(arrives, hazard, 0.0) - weights * nn.softplus(hazard), axis=-1)
    at_once = first.reached & (first.steps == 0)
    return jnp.where(at_once, nn.log_sigmoid(arrived), on_the_way - nn.softplus(arrived))


def log_survival(arrived: Array, hazard: Array, edges: np.ndarray) -> Array:
    """[..., bins + 1]: ln S at the edges of the bins, S(0) first."""
    size = jnp.asarray(np.diff(edges), jnp.float32)
    start = -nn.softplus(arrived)[..., None]
    return jnp.concatenate([start, start - running_sum(size * nn.softplus(hazard))], axis=-1)


def running_sum(x: Array) -> Array:
    """Cumulative sum over the last axis as a product with a triangular matrix, which tensor cores are quick at."""
    size = x.shape[-1]
    return x @ jnp.asarray(np.triu(np.ones((size, size), np.float32)))


def time_to_goal_value(arrived: Array, hazard: Array, edges: np.ndarray, gamma: float | Array) -> Array:
    """[...]: −Σ_{k<H} γ^k S(k), minus the discounted expected number of steps on the way.

    Within a bin S falls geometrically, by q = 1 − h a step: its part is γ^e S(e) (1 − (γq)^w) / (1 − γq).
    """
    start, size = jnp.asarray(edges[:-1], jnp.float32), jnp.asarray(np.diff(edges), jnp.float32)
    survival = jnp.exp(log_survival(arrived, hazard, edges)[..., :-1])
    log_ratio = jnp.log(gamma) - nn.softplus(hazard)
    within = jnp.expm1(size * log_ratio) / jnp.expm1(log_ratio)
    return -jnp.sum(jnp.power(gamma, start) * survival * within, axis=-1)


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
    """Edges 0 = e₀ < e₁ < … = horizon of at most `count` bins that grow geometrically; one a step if all fit."""
    if count >= horizon:
        return np.arange(horizon + 1)
    if count == 1:
        return np.array([0, horizon])
    return np.concatenate([[0], np.unique(np.round(np.geomspace(1, horizon, count)).astype(np.int64))])


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
