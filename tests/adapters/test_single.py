import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import homing
from homing.adapters.single import SingleEnv
from homing.errors import ConfigError


@pytest.fixture(scope="module")
def env(tiny):
    return SingleEnv(tiny, episode_length=40, reward="dense")


@pytest.fixture(scope="module")
def walked(env):
    """States [T + 1, N, ...] of three environments that move right."""

    def walk(keys):
        first = jax.vmap(env.reset)(keys)
        step = lambda state, _: (jax.vmap(env.step)(state, jnp.tile(jnp.array([1.0, 0.0]), (3, 1))),) * 2
        rest = jax.lax.scan(step, first, None, 45)[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first, rest)

    return jax.device_get(jax.jit(walk)(jax.random.split(jax.random.key(0), 3)))


def test_states_have_no_environment_axis_and_are_those_of_a_batch(env, walked):
    made = homing.make(env.spec.id, 1, 40, reward="dense").of_size(1, restarts=False)
    state = made.reset(jax.random.split(jax.random.key(0), 3)[1])
    step = jax.jit(made.step)
    for t in range(4):
        np.testing.assert_allclose(walked.obs.state[t, 1], state.obs.state[0], atol=1e-5)
        np.testing.assert_allclose(walked.reward[t, 1], state.reward[0], atol=1e-5)
        state = step(state, jnp.array([[1.0, 0.0]]))
    assert walked.obs.goal.shape == (46, 3, 2) and walked.steps[-1].tolist() == [45] * 3


def test_environments_have_starts_and_goals_of_their_own(walked):
    assert len(np.unique(walked.obs.goal[0], axis=0)) == 3
    assert len(np.unique(walked.obs.state[0], axis=0)) == 3


def test_falls_terminate_and_the_time_limit_truncates(walked):
    fallen = walked.obs.state[..., 0] > 2.5
    np.testing.assert_array_equal(walked.terminated, fallen)
    assert fallen.any() and not fallen[0].any()
    np.testing.assert_array_equal(walked.truncated, (walked.steps >= 40) & ~fallen)


def test_observations_are_flat_or_a_dict(tiny, env, walked):
    obs = jax.tree.map(lambda x: x[0, 0], walked.obs)
    flat = env.observation(obs)
    assert flat.shape == (env.observation_sizes,) == (6,)
    named = SingleEnv(tiny, flat=False)
    parts = named.observation(obs)
    assert {name: part.shape[0] for name, part in parts.items()} == named.observation_sizes
    np.testing.assert_array_equal(parts["achieved_goal"], obs.state[:2])


def test_a_config_that_is_copied_keeps_the_environment(env):
    assert copy.deepcopy({"env": env})["env"] is env


def test_goals_that_change_inside_an_episode_are_refused(tiny):
    with pytest.raises(ConfigError, match=r"leave out goals\.renew, or use a batch of homing\.make"):
        SingleEnv(tiny, env_options={"goals.renew": 10})
