"""Normalised observations: exact moments, seen by every agent, kept with its policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import NETS, SPEC, some_batch

from homing.agents import OffPolicyAgent, make_agent
from homing.agents.normalised import (
    LIMIT,
    MAX_COUNT,
    Moments,
    Normalised,
    no_moments,
    normalised,
    scaled,
    with_samples,
)
from homing.agents.ppo import PPO
from homing.agents.sac import SACConfig
from homing.types import Obs, Relabel, UpdateContext


def test_moments_are_those_of_all_rows_together():
    rng = np.random.default_rng(0)
    parts = [rng.normal(3, 2, (n, 5, 2)).astype(np.float32) for n in (1, 7, 30)]
    moments = no_moments(2)
    for part in parts:
        moments = jax.jit(with_samples)(moments, part)
    rows = np.concatenate(parts).reshape(-1, 2)
    assert int(moments.count) == len(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-5)


def test_counts_stay_exact_where_a_float_would_stand_still():
    """A22."""
    moments = Moments(np.zeros(1, np.float32), np.ones(1, np.float32), np.int32(2**24))
    assert int(jax.jit(with_samples)(moments, np.zeros((1, 1), np.float32)).count) == 2**24 + 1


def test_counts_do_not_overflow():
    moments = Moments(np.zeros(1, np.float32), np.ones(1, np.float32), np.int32(MAX_COUNT - 1))
    for _ in range(3):
        moments = jax.jit(with_samples)(moments, np.ones((2**20, 1), np.float32))
        assert int(moments.count) == MAX_COUNT
    np.testing.assert_allclose(moments.mean, 3 * 2.0**-10, rtol=1e-2)


def test_entries_are_shifted_scaled_and_limited():
    moments = Moments(np.float32([1.0, 5.0]), np.float32([4.0, 0.0]), np.int32(9))
    found = jax.jit(scaled)(moments, np.float32([[5.0, 5.0], [1.0, 6.0]]))
    np.testing.assert_allclose(found, [[2, 0], [0, LIMIT]])
    untouched = np.float32([[0.3, -0.2], [0.1, 0.4]])
    np.testing.assert_array_equal(jax.jit(scaled)(no_moments(2), untouched), untouched)


class Recorder(OffPolicyAgent):
    """Gives back what it is shown."""

    spec = SPEC
    config = None
    relabel = Relabel("final")

    def init(self, key):
        return jnp.zeros(3)

    def act(self, learner, obs, key, *, explore):
        return obs

    def update(self, learner, batch, draws, context):
        return learner + 1, {"batch": batch}


def test_an_agent_sees_normalised_observations_everywhere():
    agent, rng = normalised(Recorder()), np.random.default_rng(0)
    obs = Obs(state=rng.normal(7, 3, (50, 4, 4)).astype(np.float32), goal=np.zeros((50, 4, 3), np.float32))
    reached, batch = rng.normal(-2, 1, (50, 4, 3)).astype(np.float32), some_batch()

    @jax.jit
    def observe_and_act():
        learner = agent.observe(agent.init(jax.random.key(0)), obs, reached)
        return learner, agent.act(learner, obs, jax.random.key(1), explore=False)

    learner, seen = observe_and_act()
    np.testing.assert_allclose(np.asarray(seen.state).reshape(-1, 4).mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(np.asarray(seen.state).reshape(-1, 4).std(0), 1, atol=1e-4)
    # Goals are measured with what was achieved: those commanded here never change by themselves.
    np.testing.assert_allclose(np.asarray(learner.goal.mean), np.asarray(reached).mean((0, 1)) / 2, rtol=1e-4)
    assert agent.relabel == Relabel("final")

    @jax.jit
    def update_and_scale(learner):
        scale = lambda obs: (scaled(learner.state, obs.state), scaled(learner.goal, obs.goal))
        return *agent.update(learner, batch, None, UpdateContext()), scale(batch.obs), scale(batch.next_obs)

    after, metrics, *wanted = update_and_scale(learner)
    for name, (state, goal) in zip(("obs", "next_obs"), wanted, strict=True):
        shown = getattr(metrics["batch"], name)
        np.testing.assert_allclose(shown.state, state)
        np.testing.assert_allclose(shown.goal, goal)
    np.testing.assert_array_equal(metrics["batch"].reward, batch.reward)
    np.testing.assert_array_equal(after.learner, 1)
    np.testing.assert_array_equal(after.state.mean, learner.state.mean)


def test_the_setting_wraps_any_agent():
    agent = make_agent(SACConfig(**NETS, normalise_observations=True), SPEC)
    assert isinstance(agent, Normalised)
    assert agent.relabel.sampler == "commanded"
    assert agent.draw(jax.random.key(0), 3).shape == (2, 3, 2)
    assert not hasattr(PPO, "update")
    with pytest.raises(AttributeError, match="nothing"):
        agent.nothing  # noqa: B018
