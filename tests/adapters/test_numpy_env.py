import jax
import numpy as np
import pytest
from probes import trapdoor, walk

import homing
from homing.adapters.numpy_env import NumpyEnv
from homing.errors import ConfigError, HomingError, UnknownNameError


@pytest.fixture(scope="module")
def env():
    made = NumpyEnv(walk(num_envs=3, episode_length=4))
    made.reset(jax.random.key(0))
    return made


ZERO = np.zeros((3, 2), np.float32)


def test_a_step_is_the_environments_own():
    plain, env = walk(3, 4), NumpyEnv(walk(3, 4))
    state = plain.reset(jax.random.key(5))
    obs, info = env.reset(jax.random.key(5))
    np.testing.assert_array_equal(obs["observation"], state.obs.state)
    np.testing.assert_allclose(info["distance"], plain.distance(state.achieved_goal, state.obs.goal))
    for t in range(6):
        action = np.full((3, 2), 0.1 * t, np.float32)
        state, result = plain.step(state, action), env.step(action)
        np.testing.assert_allclose(result.obs["observation"], state.obs.state, atol=1e-6)
        np.testing.assert_allclose(result.obs["desired_goal"], state.obs.goal, atol=1e-6)
        np.testing.assert_allclose(result.last_obs()["observation"], state.next_obs.state, atol=1e-6)
        np.testing.assert_array_equal(result.ended, state.ended)
        assert result.truncated.all() == (t == 3)


def test_arrays_are_float32_and_writable(env):
    result = env.step(ZERO)
    for array in (*result.obs.values(), result.reward):
        assert isinstance(array, np.ndarray) and array.dtype == np.float32
        array += 1
    assert result.terminated.dtype == result.info["is_success"].dtype == bool


def test_terminations_and_time_limits_are_told_apart():
    env = NumpyEnv(trapdoor(num_envs=16, episode_length=2))
    obs, _ = env.reset(jax.random.key(0))
    falls = obs["observation"][:, 0] > 0.5
    result = env.step(np.zeros((16, 1)))
    np.testing.assert_array_equal(result.terminated, falls)
    np.testing.assert_array_equal(env.compute_ended("terminated", obs["achieved_goal"], result.info), falls)
    assert falls.any() and not falls.all() and not result.truncated.any()


def test_rewards_of_other_goals(env):
    achieved = np.zeros((2, 5, 2))
    desired = achieved + np.linspace(0, 0.4, 5)[:, None]
    rewards = env.compute_reward(achieved, desired, [{}] * 10)
    expected = np.linalg.norm(desired, axis=-1) < 0.15
    np.testing.assert_array_equal(rewards, expected.astype(np.float32))
    assert env.compute_reward(achieved[0, 0], desired[0, 0], {}) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"goal": [0.1]}, "has 2 entries"),
        ({"goal": [0.1, np.nan]}, "finite"),
        ({"goal": np.zeros((2, 2))}, "one for all environments or each"),
        ({"goal": "left"}, "array of numbers"),
    ],
)
def test_a_goal_that_cannot_be_set_is_refused(env, options, words):
    with pytest.raises(ConfigError, match=words):
        env.reset(jax.random.key(0), options)


def test_a_goal_is_set_for_all_or_each(env):
    obs, info = env.reset(jax.random.key(0), {"goal": [0.5, -0.5]})
    np.testing.assert_array_equal(obs["desired_goal"], [[0.5, -0.5]] * 3)
    np.testing.assert_allclose(
        info["distance"], np.linalg.norm(obs["achieved_goal"] - obs["desired_goal"], axis=-1), rtol=1e-5
    )
    each = np.arange(6, dtype=np.float32).reshape(3, 2)
    obs, _ = env.reset(jax.random.key(0), {"goal": each})
    np.testing.assert_array_equal(obs["desired_goal"], each)
    np.testing.assert_array_equal(env.step(ZERO).obs["desired_goal"], each)


def test_errors_name_the_fix(env):
    with pytest.raises(UnknownNameError, match="goal"):
        env.reset(jax.random.key(0), {"gaol": [0, 0]})
    with pytest.raises(ConfigError, match=r"\(3, 3\); expected \(3, 2\)"):
        env.step(np.zeros((3, 3)))
    with pytest.raises(HomingError, match="call reset"):
        NumpyEnv(walk(3, 4)).step(ZERO)


def test_a_goal_in_a_wall_is_moved_with_a_warning(caplog):
    maze = NumpyEnv(homing.make("point_u_maze", num_envs=2))
    obs, _ = maze.reset(jax.random.key(0), {"goal": [[4.0, 4.0], [0.0, 0.0]]})
    assert caplog.messages == [
        "(0, 0) is inside a wall of point_u_maze; using the nearest free point, "
        f"({obs['desired_goal'][1, 0]:.4g}, {obs['desired_goal'][1, 1]:.4g})"
    ]
    np.testing.assert_array_equal(obs["desired_goal"][0], [4.0, 4.0])
    assert not maze.space.in_wall(obs["desired_goal"]).any()
    caplog.clear()
    maze.reset(jax.random.key(0), {"goal": [[4.0, 4.0], obs["desired_goal"][1]]})
    assert not caplog.messages
