"""Transitions of an unroll: what the action responded to and where it led."""

import jax
import jax.numpy as jnp
import numpy as np
from probes import turnstile

from homing.data.rollout import unroll


def test_rows_follow_the_environment_across_episode_ends():
    env = turnstile(num_envs=4, episode_length=7)
    with jax.numpy_dtype_promotion("strict"), jax.debug_key_reuse(True):
        k_env, k_unroll = jax.random.split(jax.random.key(0))
        state = env.reset(k_env)

        def policy(obs, key):
            return jax.random.uniform(key, (4, 1), jnp.float32, -1, 1)

        after, segment = jax.jit(lambda state, key: unroll(env, state, policy, key, 40))(state, k_unroll)
    number, step = np.asarray(segment.obs.state[..., 0]), np.asarray(segment.obs.state[..., 1])
    last, discount = np.asarray(segment.last), np.asarray(segment.discount)
    np.testing.assert_array_equal(segment.achieved_goal[..., 0], number)
    np.testing.assert_array_equal(segment.achieved_goal[..., 1], step + 1)
    same = number[1:] == number[:-1]
    np.testing.assert_array_equal(same, ~last[:-1])
    np.testing.assert_array_equal(step[1:], np.where(same, step[:-1] + 1, 0))
    assert np.all(last[discount == 0])
    assert np.any(last & (discount == 1))
    assert np.any(discount == 0)
    assert int(after.clock) == 40
