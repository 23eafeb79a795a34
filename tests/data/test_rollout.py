"""Transitions of an unroll: what the action responded to and where it led."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Probe, ProbeSpec, turnstile

from homing.data.rollout import unroll
from homing.training.evaluation import evaluate


def test_rows_follow_the_environment_across_episode_ends():
    env = turnstile(num_envs=4, episode_length=7)

    def policy(obs, key):
        return jax.random.uniform(key, (4, 1), jnp.float32, -1, 1)

    @jax.jit
    def roll(key):
        k_env, k_unroll = jax.random.split(key)
        return unroll(env, env.reset(k_env), policy, k_unroll, 40)

    with jax.numpy_dtype_promotion("strict"), jax.debug_key_reuse(True):
        after, segment = roll(jax.random.key(0))
    segment = jax.tree.map(np.asarray, segment)
    number, step = segment.obs.state[..., 0], segment.obs.state[..., 1]
    last, discount = segment.last, segment.discount
    np.testing.assert_array_equal(segment.achieved_goal[..., 0], number)
    np.testing.assert_array_equal(segment.achieved_goal[..., 1], step + 1)
    same = number[1:] == number[:-1]
    np.testing.assert_array_equal(same, ~last[:-1])
    np.testing.assert_array_equal(step[1:], np.where(same, step[:-1] + 1, 0))
    assert np.all(last[discount == 0])
    assert np.any(last & (discount == 1))
    assert np.any(discount == 0)
    assert int(after.clock) == 40


CHUNK = 3


def recorder(num_envs: int = 4, episode_length: int = 7):
    """State (step of the episode, last action): a plan is seen in the actions that the states record."""

    def dynamics(state, action, steps, key):
        return jnp.stack([state[0] + 1, action[0]]), jax.random.bernoulli(key, 0.1)

    spec = ProbeSpec(state_dim=2, action_dim=1, goal_dim=1, goal_indices=(0,), threshold=0.5)
    zeros = lambda size: lambda key: jnp.zeros(size, jnp.float32)
    return Probe(spec, zeros(2), zeros(1), dynamics, num_envs, episode_length)


def planned(obs, key):
    """A chunk of three actions that tell at which step they were planned, and their place in it."""
    step = obs.state[:, :1] / 100
    return jnp.concatenate([step + place / 10 for place in range(CHUNK)], axis=1).astype(jnp.float32)


def test_chunks_are_executed_open_loop_and_planned_anew_after_an_episode_and_in_each_unroll():
    env, length = recorder(), 20

    @jax.jit
    def rolled(key):
        k_env, k_first, k_second = jax.random.split(key, 3)
        state, first = unroll(env, env.reset(k_env), planned, k_first, length, chunk=CHUNK)
        return first, unroll(env, state, planned, k_second, length, chunk=CHUNK)[1]

    first, second = jax.tree.map(np.asarray, rolled(jax.random.key(1)))
    cut_short = 0
    for segment in (first, second):
        actions, last, steps = segment.action[..., 0], segment.last, segment.obs.state[..., 0]
        for n in range(env.num_envs):
            place, planned_at = 0, None
            for t in range(length):
                if place == 0:
                    planned_at = steps[t, n]
                assert actions[t, n] == pytest.approx(planned_at / 100 + place / 10, abs=1e-6)
                cut_short += bool(last[t, n]) and place < CHUNK - 1
                place = 0 if last[t, n] else (place + 1) % CHUNK
    assert cut_short > 5, "episodes end within chunks, or the test proves nothing"
    # What was executed is what the environment saw.
    states, same = first.obs.state, ~first.last[:-1]
    np.testing.assert_array_equal(states[1:, :, 1][same], first.action[:-1, :, 0][same])
    # The first unroll stopped in the middle of a chunk (20 = 6 · 3 + 2): the second does not go on with it.
    np.testing.assert_allclose(second.action[0, :, 0], second.obs.state[0, :, 0] / 100, atol=1e-6)
    assert np.any(second.obs.state[0, :, 0] > 0)


def test_a_chunk_of_one_is_a_policy_as_usual():
    env = recorder()
    policy = lambda obs, key: obs.state[:, :1] / 100

    @jax.jit
    def rolled(key):
        k_env, k_unroll = jax.random.split(key)
        state = env.reset(k_env)
        return [unroll(env, state, policy, k_unroll, 20, **kind)[1] for kind in ({"chunk": 1}, {})]

    with jax.debug_key_reuse(False):
        one, plain = jax.tree.map(np.asarray, rolled(jax.random.key(1)))
    jax.tree.map(np.testing.assert_array_equal, one, plain)
    np.testing.assert_allclose(one.action[..., 0], one.obs.state[..., 0] / 100, atol=1e-6)


def test_evaluation_executes_chunks_open_loop():
    """An environment that pays the place of an action in its chunk: the mean reward is known."""

    def dynamics(state, action, steps, key):
        return action, jnp.zeros((), bool)

    spec = ProbeSpec(state_dim=1, action_dim=1, goal_dim=1, goal_indices=(0,), threshold=0.05)
    zeros = lambda key: jnp.zeros(1, jnp.float32)
    env = Probe(spec, zeros, zeros, dynamics, num_envs=2, episode_length=8)
    policy = lambda obs, key: jnp.broadcast_to(jnp.asarray([0.0, 0.5, 0.7], jnp.float32), (2, CHUNK))
    found = jax.jit(lambda key: evaluate(env, policy, key, chunk=CHUNK))(jax.random.key(0))
    # Steps 0, 3 and 6 of 8 take the first action, which reaches the goal 0.
    assert float(found["return"]) == 3
    assert float(found["mean_distance"]) == pytest.approx((3 * 0.5 + 2 * 0.7) / 8)
