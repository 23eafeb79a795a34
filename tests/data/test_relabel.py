"""The law of future offsets, and relabelled batches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import homing
from homing.data import replay
from homing.data.relabel import GOAL_SAMPLERS, episode_start, geometric_offset
from homing.data.replay import BufferShape
from homing.data.view import EnvRewards, ReplayView
from homing.errors import ConfigError
from homing.types import Obs, Relabel, Segment, TransitionIndex

DRAWS = 100_000


def offsets_of(seed, bounds, gamma):
    """One for each bound, which are repeated: always as many, for the same programs."""
    bounds = jnp.asarray(np.resize(bounds, DRAWS), jnp.int32)
    return np.asarray(geometric_offset(jax.random.key(seed), bounds, gamma))


@pytest.mark.parametrize(("n", "gamma"), [(1, 0.99), (2, 0.9), (7, 0.5), (60, 0.99), (1000, 0.99)])
def test_offsets_follow_the_truncated_geometric_law(n, gamma):
    offsets = np.concatenate([offsets_of(4 * n + part, n, gamma) for part in range(4)])
    assert offsets.min() >= 1
    assert offsets.max() <= n
    law = gamma ** np.arange(1, n + 1)
    expected = len(offsets) * law / law.sum()
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
    offsets = offsets_of(0, n, gamma)
    assert offsets.min() >= 1
    assert offsets.max() <= n


def test_each_row_has_its_own_bound():
    bounds = np.arange(1, 5001)
    offsets = offsets_of(0, bounds, 0.999).reshape(-1, len(bounds))
    assert (offsets <= bounds).all()
    assert offsets.max() > 2000


def stored(last, terminated):
    """One environment whose transition t has state t, commanded goal −t and reaches t + 0.5.

    Buffer, episodes, and the index of all transitions.
    """
    t = np.arange(len(last), dtype=np.float32)[:, None, None]
    segment = Segment(
        obs=Obs(state=t, goal=-t),
        action=10 * t,
        achieved_goal=t + 0.5,
        reward=np.zeros((len(last), 1), np.float32),
        discount=1 - np.asarray(terminated, np.float32)[:, None],
        last=np.asarray(last, bool)[:, None],
    )
    return _stored(segment)


@jax.jit
def _stored(segment):
    length = len(segment.last)
    buffer = replay.insert(replay.empty(BufferShape(1, length, 1, 1, 1, 1)), segment, jnp.int32(0))
    episodes = replay.episode_index(buffer, jnp.int32(1))
    position, env = jnp.arange(length, dtype=jnp.int32), jnp.zeros(length, jnp.int32)
    return buffer, episodes, TransitionIndex(position, env, replay.remaining(buffer, episodes, position, env))


@functools.partial(jax.jit, static_argnums=0)
def sampled(name, buffer, episodes, index, key):
    return GOAL_SAMPLERS[name](buffer, episodes, index, key, 0.99)


def view(buffer, episodes, shaping=None):
    """What agents see of it, where a goal is reached within 0.1."""
    distance = lambda achieved, goal: jnp.abs(achieved - goal)[..., 0]
    reward = lambda achieved, goal: (distance(achieved, goal) < 0.1).astype(jnp.float32)
    return ReplayView(buffer, episodes, EnvRewards(reward, lambda state: state, distance, shaping))


def batch_of(buffer, episodes, index, goal, shaping=None):
    made = jax.jit(lambda buffer: view(buffer, episodes, shaping).batch(index, goal))(buffer)
    return jax.tree.map(np.asarray, made)


def relabelled(buffer, episodes, relabel, index):
    goals = jax.jit(lambda index, key: view(buffer, episodes).goals(relabel, index, key))
    return np.asarray(goals(index, jax.random.key(2)))[:, 0]


def test_batch_has_next_states_weights_and_new_rewards():
    # Two episodes: the first cut off after transition 1, the second terminated at transition 3; 4 is the newest.
    goal = np.full((5, 1), 2.5, np.float32)
    made = batch_of(*stored(last=[0, 1, 0, 1, 0], terminated=[0, 0, 0, 1, 0]), goal)
    np.testing.assert_array_equal(made.obs.state[:, 0], [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(made.next_obs.state[:, 0], [1, 1, 3, 3, 4])
    np.testing.assert_array_equal(made.action[:, 0], [0, 10, 20, 30, 40])
    np.testing.assert_array_equal(made.discount, [1, 1, 1, 0, 1])
    np.testing.assert_array_equal(made.weight, [1, 0, 1, 1, 0])
    np.testing.assert_array_equal(made.steps_to_termination, [np.inf, np.inf, 2, 1, np.inf])
    np.testing.assert_array_equal(made.reward, [0, 0, 1, 0, 0])  # transition 2 reaches 2.5
    np.testing.assert_array_equal(made.next_obs.goal, goal)


def test_the_final_state_of_an_episode_is_a_future_goal():
    found = sampled("future", *stored(last=[0, 1, 0, 1, 0], terminated=[0] * 5), jax.random.key(0))
    goals = np.asarray(found)[:, 0]
    assert [goals[i] for i in (1, 3, 4)] == [1.5, 3.5, 4.5]
    assert goals[0] in (0.5, 1.5)
    assert goals[2] in (2.5, 3.5)


def test_commanded_goals_are_read_back():
    goals = sampled("commanded", *stored(last=[0, 0, 0], terminated=[0, 0, 0]), jax.random.key(0))
    np.testing.assert_array_equal(goals, [[0], [-1], [-2]])


# Hindsight: two episodes of one environment, the first fallen, the second cut off; the third is still running.
LAST = [0, 0, 1, 0, 0, 0, 1, 0, 0]
FALLEN = [0, 0, 1, 0, 0, 0, 0, 0, 0]


def many(index, count, times):
    return jax.tree.map(lambda x: np.tile(np.asarray(x)[:count], times), index)


def test_final_goals_are_of_the_rows_own_end_and_a_running_episode_keeps_its_goal():
    """A12: the goals of a fallen episode are not a later one's; A13: a fall is an end too."""
    made = sampled("final", *stored(LAST, FALLEN), jax.random.key(0))
    np.testing.assert_array_equal(np.asarray(made)[:, 0], [2.5, 2.5, 2.5, 6.5, 6.5, 6.5, 6.5, -7, -8])


@pytest.mark.parametrize("name", ["uniform_future", "episode", "future"])
def test_no_goal_comes_from_another_episode(name):
    buffer, episodes, index = stored(LAST, FALLEN)
    index = many(index, 9, 400)
    made = np.asarray(sampled(name, buffer, episodes, index, jax.random.key(1)))[:, 0] - 0.5
    episode = np.asarray([0, 0, 0, 1, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(episode[made.astype(int)], episode[index.position])
    if name != "episode":
        assert (made >= index.position).all()
    # Every step that the law allows is drawn; the uniform laws draw them alike.
    for position, allowed in [(3, [3, 4, 5, 6]), (4, [4, 5, 6] if name != "episode" else [3, 4, 5, 6])]:
        drawn, counts = np.unique(made[index.position == position], return_counts=True)
        np.testing.assert_array_equal(drawn, allowed)
        if name != "future":
            assert stats.chisquare(counts).pvalue > 1e-3


def test_starts_of_episodes_are_found_across_slots_and_the_seam():
    rng = np.random.default_rng(0)
    length, slots, num_envs, inserts = 5, 6, 3, 9
    last = rng.random((inserts * length, num_envs)) < 0.12
    buffer, insert = replay.empty(BufferShape(slots, length, num_envs, 1, 1, 1)), jax.jit(replay.insert)
    zeros = np.zeros((length, num_envs, 1), np.float32)
    for i in range(inserts):
        segment = Segment(
            obs=Obs(state=zeros, goal=zeros),
            action=zeros,
            achieved_goal=zeros,
            reward=zeros[..., 0],
            discount=zeros[..., 0],
            last=last[i * length : (i + 1) * length],
        )
        buffer = insert(buffer, segment, np.int32(i))
    position, env = (x.ravel().astype(np.int32) for x in np.indices((slots * length, num_envs)))

    @jax.jit
    def starts(buffer):
        episodes = replay.episode_index(buffer, jnp.int32(inserts))
        index = TransitionIndex(position, env, replay.remaining(buffer, episodes, position, env))
        return episode_start(buffer, episodes, index)

    kept = last[-slots * length :]
    for p, n, start in zip(position, env, np.asarray(starts(buffer)), strict=True):
        before = np.flatnonzero(kept[:p, n])
        assert start == (before[-1] + 1 if before.size else 0)


def test_a_share_of_the_goals_is_replaced():
    buffer, episodes, index = stored(LAST, FALLEN)
    index = many(index, 7, 3000)
    made = relabelled(buffer, episodes, Relabel("final", ratio=0.5), index)
    assert np.mean(made > 0) == pytest.approx(0.5, abs=0.02)
    kept = made <= 0
    np.testing.assert_array_equal(made[kept], -index.position[kept])


def test_a_share_of_the_rows_takes_the_goal_of_the_row_before():
    buffer, episodes, index = stored(LAST, FALLEN)
    index = jax.tree.map(lambda x: np.resize(x, 3000), index)
    made = lambda others: relabelled(buffer, episodes, Relabel("commanded", random_ratio=others), index)
    own, before = -index.position, np.roll(-index.position, 1)
    np.testing.assert_array_equal(made(0.0), own)
    np.testing.assert_array_equal(made(1.0), before)
    mixed = made(0.3)
    assert np.mean(mixed == before) == pytest.approx(0.3, abs=0.03)
    assert np.all((mixed == own) | (mixed == before))


def test_a_dense_reward_changes_by_what_depends_on_the_goal():
    """Stored 10, of which −|reached − goal| depends on the goal."""
    buffer, episodes, index = stored([0, 0, 0], [0, 0, 0])
    buffer = buffer.replace(reward=np.full_like(buffer.reward, 10))
    shaping = lambda state, reached, goal: -jnp.abs(reached - goal)[..., 0] + state[..., 0]
    made = batch_of(buffer, episodes, index, np.full((3, 1), 2.5, np.float32), shaping)
    # Commanded were 0, −1, −2, reached 0.5, 1.5, 2.5.
    np.testing.assert_allclose(made.reward, [10 + 0.5 - 2, 10 + 2.5 - 1, 10 + 4.5 - 0])


@pytest.mark.parametrize("id", ["ant", pytest.param("pusher_two", marks=pytest.mark.slow)])
def test_environments_name_the_part_of_their_dense_reward_that_depends_on_the_goal(id):
    """Paid for another goal: what the environment would have paid, had that been the goal."""
    env = homing.make(id, reward="dense")
    rng = np.random.default_rng(0)
    normal = lambda size: rng.normal(size=(5, size)).astype(np.float32)
    spec = env.spec
    state, led_to, ctrl = normal(spec.state_dim), normal(spec.state_dim), normal(spec.action_dim)
    old, new = normal(spec.goal_dim), normal(spec.goal_dim)

    @jax.jit
    def paid_and_shaping(goal):
        paid = env._reward(Obs(state=state, goal=goal), led_to, ctrl, {})
        return paid, env.shaping(state, env.achieved(led_to), goal)

    paid, shaping = (np.asarray(x) for x in zip(*map(paid_and_shaping, (old, new)), strict=True))
    moved = paid[0] - shaping[0] + shaping[1]
    np.testing.assert_allclose(moved, paid[1], rtol=1e-4, atol=1e-4)
    assert not np.allclose(*paid)
    assert homing.make(id).shaping is None


def test_a_body_without_a_dense_reward_says_so():
    with pytest.raises(ConfigError, match="defines no dense reward"):
        homing.make("ant", reward="dense", options={"body.dense.progress": 0.0})
