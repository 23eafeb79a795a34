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
    return jnp.asarray(a, jnp.float32), jnp.asarray(b, jnp.float32)


def test_every_energy_of_the_paper_is_there():
    assert set(ENERGIES) == set(BY_HAND)


@pytest.mark.parametrize("name", ENERGIES)
def test_pairs_and_rows_equal_a_loop(name):
    phi, psi = two()
    expected = [[BY_HAND[name](a, b) for b in psi.tolist()] for a in phi.tolist()]
    np.testing.assert_allclose(ENERGIES[name].pairs(phi, psi), expected, rtol=2e-5, atol=1e-5)
    for i in range(5):
        np.testing.assert_allclose(ENERGIES[name].rows(phi, psi[:5])[i], expected[i][i], rtol=2e-5, atol=1e-5)


def test_cosine_norms_are_of_each_row():
    phi, _ = two(256, 1, 8)
    np.testing.assert_allclose(jnp.diagonal(ENERGIES["cosine"].pairs(phi, 3 * phi)), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["l2", "l2_squared"])
def test_pairs_stay_accurate_far_from_the_origin(name):
    # Without centring, norms² of 64 · 100² would leave errors near 0.1 in squared distances.
    phi, psi = two(64, 64, 64, offset=100.0)
    exact = -np.sum((np.asarray(phi, np.float64)[:, None] - np.asarray(psi, np.float64)) ** 2, axis=-1)
    exact = exact if name == "l2_squared" else -np.sqrt(-exact + 1e-6)
    np.testing.assert_allclose(ENERGIES[name].pairs(phi, psi), exact, rtol=3e-6)


@pytest.mark.parametrize("name", ENERGIES)
def test_gradients_are_finite_where_representations_meet_or_vanish(name):
    for x in (jnp.ones((4, 3), jnp.float32), jnp.zeros((4, 3), jnp.float32)):
        for form in ENERGIES[name]:
            grads = jax.grad(lambda a, b, form=form: form(a, b).sum(), argnums=(0, 1))(x, x)
            assert all(bool(jnp.isfinite(g).all()) for g in grads)


@pytest.mark.parametrize("name", ENERGIES)
def test_gradient_of_pairs_equals_finite_differences(name):
    phi, psi = two(4, 4)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=(4, 4)), jnp.float32)
    grad = jax.grad(lambda a: jnp.sum(weights * ENERGIES[name].pairs(a, psi)))(phi)

    def value(a):
        return sum(
            float(weights[i, j]) * BY_HAND[name](a[i], psi[j].tolist()) for i in range(4) for j in range(4)
        )

    base = np.asarray(phi, np.float64)
    for i, d in [(0, 0), (2, 1), (3, 2)]:
        step = np.zeros_like(base)
        step[i, d] = 1e-5
        slope = (value(base + step) - value(base - step)) / 2e-5
        np.testing.assert_allclose(grad[i, d], slope, rtol=1e-3, atol=1e-4)
