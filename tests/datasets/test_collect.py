"""Episodes of a policy: rows that follow each other, goals that stay, exploration as asked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ledge, walk
from run_helpers import no_key_check  # noqa: F401

from homing.datasets.collect import Exploration, collect, with_exploration


def to_the_goal(obs, key):
    return jnp.clip((obs.goal - obs.state) / 0.15, -1, 1)


def episodes(exploration=Exploration(), count=40, seed=0, policy=to_the_goal, chunk=1):  # noqa: B008
    return collect(
        walk(1), with_exploration(policy, exploration, 2), jax.random.key(seed), count, chunk, {"env": "walk"}
    )


@pytest.fixture(scope="module")
def plain():
    return episodes()


def test_rows_follow_each_other_and_the_goal_stays(plain):
    assert plain.episodes == 40 and set(plain.lengths) == {25} and not plain.terminated.any()
    for start, end in zip(plain.starts, plain.ends, strict=True):
        states, actions = plain.observations[start : end + 1], plain.actions[start:end]
        np.testing.assert_allclose(states[1:], np.clip(states[:-1] + 0.15 * actions, -1, 1), atol=1e-6)
        assert (plain.goals[start : end + 1] == plain.goals[start]).all()
        assert np.linalg.norm(states[-1] - plain.goals[end]) < 0.01
    assert len(np.unique(plain.goals, axis=0)) == 40


def test_a_seed_determines_the_episodes(plain):
    np.testing.assert_array_equal(episodes().observations, plain.observations)
    assert not np.array_equal(episodes(seed=1).observations, plain.observations)


def test_noise_and_random_actions_are_as_large_as_asked():
    zero = lambda obs, key: jnp.zeros_like(obs.state)
    noisy = np.delete(*_actions(episodes(Exploration(noise=0.2), policy=zero)), axis=0)
    assert noisy.std() == pytest.approx(0.2, rel=0.1)
    mixed = np.delete(*_actions(episodes(Exploration(random_actions=0.25), policy=zero)), axis=0)
    changed = (mixed != 0).all(axis=1)
    assert changed.mean() == pytest.approx(0.25, abs=0.05)
    assert (mixed[~changed] == 0).all()
    assert mixed[changed].std() == pytest.approx(3**-0.5, rel=0.1)


def _actions(dataset):
    return dataset.actions, dataset.ends


def test_chunks_are_executed_open_loop():
    plan = lambda obs, key: jnp.concatenate([jnp.full_like(obs.state, 0.1 * i) for i in range(1, 6)], axis=-1)
    made = episodes(policy=plan, chunk=5, count=2)
    np.testing.assert_allclose(made.actions[:7, 0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.1, 0.2], atol=1e-6)


def test_falls_end_an_episode():
    """With the third action positive a fifth of all steps is a fall."""
    forward = lambda obs, key: jnp.ones((*obs.state.shape[:-1], 3), jnp.float32)
    made = collect(ledge(1), forward, jax.random.key(0), 60)
    assert made.terminated.mean() > 0.9 and made.lengths.mean() < 10
    assert (made.lengths[~made.terminated] == 25).all()


def test_episodes_beyond_what_fits_at_once_are_collected_in_turn(monkeypatch):
    monkeypatch.setattr("homing.datasets.collect.MAX_PARALLEL", 3)
    heard = []
    made = collect(walk(1), to_the_goal, jax.random.key(0), 7, progress=heard.append)
    assert made.episodes == 7 and heard == [3, 6, 7]
    assert len(np.unique(made.goals, axis=0)) == 7
