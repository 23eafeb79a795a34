"""Survival losses against explicit products and sums over time."""

import functools
import math
from typing import NamedTuple

import jax
import numpy as np
import pytest

from homing.losses.survival import (
    bin_weights,
    geometric_survival_loss,
    hazard_log_likelihood,
    huber,
    log_survival,
    nested_radii,
    occupancy_labels,
    separation_loss,
    time_bins,
    time_to_goal_value,
)
from homing.types import FirstReach

HORIZON = 6


# One bin a step, bins of several steps, and one for all.
EDGES = [np.arange(HORIZON + 1), np.array([0, 1, 3, 6]), np.array([0, HORIZON])]


class Hazards(NamedTuple):
    """Logits, and the probabilities p₀ [B] and h₁ … h_H [B, H] that they stand for."""

    arrived: np.ndarray
    hazard: np.ndarray  # [B, bins]
    edges: np.ndarray
    p0: np.ndarray
    h: np.ndarray

    def survival(self, i, k):
        """S(k): not reached by step k."""
        return (1 - self.p0[i]) * math.prod(1 - self.h[i, j] for j in range(k))


@pytest.fixture(scope="module", params=EDGES, ids=lambda edges: f"{len(edges) - 1} bins")
def hazards(request):
    rng, edges = np.random.default_rng(0), request.param
    arrived, hazard = rng.normal(size=7), rng.normal(size=(7, len(edges) - 1))
    sigmoid = lambda x: 1 / (1 + np.exp(-x))
    each = np.repeat(hazard, np.diff(edges), axis=1)
    return Hazards(
        arrived.astype(np.float32), hazard.astype(np.float32), edges, sigmoid(arrived), sigmoid(each)
    )


def reach(steps, reached):
    steps, reached = (np.broadcast_to(x, (7,)) for x in (np.asarray(steps, np.int32), reached))
    return FirstReach(steps, reached, np.zeros(7, bool))


@functools.partial(jax.jit, static_argnums=3)
def _likelihood(arrived, hazard, first, edges):
    return hazard_log_likelihood(arrived, hazard, first, np.asarray(edges))


def likelihood(hazards, first):
    return np.asarray(_likelihood(hazards.arrived, hazards.hazard, first, tuple(hazards.edges)))


def test_the_likelihood_of_first_reach_times_is_an_explicit_product(hazards):
    steps = [0, 1, 3, HORIZON, 0, 2, HORIZON]
    reached = [True, True, True, True, False, False, False]
    found = likelihood(hazards, reach(steps, reached))
    for i, (k, there) in enumerate(zip(steps, reached, strict=True)):
        if not there:
            wanted = hazards.survival(i, k)  # censored: all that is known is that it took longer
        elif k == 0:
            wanted = hazards.p0[i]
        else:
            wanted = hazards.survival(i, k - 1) * hazards.h[i, k - 1]
        assert float(found[i]) == pytest.approx(math.log(wanted), rel=1e-4), (k, there)


def test_the_likelihoods_of_all_outcomes_sum_to_one(hazards):
    outcomes = [reach(k, True) for k in range(HORIZON + 1)] + [reach(HORIZON, False)]
    np.testing.assert_allclose(sum(np.exp(likelihood(hazards, first)) for first in outcomes), 1, rtol=1e-5)


def test_an_episode_of_which_nothing_is_known_has_likelihood_one(hazards):
    np.testing.assert_array_equal(likelihood(hazards, reach(-1, False)), 0)


def test_extreme_logits_have_finite_likelihoods_and_gradients():
    edges = np.arange(HORIZON + 1)
    first = reach([2, 4, 0, 6, 1, 3, 0], [True, False] * 3 + [True])
    loss = jax.jit(jax.value_and_grad(lambda x: hazard_log_likelihood(x[:, 0], x, first, edges).sum()))
    for far in (200.0, -200.0):
        value, slope = loss(np.full((7, HORIZON), far, np.float32))
        assert np.isfinite(value) and np.isfinite(slope).all()


def test_survival_falls_as_the_product_says(hazards):
    found = np.exp(jax.jit(lambda: log_survival(hazards.arrived, hazards.hazard, hazards.edges))())
    wanted = [[hazards.survival(i, k) for k in hazards.edges] for i in range(7)]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_time_to_goal_is_the_discounted_time_on_the_way(hazards):
    value = jax.jit(lambda: time_to_goal_value(hazards.arrived, hazards.hazard, hazards.edges, 0.9))
    found = np.asarray(value())
    for i in range(7):
        wanted = -sum(0.9**k * hazards.survival(i, k) for k in range(HORIZON))
        assert float(found[i]) == pytest.approx(wanted, rel=1e-4)


def test_a_chain_that_surely_arrives_at_a_step_takes_that_many():
    edges = np.arange(HORIZON + 1)
    value = jax.jit(lambda arrived, hazard: time_to_goal_value(arrived, hazard, edges, 0.9))
    for n in range(1, HORIZON + 1):
        sure = np.where(np.arange(1, HORIZON + 1) == n, 50.0, -50.0).astype(np.float32)
        found = float(value(np.float32(-50.0), sure))
        assert found == pytest.approx(-sum(0.9**k for k in range(n)), rel=1e-4)
        assert float(value(np.float32(50.0), sure)) == pytest.approx(0, abs=1e-6)


def test_the_geometric_survival_loss_by_hand():
    logit, left = np.asarray([0.3, -1.2, 2.0]), np.asarray([1.0, 7.0, np.inf])
    p = 1 / (1 + np.exp(-logit))
    lives = 1 - 0.8**left
    wanted = -np.mean(lives * np.log(p) + (1 - lives) * np.log(1 - p))
    found = jax.jit(lambda *given: geometric_survival_loss(*given, 0.8))(np.float32(logit), np.float32(left))
    assert float(found) == pytest.approx(wanted, rel=1e-5)


def test_huber_is_a_parabola_and_then_a_line():
    x = np.float32([0.0, 0.5, -0.5, 1.0, 3.0, -4.0])
    np.testing.assert_allclose(jax.jit(huber)(x), [0, 0.125, 0.125, 0.5, 2.5, 3.5])


@pytest.mark.parametrize(("size", "points"), [(4, 1), (12, 1), (12, 3)])
def test_separation_is_a_loop_over_pairs_with_other_goals_and_unreached_own_ones(size, points):
    """Sequences of several points are other goals where any two of the same step are apart."""
    rng = np.random.default_rng(size)
    own, pairs = rng.uniform(0, 2, 12), rng.uniform(0, 2, (12 // size, size, size))
    goal, weight = rng.integers(0, 3, (12, points, 2)), rng.integers(0, 2, 12)
    reached = rng.random(12) < 0.5
    crossed, alone = [], []
    for i in range(12):
        if weight[i] and not reached[i]:
            alone.append(max(0, 1.5 - own[i]))
        for j in range(12):
            together = i // size == j // size and i != j
            if together and weight[i] and np.linalg.norm(goal[i] - goal[j], axis=-1).max() > 1:
                crossed.append(max(0, 1.5 - pairs[i // size, i % size, j % size]))
    first = FirstReach(np.zeros(12, np.int32), reached, np.zeros(12, bool))
    given = [x.astype(np.float32) for x in (own, pairs, goal, weight)]
    made = jax.jit(lambda: separation_loss(*given[:3], first, given[3], radius=1.0, far=1.5))()
    np.testing.assert_allclose(made, np.mean(crossed) + np.mean(alone), rtol=1e-5)


@pytest.mark.parametrize(("horizon", "count"), [(1, 1), (1, 4), (5, 8), (64, 8), (1000, 32), (300, 1)])
def test_time_bins_cover_the_horizon_and_grow(horizon, count):
    edges = time_bins(horizon, count)
    assert edges[0] == 0 and edges[-1] == horizon
    sizes = np.diff(edges)
    assert sizes.min() >= 1
    assert 1 <= len(sizes) <= count
    if count >= horizon:
        assert (sizes == 1).all()
    elif len(sizes) > 2:
        # Geometric but for rounding to whole steps, which moves an edge by one half.
        assert (np.diff(sizes[1:]) >= -1).all()
        assert sizes[-1] == sizes.max()
        assert sizes[0] == 1


def test_bin_weights_are_sums_of_discounts():
    edges = time_bins(64, 8)
    found = bin_weights(edges, 0.95)
    assert len(found) == len(edges) - 1 and found[0] == 0
    for weight, start, stop in zip(found[1:], edges[1:-1], edges[2:], strict=True):
        assert weight == pytest.approx(sum(0.95**k for k in range(start, stop)), rel=1e-5)


def test_one_bin_for_all_times_weighs_all_steps_but_the_present():
    assert bin_weights(time_bins(64, 1), 0.95) == pytest.approx([sum(0.95**k for k in range(1, 64))])


def test_occupancy_labels_equal_a_loop_over_the_bins():
    rng = np.random.default_rng(1)
    horizon, radius, count = 16, 0.8, 40
    edges = time_bins(horizon, 6)
    remaining = rng.integers(1, 25, count)
    terminates = rng.random(count) < 0.5
    distance = np.abs(rng.normal(size=(count, horizon + 1))).astype(np.float32)
    distance[np.arange(horizon + 1) > remaining[:, None]] = np.inf
    radii = np.asarray(nested_radii(radius))
    inside = np.sum(distance[..., None] <= radii, axis=-1).astype(np.int8)
    inside[:, horizon] = 3  # the horizon itself is in no bin
    labels = jax.jit(lambda *given: occupancy_labels(*given, len(radii), edges))
    near, observed = map(np.asarray, labels(inside, remaining, terminates))
    assert near.shape == observed.shape == (count, len(edges) - 1)
    for i in range(count):
        for b in range(len(edges) - 1):
            # After a termination nothing is near; after a time limit nothing is known.
            steps = [k for k in range(edges[b], edges[b + 1]) if k <= remaining[i] or terminates[i]]
            inside = [np.mean([distance[i, k] <= radius / 2**j for j in range(3)]) for k in steps]
            assert bool(observed[i, b]) == bool(steps)
            assert float(near[i, b]) == pytest.approx(np.mean(inside) if steps else 0.0, abs=1e-5)
    assert not observed.all() and near.max() > 0.5
