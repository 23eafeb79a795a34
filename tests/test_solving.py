"""Small systems of physics: elimination, steps along a way, and accelerations that keep constraints."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from homing.physics.solving import Constraints, best_step, constrained, eliminated, solve


def positive_definite(rng, size):
    root = rng.normal(size=(size, size))
    return root @ root.T + 0.1 * np.eye(size)


@pytest.mark.parametrize("size", [1, 5, 6, 7, 17])
@pytest.mark.parametrize("how", [eliminated, solve])
def test_linear_systems_are_solved(how, size):
    rng = np.random.default_rng(size)
    matrix, right = positive_definite(rng, size), rng.normal(size=size)
    found = jax.jit(how)(jnp.asarray(matrix, jnp.float32), jnp.asarray(right, jnp.float32))
    np.testing.assert_allclose(matrix @ np.asarray(found, float), right, atol=2e-4)


def random_rules(seed, rows=20, size=6, always=2):
    rng = np.random.default_rng(seed)
    return Constraints(
        rows=jnp.asarray(rng.normal(size=(rows, size)), jnp.float32),
        wanted=jnp.asarray(rng.normal(size=rows), jnp.float32),
        stiffness=jnp.asarray(rng.uniform(0.1, 30.0, rows), jnp.float32),
        always=jnp.arange(rows) < always,
    )


def pushes(above, always):
    return np.where(always | (above < 0), above, 0.0)


def exact_step(slope, bend, above, rise, rules):
    """The same by halving in double precision."""
    above, rise, k = (np.asarray(x, float) for x in (above, rise, rules.stiffness))
    always = np.asarray(rules.always)
    low, high = 0.0, 1e4
    for _ in range(80):
        t = (low + high) / 2
        value = slope + t * bend + np.sum(k * rise * pushes(above + t * rise, always))
        low, high = (t, high) if value < 0 else (low, t)
    return low


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_steps_go_as_far_as_pays(scale):
    find = jax.jit(best_step)
    for seed in range(40):
        rules = random_rules(seed)
        rng = np.random.default_rng(100 + seed)
        above, rise = (jnp.asarray(rng.normal(size=20), jnp.float32) for _ in range(2))
        push = np.asarray(rules.stiffness) * pushes(np.asarray(above), np.asarray(rules.always))
        slope = -float(np.sum(push * np.asarray(rise))) - scale  # downhill at the start, as every way is
        found = float(find(jnp.float32(slope), jnp.float32(1.0), above, rise, rules))
        assert found == pytest.approx(exact_step(slope, 1.0, above, rise, rules), rel=2e-3, abs=1e-4)


def test_no_way_is_no_step():
    rules = random_rules(0)
    step = best_step(jnp.zeros(()), jnp.zeros(()), rules.wanted, jnp.zeros(20), rules)
    assert np.isfinite(float(step))


def exact(mass, force, rules, start):
    rows, wanted, k = (np.asarray(x, float) for x in (rules.rows, rules.wanted, rules.stiffness))
    always = np.asarray(rules.always)

    def cost(a):
        left, violated = mass @ a - force, pushes(rows @ a - wanted, always)
        slope = left + rows.T @ (k * violated)
        return 0.5 * a @ mass @ a - force @ a + 0.5 * np.sum(k * violated**2), slope

    return minimize(cost, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000}).x


def some_systems(count=12, size=6):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        yield positive_definite(rng, size), rng.normal(size=size), random_rules(seed, size=size)


def test_accelerations_and_forces_are_the_best_ones():
    run = jax.jit(constrained, static_argnames="turns")
    for mass, force, rules in some_systems():
        free = np.linalg.solve(mass, force)
        given = [jnp.asarray(x, jnp.float32) for x in (mass, force)]
        starts = (jnp.asarray(free, jnp.float32), jnp.zeros(6))
        found, push = run(*given, rules, starts, turns=6)
        best = exact(mass, force, rules, free)
        np.testing.assert_allclose(np.asarray(found), best, atol=2e-3)
        np.testing.assert_allclose(mass @ best - force, np.asarray(push), atol=2e-2, rtol=1e-2)


def test_the_better_start_is_taken():
    mass, force, rules = next(some_systems())
    given = [jnp.asarray(x, jnp.float32) for x in (mass, force)]
    best = jnp.asarray(exact(mass, force, rules, np.zeros(6)), jnp.float32)
    free = jnp.asarray(np.linalg.solve(mass, force), jnp.float32)
    np.testing.assert_allclose(constrained(*given, rules, (free, best), turns=0)[0], best)
    np.testing.assert_allclose(constrained(*given, rules, (free, best + 100), turns=0)[0], free)


def test_where_nothing_touches_nothing_pushes():
    mass, force, rules = next(some_systems())
    rules = rules._replace(rows=0 * rules.rows, wanted=0 * rules.wanted)
    free = jnp.asarray(np.linalg.solve(mass, force), jnp.float32)
    found, push = constrained(
        jnp.asarray(mass, jnp.float32), jnp.asarray(force, jnp.float32), rules, (free, 0 * free), 2
    )
    np.testing.assert_allclose(found, free, atol=1e-4)
    assert not np.asarray(push).any()
