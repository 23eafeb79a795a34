"""The law of future offsets, and relabelled batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from homing import replay
from homing.relabel import batch, commanded, future, geometric_offset
from homing.replay import RingShape
from homing.types import Obs, Segment


@pytest.mark.parametrize(("n", "gamma"), [(1, 0.99), (2, 0.9), (7, 0.5), (60, 0.99), (1000, 0.99)])
def test_offsets_follow_the_truncated_geometric_law(n, gamma):
    draws = 400_000
    offsets = np.asarray(geometric_offset(jax.random.key(n), jnp.full(draws, n, jnp.int32), gamma))
    assert offsets.min() >= 1
    assert offsets.max() <= n
    law = gamma ** np.arange(1, n + 1)
    expected = draws * law / law.sum()
    counts = np.bincount(offsets, minlength=n + 1)[1:]
    # Chi-square wants ten expected draws in a bin: the far tail is one bin.
    keep = max(int(np.sum(expected >= 10)), 1)
    counts, expected = (np.append(x[:keep], x[keep:].sum()) for x in (counts, expected))
    if keep == n:
        counts, expected = counts[:-1], expected[:-1]
    if n > 1:
        assert stats.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("n", [1, 2, 3, 10_000])
@pytest.mark.parametrize("gamma", [0.01, 0.9, 0.99, 0.9999])
def test_offsets_stay_in_range(n, gamma):
    offsets = geometric_offset(jax.random.key(0), jnp.full(100_000, n, jnp.int32), gamma)
    assert int(offsets.min()) >= 1
    assert int(offsets.max()) <= n


def test_each_row_has_its_own_bound():
    bounds = jnp.arange(1, 5001, dtype=jnp.int32)
    offsets = geometric_offset(jax.random.key(0), bounds, 0.999)
    assert bool((offsets <= bounds).all())
    assert int(offsets.max()) > 2000


def ring_of(last, terminated):
    """One lane whose row t has state t, commanded goal −t and reaches t + 0.5."""
    length = len(last)
    t = jnp.arange(length, dtype=jnp.float32)[:, None, None]
    segment = Segment(
        obs=Obs(state=t, goal=-t),
        action=10 * t,
        reached=t + 0.5,
        reward=jnp.zeros((length, 1), jnp.float32),
        discount=1 - jnp.asarray(terminated, jnp.float32)[:, None],
        last=jnp.asarray(last, bool)[:, None],
    )
    ring = replay.insert(replay.empty(RingShape(1, length, 1, 1, 1, 1)), segment, jnp.int32(0))
    return ring, replay.timeline(ring, jnp.int32(1))


def all_rows(ring, line, count):
    position, lane = jnp.arange(count, dtype=jnp.int32), jnp.zeros(count, jnp.int32)
    return replay.Rows(position=position, lane=lane, remaining=replay.remaining(ring, line, position, lane))


def test_batch_has_next_states_weights_and_new_rewards():
    # Two episodes: the first cut off after row 1, the second terminated at row 3; row 4 is newest.
    ring, line = ring_of(last=[0, 1, 0, 1, 0], terminated=[0, 0, 0, 1, 0])
    rows = all_rows(ring, line, 5)
    goal = jnp.full((5, 1), 2.5, jnp.float32)
    made = batch(ring, line, rows, goal, lambda achieved, goal: (jnp.abs(achieved - goal) < 0.1)[..., 0])
    np.testing.assert_array_equal(made.obs.state[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(made.next_obs.state[:, 0], [1, 1, 3, 3, 4])
    np.testing.assert_array_equal(made.action[:, 0], [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(made.discount, [1, 1, 1, 0, 1])
    np.testing.assert_array_equal(made.weight, [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(made.reward, [0, 0, 1, 0, 0])  # row 2 reaches 2.5
    np.testing.assert_array_equal(made.next_obs.goal, goal)


def test_the_final_state_of_an_episode_is_a_future_goal():
    ring, line = ring_of(last=[0, 1, 0, 1, 0], terminated=[0] * 5)
    goals = future(ring, line, all_rows(ring, line, 5), jax.random.key(0), 0.99)[:, 0]
    assert [float(goals[i]) for i in (1, 3, 4)] == [1.5, 3.5, 4.5]
    assert float(goals[0]) in (0.5, 1.5)
    assert float(goals[2]) in (2.5, 3.5)


def test_commanded_goals_are_read_back():
    ring, line = ring_of(last=[0, 0, 0], terminated=[0, 0, 0])
    goals = commanded(ring, line, all_rows(ring, line, 3), jax.random.key(0), 0.99)
    np.testing.assert_array_equal(goals[:, 0], [0, -1, -2])
