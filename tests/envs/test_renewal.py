"""Goals that are renewed inside of an episode."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import homing
from homing.data import replay
from homing.data.relabel import GOAL_SAMPLERS
from homing.data.replay import BufferShape
from homing.data.rollout import split_transition, transition, unroll
from homing.envs.renewal import without_renewal
from homing.errors import HomingError
from homing.types import TransitionIndex

ENVS, LIMIT, STEPS = 8, 12, 40


@cache
def split(renew):
    """The same, as replay keeps them where a new goal begins a new episode."""
    return unrolled(renew, record=split_transition)


def env_with(renew, **options):
    return homing.make("point_u_maze", ENVS, episode_length=LIMIT, options={"goals.renew": renew, **options})


@cache
def unrolled(renew, record=transition, **options):
    """Transitions [T, N, ...] under random actions."""
    env = env_with(renew, **options)

    def run(key):
        k_reset, k_run = jax.random.split(key)
        policy = lambda obs, key: jax.random.uniform(key, (ENVS, 2), jnp.float32, -1, 1)
        return unroll(env, env.reset(k_reset), policy, k_run, STEPS, record)[1]

    return jax.tree.map(np.asarray, jax.jit(run)(jax.random.key(0)))


def steps_of(segment):
    """Step of its episode [T, N] that each transition is."""
    counts = np.zeros(segment.last.shape, int)
    for t in range(1, len(counts)):
        counts[t] = np.where(segment.last[t - 1], 0, counts[t - 1] + 1)
    return counts


def changes(segment):
    """Whether the commanded goal of transition t + 1 is another than that of t, bool [T − 1, N]."""
    return (segment.obs.goal[1:] != segment.obs.goal[:-1]).any(axis=-1)


def as_arrays(segment):
    return jax.tree.map(jnp.asarray, segment)


def test_without_the_option_an_episode_has_one_goal():
    segment = unrolled(None)
    assert not changes(segment)[~segment.last[:-1]].any()


def test_a_new_goal_is_commanded_every_so_many_steps_inside_an_episode():
    segment = unrolled(5)
    inside = ~segment.last[:-1]
    due = steps_of(segment)[1:] % 5 == 0
    assert not changes(segment)[inside & ~due].any()
    # The goal may be drawn again where it is not reached: one of six.
    assert changes(segment)[inside & due].mean() > 0.6


def test_a_new_goal_is_commanded_when_one_is_reached():
    segment = unrolled("reached", **{"task.within": 5.0})  # reaches the next cell from the start
    reached, inside = segment.reward[:-1] > 0, ~segment.last[:-1]
    assert (reached & inside).sum() > 3
    assert changes(segment)[reached & inside].all(), "the new goal is not reached already"
    assert not changes(segment)[~reached & inside].any()


def test_a_new_goal_waits_until_the_last_one_was_held_for_a_while():
    segment = unrolled("reached", **{"task.within": 9.0, "goals.hold": 4})
    reached, inside = segment.reward[:-1] > 0, ~segment.last[:-1]
    assert not changes(segment)[~reached & inside].any()
    changed = changes(segment)[reached & inside]
    assert changed.size > 40
    assert 0.1 < changed.mean() < 0.45, "a quarter of the steps at the goal"


def test_a_hold_without_a_reached_goal_is_refused():
    with pytest.raises(HomingError, match=r"goals\.hold=4 needs goals\.renew=reached, not 5"):
        env_with(5, **{"goals.hold": 4})


def test_rewards_are_for_the_goal_that_is_stored_with_the_transition():
    segment = unrolled("reached", **{"task.within": 5.0})
    distance = np.linalg.norm(segment.achieved_goal - segment.obs.goal, axis=-1)
    np.testing.assert_array_equal(segment.reward, (distance < 5.0).astype(np.float32))


def test_relabelled_goals_are_of_the_same_episode_across_the_change():
    segment = unrolled(5)
    buffer = replay.empty(BufferShape(1, STEPS, ENVS, 4, 2, 2))
    buffer = replay.insert(buffer, as_arrays(segment), jnp.int32(0))
    episodes = replay.episode_index(buffer, jnp.int32(1))
    position, env = (x.ravel() for x in jnp.indices((STEPS, ENVS), jnp.int32))
    index = TransitionIndex(position, env, replay.remaining(buffer, episodes, position, env))
    number = np.cumsum(np.concatenate([np.zeros((1, ENVS), int), segment.last[:-1]]), axis=0)
    crossed = 0
    for seed in range(5):
        goals = GOAL_SAMPLERS["uniform_future"](buffer, episodes, index, jax.random.key(seed), 0.99)
        for t, n, goal in zip(np.asarray(position), np.asarray(env), np.asarray(goals), strict=True):
            (when,) = np.flatnonzero((segment.achieved_goal[:, n] == goal).all(axis=-1))
            assert when >= t
            assert number[when, n] == number[t, n], "no goal of another episode"
            crossed += bool((segment.obs.goal[when, n] != segment.obs.goal[t, n]).any())
    assert crossed > 20, "also from behind a change of the commanded goal"
    kept = GOAL_SAMPLERS["commanded"](buffer, episodes, index, jax.random.key(0), 0.99)
    np.testing.assert_array_equal(kept, segment.obs.goal.reshape(-1, 2))


def test_split_episodes_end_where_the_goal_changes_and_the_robot_goes_on():
    whole, parts = unrolled(5), split(5)
    np.testing.assert_array_equal(parts.obs.state, whole.obs.state)
    np.testing.assert_array_equal(parts.discount, whole.discount)
    np.testing.assert_array_equal(parts.last[:-1], whole.last[:-1] | changes(whole))
    assert changes(whole)[~whole.last[:-1]].any(), "goals change inside of episodes"
    buffer = replay.insert(replay.empty(BufferShape(1, STEPS, ENVS, 4, 2, 2)), as_arrays(parts), jnp.int32(0))
    episodes = replay.episode_index(buffer, jnp.int32(1))
    position, env = (x.ravel() for x in jnp.indices((STEPS, ENVS), jnp.int32))
    left = replay.remaining(buffer, episodes, position, env)
    end = np.asarray(position + left - 1).reshape(STEPS, ENVS)
    for n in range(ENVS):
        same = (whole.obs.goal[end[:, n], n] == whole.obs.goal[:, n]).all(axis=-1)
        assert same.all(), "what is left of an episode has one commanded goal"


def test_only_goals_that_change_can_split_episodes():
    env = env_with(5, **{"goals.split": True})
    assert env.splits_episodes and not env_with(5).splits_episodes
    with pytest.raises(HomingError, match=r"goals\.split=true needs goals that change"):
        env_with(None, **{"goals.split": True})


def test_next_obs_keeps_the_goal_of_the_action_and_evaluations_keep_theirs():
    env = env_with(1)
    action = jnp.zeros((ENVS, 2), jnp.float32)
    first = jax.jit(env.reset)(jax.random.key(0))
    after = jax.jit(env.step)(first, action)
    np.testing.assert_array_equal(after.next_obs.goal, first.obs.goal)
    assert (after.obs.goal != first.obs.goal).any()
    once = env.of_size(ENVS, restarts=False)
    first = jax.jit(once.reset)(jax.random.key(0))
    np.testing.assert_array_equal(jax.jit(once.step)(first, action).obs.goal, first.obs.goal)


@pytest.mark.parametrize(
    ("value", "words"),
    [("sometimes", "reached"), (0, "at least 1"), (2.5, "whole number"), (True, "a number"), ([1], "number")],
)
def test_other_values_are_refused(value, words):
    with pytest.raises(HomingError, match=words):
        env_with(value)


def test_a_new_goal_begins_a_new_chunk():
    env, chunk = env_with(3), 8

    def planned(obs, key):
        """Eight times an action that tells the goal it was planned for."""
        return jnp.tile(obs.goal / 100, (1, chunk))

    def run(key):
        k_reset, k_run = jax.random.split(key)
        return unroll(env, env.reset(k_reset), planned, k_run, STEPS, chunk=chunk)[1]

    found = jax.tree.map(np.asarray, jax.jit(run)(jax.random.key(0)))
    np.testing.assert_allclose(found.action, found.obs.goal / 100, atol=1e-6)
    assert changes(found).mean() > 0.2, "goals change within chunks, or the test proves nothing"


def test_options_of_new_goals_are_left_out():
    options = {"goals.renew": "reached", "goals.hold": 5, "task.goals.spread": 1.0, "task.within": 0.1}
    assert without_renewal(options) == {"task.goals.spread": 1.0, "task.within": 0.1}
