"""Survival losses: time to the first reach of a goal, survival of an episode, occupancy of a goal.

Time is in steps from the state, up to a horizon H. p₀ = σ(arrived) is the probability of being at the goal already,
the hazard h_j that of reaching it at step j, given that it was not reached before. Hazards are constant within time
bins, steps e_b + 1 … e_{b+1} of bin b for `edges` 0 = e₀ < e₁ < … = H, and `hazard` [..., bins] are their logits;
bins of one step are exact. S(k) = (1 − p₀) Π_{j ≤ k} (1 − h_j) is the probability of not having reached the goal
after k steps.
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import nn

from homing.types import Array, FirstReach


def even_steps(count: int, points: int) -> tuple[int, ...]:
    """So many of `count` consecutive steps, evenly spaced from the first to the last; the first alone if one."""
    return tuple(int(step) for step in np.round(np.linspace(0, count - 1, points)))


def hazard_log_likelihood(arrived: Array, hazard: Array, first: FirstReach, edges: np.ndarray) -> Array:
    """Log-likelihood [B] of the observed first-reach times.

    Reached at τ = 0: ln p₀. At τ ≥ 1: ln(1 − p₀) + Σ_{j<τ} ln(1 − h_j) + ln h_τ. Censored after c
    steps: ln S(c); where c is −1 nothing is known, and the likelihood is 1.
    """
    start, size = jnp.asarray(edges[:-1], jnp.int32), jnp.asarray(np.diff(edges), jnp.int32)
    # Steps of each bin up to τ or c. ln(1 − σ(x)) = −softplus(x) and ln σ(x) = x − softplus(x), so that the step of
    # arrival only adds its logit.
    passed = jnp.clip(first.steps[:, None] - start, 0, size)
    arrives = (first.steps[:, None] > start) & (first.steps[:, None] <= start + size) & first.reached[:, None]
    weights = passed.astype(jnp.float32)
    not_arrived = jnp.sum(jnp.where(arrives, hazard, 0.0) - weights * nn.softplus(hazard), axis=-1)
    at_start = first.reached & (first.steps == 0)
    likelihood = jnp.where(at_start, nn.log_sigmoid(arrived), not_arrived - nn.softplus(arrived))
    return jnp.where(first.steps < 0, 0.0, likelihood)


def log_survival(arrived: Array, hazard: Array, edges: np.ndarray) -> Array:
    """ln S at the edges of the bins [..., bins + 1], S(0) first."""
    size = jnp.asarray(np.diff(edges), jnp.float32)
    start = -nn.softplus(arrived)[..., None]
    passed = size * nn.softplus(hazard)
    return start - jnp.pad(sum_before(passed) + passed, [(0, 0)] * (passed.ndim - 1) + [(1, 0)])


def sum_before(x: Array) -> Array:
    """Sum of the entries before each one of the last axis, as a product, which is fast on tensor cores."""
    size = x.shape[-1]
    return x @ jnp.asarray(np.triu(np.ones((size, size), np.float32), 1))


def time_to_goal_value(arrived: Array, hazard: Array, edges: np.ndarray, gamma: float | Array) -> Array:
    """−Σ_{k<H} γ^k S(k) [...], the negative expected discounted number of steps to the goal.

    Within a bin of w steps, S decays geometrically with q = 1 − h, which gives γ^e S(e) (1 − (γq)^w) / (1 − γq).
    """
    start, size = jnp.asarray(edges[:-1], jnp.float32), jnp.asarray(np.diff(edges), jnp.float32)
    passed = nn.softplus(hazard)
    survival = jnp.exp(-nn.softplus(arrived)[..., None] - sum_before(size * passed))
    log_ratio = jnp.log(gamma) - passed
    within = jnp.expm1(size * log_ratio) / jnp.expm1(log_ratio)
    return -jnp.sum(jnp.power(gamma, start) * survival * within, axis=-1)


def geometric_survival_loss(logit: Array, steps_to_termination: Array, gamma: float | Array) -> Array:
    """Cross-entropy of σ(logit) [B], the probability that an episode survives a random horizon k, P(k) ∝ γ^k.

    The target is 1 − γ^n for an episode that terminates in n steps, and 1 without termination.
    """
    terminates = jnp.power(gamma, steps_to_termination)
    return jnp.mean((1 - terminates) * nn.softplus(-logit) + terminates * nn.softplus(logit))


def huber(x: Array) -> Array:
    """Huber loss: ½x² for |x| ≤ 1, else |x| − ½."""
    size = jnp.abs(x)
    return jnp.where(size <= 1, 0.5 * jnp.square(x), size - 0.5)


# Occupancy: the fraction of each future time bin spent near the goal.


def time_bins(horizon: int, count: int = 32) -> np.ndarray:
    """Edges 0 = e₀ < e₁ < … = horizon of at most `count` bins, growing geometrically; one per step if they fit."""
    if count >= horizon:
        return np.arange(horizon + 1)
    if count == 1:
        return np.array([0, horizon])
    return np.concatenate([[0], np.unique(np.round(np.geomspace(1, horizon, count)).astype(np.int64))])


def bin_weights(edges: np.ndarray, gamma: float) -> np.ndarray:
    """Σ γ^k over the steps k ≥ 1 of each bin; the present does not count."""
    start, stop = np.maximum(edges, 1).astype(np.float64)[:-1], edges[1:].astype(np.float64)
    log_gamma = math.log(gamma)
    weights = np.exp(start * log_gamma) * -np.expm1((stop - start) * log_gamma) / (1 - gamma)
    return weights.astype(np.float32)


def nested_radii(radius: float) -> tuple[float, ...]:
    """The radii around a goal whose occupancy is learned: a step counts by the fraction of them it is inside."""
    return (radius, radius / 2, radius / 4)


def occupancy_labels(
    near: Array, remaining: Array, terminates: Array, radii: int, edges: np.ndarray
) -> tuple[Array, Array]:
    """Fraction of each time bin [B, bins] spent near the goal, and whether the bin was observed.

    near: [B, ≥ H + 1] from `ReplayView.nearness`, how many of so many radii contain each step
    Steps after a termination count as not near; steps after a time limit are unobserved.
    """
    start, size = jnp.asarray(edges[:-1], jnp.int32), jnp.asarray(np.diff(edges), jnp.int32)
    observed = jnp.where(terminates[:, None], size, jnp.clip(remaining[:, None] + 1 - start, 0, size))
    steps = np.arange(near.shape[1])[:, None]
    member = ((steps >= edges[:-1]) & (steps < edges[1:])).astype(np.float32)
    # Small integers: exact in whatever precision products are made.
    inside = near.astype(jnp.float32) @ member
    return inside / (radii * jnp.maximum(observed, 1)).astype(jnp.float32), observed > 0


def weighted_mean(x: Array, weight: Array) -> Array:
    """Weighted mean; 0 where no weight is left."""
    weight = weight.astype(jnp.float32)
    return jnp.sum(x * weight) / jnp.maximum(jnp.sum(weight), 1.0)


def time_regression_loss(distance: Array, first: FirstReach, weight: Array, gamma: float) -> Array:
    """Huber error of a distance [B] as −ln γ times the steps to the goal, where it is reached."""
    timed = weight * (first.reached & (first.steps >= 1))
    return weighted_mean(huber(distance + math.log(gamma) * first.steps.astype(jnp.float32)), timed)


def separation_loss(
    own: Array, pairs: Array, goal: Array, first: FirstReach, weight: Array, radius: float, far: float
) -> Array:
    """Hinge that keeps distances above `far`: own [B] of unreached goals, and pairs [G, N, N] with other goals.

    Pairs are those inside each of G groups of N consecutive transitions, B = G · N. Goals [B, P, goal_dim] are others
    where any of their P points are farther apart than `radius`.
    """
    count, size, _ = pairs.shape
    # Goals have few entries: their squares are added one by one, which XLA fuses with the hinge.
    entries = jnp.moveaxis(goal.reshape(count, size, *goal.shape[1:]), -1, 0)
    squares = functools.reduce(jnp.add, (jnp.square(x[:, :, None] - x[:, None]) for x in entries))
    others = (jnp.max(squares, axis=-1) > radius**2) & ~np.eye(size, dtype=bool)
    crossed = weighted_mean(jnp.maximum(far - pairs, 0), weight.reshape(count, size, 1) * others)
    return crossed + weighted_mean(jnp.maximum(far - own, 0), weight * ~first.reached)


def occupancy_loss(logits: Array, occupancy: Array, weight: Array) -> Array:
    """Cross-entropy of the fraction of each time bin [B, bins] spent at the goal."""
    return weighted_mean(nn.softplus(logits) - occupancy * logits, weight)
