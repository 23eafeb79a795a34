"""Hazards, survival and values against the exact ones of a chain that is known."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import expit

from homing.losses import survival
from homing.types import FirstReach

HORIZON, ADVANCE = 12, 0.5


def exact_hazards(cells: int, fall: float = 0.1) -> np.ndarray:
    """Of first reaching cell `cells` from cell 0: at each step the walker advances, falls, or stays."""
    alive = np.zeros(cells)
    alive[0] = 1.0
    hazards, unreached = [], 1.0
    for _ in range(HORIZON):
        arriving = ADVANCE * alive[-1]
        alive = (1 - ADVANCE - fall) * alive + ADVANCE * np.concatenate([[0], alive[:-1]])
        hazards.append(arriving / unreached)
        unreached -= arriving
    return np.asarray(hazards)


@functools.cache
def walked(cells: int, episodes: int, fall: float = 0.1, limit: int = HORIZON) -> FirstReach:
    """First-reach times of simulated walkers; `limit` is a time limit that cuts some of them."""
    rng = np.random.default_rng(0)
    steps, reached, fell = [], [], []
    for _ in range(episodes):
        place, cut = 0, int(rng.integers(2, limit + 1)) if limit < HORIZON else HORIZON
        for step in range(1, cut + 1):
            u = rng.random()
            if u < fall:
                steps.append(step), reached.append(False), fell.append(True)
                break
            place += u < fall + ADVANCE
            if place == cells:
                steps.append(step), reached.append(True), fell.append(False)
                break
        else:
            steps.append(cut), reached.append(False), fell.append(False)
    return FirstReach(np.asarray(steps, np.int32), np.asarray(reached), np.asarray(fell))


STEPS = np.arange(HORIZON + 1)  # edges of bins of one step each
OUTCOMES = FirstReach(*(x.ravel() for x in np.meshgrid(STEPS, [False, True], [False, True], indexing="ij")))


class Fitted(NamedTuple):
    arrived: np.ndarray  # []: logit of being there already
    hazard: np.ndarray  # [H]: logits of arriving at each step
    survival: np.ndarray  # [H + 1]: probabilities not to have arrived


def fitted(first: FirstReach) -> Fitted:
    """The hazard logits of greatest likelihood."""
    # Equal observations count as often as there are of them.
    place = np.ravel_multi_index([np.asarray(x, int) for x in first], (len(STEPS), 2, 2))
    arrived, hazard, log_survival = _fitted(np.bincount(place, minlength=len(OUTCOMES.steps)) / len(place))
    return Fitted(*map(np.asarray, (arrived, hazard, np.exp(log_survival))))


@jax.jit
def _fitted(shares):
    def loss(params):
        arrived, hazard = (jnp.broadcast_to(x, (len(shares), *x.shape)) for x in params)
        return -jnp.sum(survival.hazard_log_likelihood(arrived, hazard, OUTCOMES, STEPS) * shares)

    optimiser = optax.adam(0.05)

    def step(_, fit):
        params, state = fit
        updates, state = optimiser.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    params = (jnp.float32(0.0), jnp.full(HORIZON, -2.0, jnp.float32))
    params, _ = jax.lax.fori_loop(0, 600, step, (params, optimiser.init(params)))
    return *params, survival.log_survival(*params, STEPS)


@pytest.mark.parametrize(("fall", "limit"), [(0.1, HORIZON), (0.0, 8)])
def test_the_hazards_of_a_known_chain_are_found_with_falls_and_with_cuts(fall, limit):
    """A fallen walker never arrives: it counts to the horizon. One that was cut counts until then."""
    first = walked(2, 20_000, fall, limit)
    found = fitted(first._replace(steps=np.where(first.terminated, HORIZON, first.steps)))
    exact = exact_hazards(2, fall)
    seen = np.arange(HORIZON) < limit - 2  # later, few are left to count
    np.testing.assert_allclose(expit(found.hazard)[seen], exact[seen], atol=0.03)
    assert expit(found.arrived) < 0.01
    np.testing.assert_allclose(found.survival[1:][seen], np.cumprod(1 - exact)[seen], atol=0.02)


def test_falls_taken_for_cuts_would_make_the_goal_look_nearer():
    first = walked(2, 20_000)
    assert expit(fitted(first).hazard[-1]) > exact_hazards(2)[-1] + 0.05


@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_the_value_is_the_discounted_time_on_the_way(gamma):
    hazards = exact_hazards(2)
    logits = (np.log(hazards + 1e-12) - np.log1p(-hazards)).astype(np.float32)
    found = jax.jit(lambda: survival.time_to_goal_value(jnp.float32(-20.0), logits, STEPS, gamma))()
    still = np.concatenate([[1.0], np.cumprod(1 - hazards)[:-1]])
    assert float(found) == pytest.approx(-np.sum(gamma ** np.arange(HORIZON) * still), rel=1e-4)


def test_wide_bins_are_steps_of_equal_hazard():
    edges, logits = np.array([0, 1, 3, 7, 12]), np.asarray([-1.0, -2.0, -0.5, -3.0], np.float32)
    single, unit = np.repeat(logits, np.diff(edges)), np.arange(13)
    first = FirstReach(
        np.asarray([0, 1, 3, 5, 12, 12, 4], np.int32),
        np.asarray([True, True, True, True, True, False, False]),
        np.zeros(7, bool),
    )
    arrived = np.full(7, -1.5, np.float32)

    @functools.partial(jax.jit, static_argnums=1)
    def likelihood_and_values(logits, edges):
        likelihood = survival.hazard_log_likelihood(arrived, jnp.tile(logits, (7, 1)), first, edges)
        value = lambda gamma: survival.time_to_goal_value(jnp.float32(-1.5), logits, edges, gamma)
        return likelihood, value(0.9), value(0.999)

    wide, each = likelihood_and_values(logits, tuple(edges)), likelihood_and_values(single, tuple(unit))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), wide, each)
