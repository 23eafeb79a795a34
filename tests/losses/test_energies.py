"""Energies against plain Python loops, float64 and finite differences."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.losses.energies import ENERGIES

BY_HAND = {
    "cosine": lambda a, b: (
        sum(x * y for x, y in zip(a, b, strict=True))
        / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))
    ),
    "dot": lambda a, b: sum(x * y for x, y in zip(a, b, strict=True)),
    "l1": lambda a, b: -sum(abs(x - y) for x, y in zip(a, b, strict=True)),
    "l2": lambda a, b: -math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) + 1e-6),
    "l2_squared": lambda a, b: -sum((x - y) ** 2 for x, y in zip(a, b, strict=True)),
}


def two(rows_a=5, rows_b=7, dim=3, offset=0.0):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(rows_a, dim)) + offset, rng.normal(size=(rows_b, dim)) + offset
    return a.astype(np.float32), b.astype(np.float32)


def test_every_energy_of_the_paper_is_there():
    assert set(ENERGIES) == set(BY_HAND)


@pytest.mark.parametrize("name", ENERGIES)
def test_pairs_and_rows_equal_a_loop(name):
    phi, psi = two()
    expected = [[BY_HAND[name](a, b) for b in psi.tolist()] for a in phi.tolist()]
    pairs, rows = jax.jit(lambda: (ENERGIES[name].pairs(phi, psi), ENERGIES[name].rows(phi, psi[:5])))()
    np.testing.assert_allclose(pairs, expected, rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(rows, np.diagonal(expected), rtol=2e-5, atol=1e-5)


def test_cosine_norms_are_of_each_row():
    phi, _ = two(256, 1, 8)
    np.testing.assert_allclose(np.diagonal(jax.jit(ENERGIES["cosine"].pairs)(phi, 3 * phi)), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["l2", "l2_squared"])
def test_pairs_stay_accurate_far_from_the_origin(name):
    # Without centring, norms² of 64 · 100² would leave errors near 0.1 in squared distances.
    phi, psi = two(64, 64, 64, offset=100.0)
    exact = -np.sum((phi.astype(np.float64)[:, None] - psi.astype(np.float64)) ** 2, axis=-1)
    exact = exact if name == "l2_squared" else -np.sqrt(-exact + 1e-6)
    np.testing.assert_allclose(jax.jit(ENERGIES[name].pairs)(phi, psi), exact, rtol=3e-6)


@pytest.mark.parametrize("name", ENERGIES)
def test_gradients_are_finite_where_representations_meet_or_vanish(name):

    @jax.jit
    def slopes(x):
        slope = lambda form: jax.grad(lambda a, b: form(a, b).sum(), argnums=(0, 1))(x, x)
        return [slope(form) for form in ENERGIES[name]]

    for x in (np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)):
        assert all(np.isfinite(g).all() for g in jax.tree.leaves(slopes(x)))


@pytest.mark.parametrize("name", ENERGIES)
def test_gradient_of_pairs_equals_finite_differences(name):
    phi, psi = two(4, 4)
    weights = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    grad = np.asarray(jax.jit(jax.grad(lambda a: jnp.sum(weights * ENERGIES[name].pairs(a, psi))))(phi))

    def value(a):
        return sum(
            float(weights[i, j]) * BY_HAND[name](a[i], psi[j].tolist()) for i in range(4) for j in range(4)
        )

    base = phi.astype(np.float64)
    for i, d in [(0, 0), (2, 1), (3, 2)]:
        step = np.zeros_like(base)
        step[i, d] = 1e-5
        slope = (value(base + step) - value(base - step)) / 2e-5
        np.testing.assert_allclose(grad[i, d], slope, rtol=1e-3, atol=1e-4)
