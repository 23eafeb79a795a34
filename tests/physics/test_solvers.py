"""Small systems of physics: elimination, steps along a way, and accelerations that keep constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solving_helpers import exact, positive_definite, random_rules, single

from homing.physics.solvers import _cholesky_solve, constrained, eliminated, line_search, solve


@pytest.mark.parametrize("size", [1, 5, 6, 7, 17])
@pytest.mark.parametrize("how", [eliminated, solve])
def test_linear_systems_are_solved(how, size):
    rng = np.random.default_rng(size)
    matrix, right = positive_definite(rng, size), rng.normal(size=size)
    found = jax.jit(how)(*single(matrix, right))
    np.testing.assert_allclose(matrix @ np.asarray(found, float), right, atol=2e-4)


@pytest.mark.parametrize("size", [7, 15])
def test_elimination_is_as_exact_as_cholesky_where_contacts_are_stiff(size):
    """Masses about 1 and constraints a hundred thousand times as stiff, as where a hand lies on a table."""
    rng, count = np.random.default_rng(size), 40
    rows = rng.normal(size=(count, 5, size))
    matrix = rng.uniform(0.2, 2.0, (count, 1, size)) * np.eye(size) + 1e5 * rows.mT @ rows
    right = rng.normal(size=(count, size))
    exactly = np.linalg.solve(matrix, right[..., None])[..., 0]
    found = (jax.jit(jax.vmap(how))(*single(matrix, right)) for how in (eliminated, _cholesky_solve))
    size_of = lambda x: np.linalg.norm(x, axis=1)
    ours, choleskys = (size_of(x - exactly) / size_of(exactly) for x in found)
    assert ours.max() < 4 * choleskys.max() and np.median(ours) < 2 * np.median(choleskys)


def pushes(above, always):
    return np.where(always | (above < 0), above, 0.0)


class Way:
    """A way as Newton's method takes it: with the rows that push at the start, a step of 1 would be best."""

    def __init__(self, seed, bend):
        rng = np.random.default_rng(100 + seed)
        self.rules, self.bend = random_rules(seed), bend
        self.above, self.rise = rng.normal(size=20), rng.normal(size=20)
        self.k, self.always = np.asarray(self.rules.stiffness, float), np.asarray(self.rules.equality)
        steep = bend + np.sum((self.k * self.rise**2)[self.always | (self.above < 0)])
        self.slope = -steep - np.sum(self.k * self.rise * self.pushes(0))

    def pushes(self, t):
        return pushes(self.above + t * self.rise, self.always)

    def gain(self, t):
        cost = lambda t: self.slope * t + self.bend * t * t / 2 + np.sum(self.k * self.pushes(t) ** 2) / 2
        return cost(0) - cost(t)

    def best(self):
        """By halving."""
        low, high = 0.0, 1e4
        for _ in range(80):
            t = (low + high) / 2
            falls = self.slope + t * self.bend + np.sum(self.k * self.rise * self.pushes(t)) < 0
            low, high = (t, high) if falls else (low, t)
        return low


@pytest.mark.parametrize("bend", [0.1, 1.0, 100.0])
def test_steps_gain_what_is_to_be_gained(bend):
    find = jax.jit(line_search)
    bests = []
    for seed in range(60):
        way = Way(seed, bend)
        given = single(way.slope, bend, way.above, way.rise)
        bests.append(way.best())
        assert way.gain(float(find(*given, way.rules))) > 0.999 * way.gain(bests[-1])
    assert min(np.sum(np.array(bests) > 1.1), np.sum(np.array(bests) < 0.9)) > 5, "often 1 is not the best"


def test_no_way_is_no_step():
    rules = random_rules(0)
    step = line_search(jnp.zeros(()), jnp.zeros(()), rules.target, jnp.zeros(20), rules)
    assert np.isfinite(float(step))


def some_systems(count=12, size=6):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        yield positive_definite(rng, size), rng.normal(size=size), random_rules(seed, size=size)


def test_accelerations_and_forces_are_the_best_ones():
    run = jax.jit(constrained, static_argnames="iterations")
    for mass, force, rules in some_systems():
        free = np.linalg.solve(mass, force)
        found, push = run(*single(mass, force), rules, jnp.zeros(6), iterations=6)
        best = exact(mass, force, rules, free)
        np.testing.assert_allclose(np.asarray(found), best, atol=2e-3)
        np.testing.assert_allclose(mass @ best - force, np.asarray(push), atol=2e-2, rtol=1e-2)


def test_the_better_start_is_taken():
    mass, force, rules = next(some_systems())
    given = single(mass, force)
    best = jnp.asarray(exact(mass, force, rules, np.zeros(6)), jnp.float32)
    np.testing.assert_allclose(constrained(*given, rules, best, iterations=0)[0], best)
    found = constrained(*given, rules, best + 100, iterations=0)[0]
    np.testing.assert_allclose(found, np.linalg.solve(mass, force), atol=1e-4)


def test_where_nothing_touches_nothing_pushes():
    mass, force, rules = next(some_systems())
    rules = rules._replace(jacobian=0 * rules.jacobian, target=0 * rules.target)
    free = jnp.asarray(np.linalg.solve(mass, force), jnp.float32)
    found, push = constrained(*single(mass, force), rules, 0 * free, 2)
    np.testing.assert_allclose(found, free, atol=1e-4)
    assert not np.asarray(push).any()
