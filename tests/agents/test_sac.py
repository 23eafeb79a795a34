"""SAC: its losses against plain arithmetic, what each gradient reaches, and its slow critics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import NETS, SPEC, some_batch

from homing.agents.actor_critic import Critics, forward, init_params, join, polyak, td_loss
from homing.agents.sac import SAC, SACConfig
from homing.errors import ConfigError, UnknownNameError
from homing.types import Obs, UpdateContext


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # These tests compare draws from the same key.
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture(scope="module")
def agent():
    return SAC(SACConfig(**NETS, gamma=0.9), SPEC)


@pytest.fixture(scope="module")
def learner(agent):
    made = jax.jit(agent.init)(jax.random.key(0))
    # Targets that differ from the critics, and an entropy weight that is not 1.
    target = jax.tree.map(lambda x: x + 0.1, made.target)
    params = made.fit.params | {"log_alpha": jnp.float32(-0.7)}
    return made.replace(target=target, fit=made.fit.replace(params=params))


@pytest.fixture(scope="module")
def loss(agent, learner):
    batch, noise = some_batch(), agent.draw(jax.random.key(1), 6)
    of = lambda params: agent._loss(params, learner.target, batch, noise)
    (_, metrics), grads = jax.jit(jax.value_and_grad(of, has_aux=True))(learner.fit.params)
    return batch, noise, metrics, grads


def q_of(agent, params, obs, action):
    """Each critic by itself [2, B]."""
    one = lambda i: forward(
        agent.critics.module, jax.tree.map(lambda x: x[i], params), join(obs.state, obs.goal, action)
    )
    return np.stack([np.asarray(one(i))[:, 0] for i in range(2)])


def draw(agent, params, obs, noise):
    """Actions and their log-densities, by the textbook formula."""
    mean, log_std = agent.policy(params, obs)
    x = np.asarray(mean + jnp.exp(log_std) * noise, np.float64)
    log_prob = -0.5 * np.asarray(noise) ** 2 - np.asarray(log_std) - 0.5 * np.log(2 * np.pi)
    return np.tanh(x), np.sum(log_prob - np.log(1 - np.tanh(x) ** 2), axis=-1)


def test_losses_are_those_of_the_formulas(agent, learner, loss):
    batch, noise, metrics, _ = loss
    params, alpha = learner.fit.params, np.exp(-0.7)
    action, log_prob = draw(agent, params, batch.obs, noise[0])
    after, log_prob_after = draw(agent, params, batch.next_obs, noise[1])
    q_next = q_of(agent, learner.target, batch.next_obs, after).min(0)
    # The second row has fallen: nothing follows. The third was cut off: it has no target.
    follows = np.asarray([1, 0, 1, 1, 1, 1])
    target = np.asarray(batch.reward) + 0.9 * follows * (q_next - alpha * log_prob_after)
    error = q_of(agent, params["critic"], batch.obs, batch.action) - target
    counted = np.asarray([1, 1, 0, 1, 1, 1])
    assert float(metrics["critic_loss"]) == pytest.approx(0.5 * np.mean(counted * error**2), rel=1e-4)
    q_now = q_of(agent, params["critic"], batch.obs, action).min(0)
    assert float(metrics["actor_loss"]) == pytest.approx(np.mean(alpha * log_prob - q_now), rel=1e-4)
    assert float(metrics["entropy"]) == pytest.approx(-log_prob.mean(), rel=1e-4)
    wanted = -0.5 * 2
    assert float(metrics["alpha_loss"]) == pytest.approx(alpha * (-log_prob.mean() - wanted), rel=1e-4)


def test_each_loss_moves_its_own_parameters_only(agent, learner, loss):
    """One gradient of the sum is the gradient of each."""
    batch, noise, metrics, grads = loss
    params = learner.fit.params
    x = join(batch.obs.state, batch.obs.goal, batch.action)

    def critic_loss(critic):
        after, log_prob = draw(agent, params, batch.next_obs, noise[1])
        q_next = q_of(agent, learner.target, batch.next_obs, after).min(0)
        target = batch.reward + 0.9 * batch.discount * (q_next - np.exp(-0.7) * log_prob)
        return td_loss(agent.critics(critic, x), jnp.asarray(target, jnp.float32), batch.weight)

    own = jax.grad(critic_loss)(params["critic"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5), own, grads["critic"])
    alpha_slope = np.exp(-0.7) * (float(metrics["entropy"]) + 1.0)
    assert float(grads["log_alpha"]) == pytest.approx(alpha_slope, rel=1e-4)
    assert max(float(jnp.abs(x).max()) for x in jax.tree.leaves(grads["actor"])) > 0


def test_targets_follow_the_new_critics_by_tau(agent, learner):
    noise = agent.draw(jax.random.key(1), 6)
    after, _ = jax.jit(agent.update)(learner, some_batch(), noise, UpdateContext())
    wanted = jax.tree.map(
        lambda old, new: 0.995 * old + 0.005 * new, learner.target, after.fit.params["critic"]
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), wanted, after.target)
    # Adam's first step is the learning rate, for each of them.
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), after.fit.params, learner.fit.params)
    for part in ("actor", "critic", "log_alpha"):
        assert max(jax.tree.leaves(moved[part])) == pytest.approx(3e-4, rel=0.02)


def test_greedy_actions_are_the_squashed_mean_and_values_the_smaller(agent, learner):
    batch = some_batch()
    greedy = agent.act(learner, batch.obs, jax.random.key(3), explore=False)
    np.testing.assert_allclose(greedy, jnp.tanh(agent.policy(learner.fit.params, batch.obs)[0]), rtol=1e-6)
    value = agent.value(learner, batch.obs, greedy)
    np.testing.assert_allclose(
        value, q_of(agent, learner.fit.params["critic"], batch.obs, greedy).min(0), rtol=1e-5
    )
    tall = Obs(state=jnp.zeros((3, 5, 4)), goal=jnp.zeros((3, 5, 3)))
    assert agent.value(learner, tall, jnp.zeros((3, 5, 2))).shape == (3, 5)


def test_critics_of_a_stack_are_each_as_if_alone():
    critics, keys = Critics(NETS["critic_net"]), jax.random.split(jax.random.key(0), 2)
    params = jax.jit(critics.init, static_argnums=1)(jax.random.key(0), 9)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 9)), jnp.float32)
    together = critics.each(params, join(x))
    for i in range(2):
        alone = jax.jit(lambda key: init_params(critics.module, key, 9))(keys[i])
        np.testing.assert_allclose(together[i], forward(critics.module, alone, join(x[i]))[:, 0], rtol=1e-5)


def test_polyak_and_the_masked_error_by_hand():
    assert float(polyak(jnp.float32(2), jnp.float32(4), 0.25)) == 2.5
    q = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert float(td_loss(q, jnp.asarray([0.0, 9.0]), jnp.asarray([1.0, 0.0]))) == 0.5 * (1 + 9) / 4


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(UnknownNameError, match="final"):
        SACConfig(her_strategy="finale")  # type: ignore[arg-type]
    for settings, word in [
        ({"gamma": 1.0}, "gamma"),
        ({"her_ratio": 1.5}, "her_ratio"),
        ({"random_goal_ratio": -0.1}, "random_goal_ratio"),
        ({"tau": 0.0}, "tau"),
    ]:
        with pytest.raises(ConfigError, match=word):
            SACConfig(**settings)
