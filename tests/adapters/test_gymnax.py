import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("gymnax")

from gymnax.wrappers.purerl import LogWrapper

from homing.adapters.gymnax import HomingGymnax, HomingRejax
from homing.errors import HomingError

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "ppo_gymnax.py"


@pytest.fixture(scope="module")
def env(tiny):
    return HomingGymnax(tiny, max_steps_in_episode=30)


@pytest.fixture(scope="module")
def walked(env):
    """Outputs of 35 steps to the right: observation, state, reward, terminated, truncated, info."""
    logged = LogWrapper(env)
    step = jax.vmap(logged.step)

    def walk(key):
        k_reset, k_steps = jax.random.split(key)
        obs, state = jax.vmap(logged.reset)(jax.random.split(k_reset, 4))
        right = jnp.array([1.0, 0.0]) * jnp.arange(4)[:, None] / 3

        def body(state, keys):
            obs, state, reward, terminated, truncated, info = step(keys, state, right)
            return state, (obs, reward, terminated, truncated, info)

        return obs, jax.lax.scan(body, state, jax.random.split(k_steps, (35, 4)))[1]

    with jax.debug_key_reuse(False):
        return jax.device_get(jax.jit(walk)(jax.random.key(0)))


def test_terminated_and_truncated_are_apart(walked):
    _, (_, _, terminated, truncated, info) = walked
    final = info["final_observation"]
    np.testing.assert_array_equal(terminated, final[..., 0] > 2.5)
    assert terminated[:, 3].any() and not terminated[:, 0].any()
    assert np.flatnonzero(truncated[:, 0]).tolist() == [29] and not (terminated & truncated).any()
    np.testing.assert_array_equal(info["returned_episode_lengths"][29:, 0], 30)


def test_an_ended_episode_is_followed_by_a_new_one(walked):
    first, (obs, _, _, truncated, info) = walked
    final = info["final_observation"]
    going = ~(truncated[:, 0])
    np.testing.assert_array_equal(obs[going, 0], final[going, 0])
    assert not np.array_equal(obs[29, 0], final[29, 0])
    goals = np.concatenate([first[None, :, 4:], obs[..., 4:]])[:, 0]
    assert len(np.unique(goals, axis=0)) == 2


def test_spaces(env, tiny):
    assert env.num_actions == 2 and env.name == f"homing/{tiny}"
    assert env.observation_space(env.default_params).shape == (6,)
    action = env.action_space().sample(jax.random.key(0))
    assert bool(env.action_space().contains(action)) and not bool(
        env.action_space().contains(2 * action / abs(action))
    )
    named = HomingGymnax(tiny, flat=False)
    assert set(named.observation_space().spaces) == {"observation", "achieved_goal", "desired_goal"}
    with pytest.raises(HomingError, match="observation_space"):
        env.state_space()


def test_the_example_of_ppo_learns(tiny):
    made = runpy.run_path(str(EXAMPLE))
    train = made["train"]
    train.__globals__["UNROLL"] = 50
    env = HomingGymnax(tiny, 50, reward="dense")
    with jax.debug_key_reuse(False):
        rewards = jax.jit(train, static_argnums=(1, 2))(jax.random.key(0), env, 20)
    assert rewards.shape == (20,)
    assert float(rewards[-3:].mean()) > float(rewards[:3].mean()) + 1.0


def test_ppo_of_rejax_learns(tiny):
    rejax = pytest.importorskip("rejax")
    algo = rejax.PPO.create(
        env=HomingRejax(tiny, 50, reward="dense"),
        total_timesteps=24_000,
        eval_freq=24_000,
        num_envs=32,
        num_steps=50,
        num_epochs=4,
        num_minibatches=4,
        learning_rate=1e-3,
        gamma=0.97,
        max_grad_norm=0.5,
        agent_kwargs={"activation": "tanh"},
    )
    with jax.debug_key_reuse(False):
        _, (lengths, returns) = jax.jit(algo.train)(jax.random.key(0))
    before, after = returns.mean(axis=1)
    assert lengths.shape == (2, 128) and float(after) > 0.6 * float(before) > float(before)
