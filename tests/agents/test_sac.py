"""SAC: its losses against plain arithmetic, what each gradient reaches, and its slow critics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import NETS, SPEC, any_learner, some_batch

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
    # Targets that differ from the critics, and an entropy weight that is not 1.
    made = any_learner(agent)
    return made.replace(fit=made.fit.replace(params=made.fit.params | {"log_alpha": np.float32(-0.7)}))


@pytest.fixture(scope="module")
def noise(agent):
    return np.asarray(agent.draw(jax.random.key(1), 6))


@pytest.fixture(scope="module")
def loss(agent, learner, noise):
    batch = some_batch()
    of = lambda params: agent._loss(params, learner.target, batch, noise)
    (_, metrics), grads = jax.jit(jax.value_and_grad(of, has_aux=True))(learner.fit.params)
    return batch, metrics, grads


@pytest.fixture(scope="module")
def q_of(agent):
    """Each critic by itself [2, B]."""

    @jax.jit
    def alone(params, obs, action):
        x = join(obs.state, obs.goal, action)
        return [forward(agent.critics.module, jax.tree.map(lambda p, i=i: p[i], params), x) for i in range(2)]

    return lambda params, obs, action: np.stack(alone(params, obs, np.float32(action)))[..., 0]


@pytest.fixture(scope="module")
def draw(agent):
    """Actions and their log-densities, by the textbook formula."""
    policy = jax.jit(agent.policy)

    def drawn(params, obs, noise):
        mean, log_std = (np.asarray(x, np.float64) for x in policy(params, obs))
        x = mean + np.exp(log_std) * noise
        log_prob = -0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi)
        return np.tanh(x), np.sum(log_prob - np.log(1 - np.tanh(x) ** 2), axis=-1)

    return drawn


def test_losses_are_those_of_the_formulas(learner, loss, noise, draw, q_of):
    batch, metrics, _ = loss
    params, alpha = learner.fit.params, np.exp(-0.7)
    action, log_prob = draw(params, batch.obs, noise[0])
    after, log_prob_after = draw(params, batch.next_obs, noise[1])
    q_next = q_of(learner.target, batch.next_obs, after).min(0)
    # The second row has fallen: nothing follows. The third was cut off: it has no target.
    follows = np.asarray([1, 0, 1, 1, 1, 1])
    target = np.asarray(batch.reward) + 0.9 * follows * (q_next - alpha * log_prob_after)
    error = q_of(params["critic"], batch.obs, batch.action) - target
    counted = np.asarray([1, 1, 0, 1, 1, 1])
    assert float(metrics["critic_loss"]) == pytest.approx(0.5 * np.mean(counted * error**2), rel=1e-4)
    q_now = q_of(params["critic"], batch.obs, action).min(0)
    assert float(metrics["actor_loss"]) == pytest.approx(np.mean(alpha * log_prob - q_now), rel=1e-4)
    assert float(metrics["entropy"]) == pytest.approx(-log_prob.mean(), rel=1e-4)
    wanted = -0.5 * 2
    assert float(metrics["alpha_loss"]) == pytest.approx(alpha * (-log_prob.mean() - wanted), rel=1e-4)


def test_each_loss_moves_its_own_parameters_only(agent, learner, loss, noise, draw, q_of):
    """One gradient of the sum is the gradient of each."""
    batch, metrics, grads = loss
    params = learner.fit.params
    after, log_prob = draw(params, batch.next_obs, noise[1])
    q_next = q_of(learner.target, batch.next_obs, after).min(0)
    target = np.asarray(batch.reward) + 0.9 * np.asarray(batch.discount) * (q_next - np.exp(-0.7) * log_prob)

    def critic_loss(critic):
        x = join(batch.obs.state, batch.obs.goal, batch.action)
        return td_loss(agent.critics(critic, x), np.float32(target), batch.weight)

    own = jax.jit(jax.grad(critic_loss))(params["critic"])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5), own, grads["critic"])
    alpha_slope = np.exp(-0.7) * (float(metrics["entropy"]) + 1.0)
    assert float(grads["log_alpha"]) == pytest.approx(alpha_slope, rel=1e-4)
    assert max(np.abs(x).max() for x in jax.tree.leaves(grads["actor"])) > 0


def test_targets_follow_the_new_critics_by_tau(agent, learner, noise):
    after, _ = jax.jit(agent.update)(learner, some_batch(), noise, UpdateContext())
    after, learner = jax.tree.map(np.asarray, (after, learner))
    wanted = jax.tree.map(
        lambda old, new: 0.995 * old + 0.005 * new, learner.target, after.fit.params["critic"]
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), wanted, after.target)
    # Adam's first step is the learning rate, for each of them.
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), after.fit.params, learner.fit.params)
    for part in ("actor", "critic", "log_alpha"):
        assert max(jax.tree.leaves(moved[part])) == pytest.approx(3e-4, rel=0.02)


def test_greedy_actions_are_the_squashed_mean_and_values_the_smaller(agent, learner, q_of):
    obs, tall = (
        some_batch().obs,
        Obs(state=np.zeros((3, 5, 4), np.float32), goal=np.zeros((3, 5, 3), np.float32)),
    )

    @jax.jit
    def greedy_mean_and_value(learner):
        greedy = agent.act(learner, obs, jax.random.key(3), explore=False)
        mean = jnp.tanh(agent.policy(learner.fit.params, obs)[0])
        return greedy, mean, agent.value(learner, obs, greedy)

    greedy, mean, value = greedy_mean_and_value(learner)
    np.testing.assert_allclose(greedy, mean, rtol=1e-6)
    np.testing.assert_allclose(value, q_of(learner.fit.params["critic"], obs, greedy).min(0), rtol=1e-5)
    assert jax.eval_shape(agent.value, learner, tall, np.zeros((3, 5, 2), np.float32)).shape == (3, 5)


def test_critics_of_a_stack_are_each_as_if_alone():
    critics = Critics(NETS["critic_net"])
    x = np.random.default_rng(0).normal(size=(2, 5, 9)).astype(np.float32)

    @jax.jit
    def together_and_alone(key):
        params = [init_params(critics.module, k, 9) for k in jax.random.split(key, 2)]
        alone = [forward(critics.module, p, join(x[i]))[:, 0] for i, p in enumerate(params)]
        return critics.each(critics.init(key, 9), join(x)), alone

    together, alone = together_and_alone(jax.random.key(0))
    np.testing.assert_allclose(together, np.stack(alone), rtol=1e-5)


def test_the_scale_of_weights_does_not_depend_on_padding():
    module = Critics(NETS["critic_net"]).module
    first = jax.tree.leaves(jax.jit(lambda key: init_params(module, key, 2))(jax.random.key(0)))
    kernel = next(x for x in first if x.ndim == 2 and len(x) == 8)
    assert 0.6 < np.abs(kernel[:2]).max() <= 2**-0.5
    assert not np.any(kernel[2:])


def test_polyak_and_the_masked_error_by_hand():
    assert float(polyak(np.float32(2), np.float32(4), 0.25)) == 2.5
    q, target, weight = map(np.float32, ([[1.0, 2.0], [3.0, 4.0]], [0.0, 9.0], [1.0, 0.0]))
    assert float(jax.jit(td_loss)(q, target, weight)) == 0.5 * (1 + 9) / 4


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
