"""Behaviour cloning: its loss against plain arithmetic, and the maximum that it has."""

import jax
import numpy as np
import pytest
from agent_helpers import SMALL, SPEC, any_learner

from homing.agents.crl import CRL, CRLConfig
from homing.agents.gaussian import MAX_ACTION, log_likelihood
from homing.agents.gcbc import GCBC, GCBCBatch, GCBCConfig
from homing.types import Obs, UpdateContext


@pytest.fixture(scope="module")
def batch():
    random = np.random.default_rng(0)
    draw = lambda *shape: random.uniform(-1, 1, shape).astype(np.float32)
    return GCBCBatch(obs=Obs(state=draw(64, 4), goal=draw(64, 3)), action=draw(64, 2))


def test_the_loss_is_minus_the_log_likelihood(batch):
    agent = GCBC(GCBCConfig(actor_net=SMALL), SPEC)
    params = any_learner(agent).params | {"log_std": np.float32([-0.5, 0.3])}
    found = jax.jit(lambda params: (agent._loss(params, batch), agent.policy(params, batch.obs)[0]))
    (loss, metrics), mean = found(params)
    mean, std = np.asarray(mean), np.exp([-0.5, 0.3])
    densities = np.exp(-0.5 * ((batch.action - mean) / std) ** 2) / (std * np.sqrt(2 * np.pi))
    assert float(loss) == pytest.approx(-np.log(densities).sum(axis=1).mean(), rel=1e-4)
    assert float(metrics["action_error"]) == pytest.approx(
        np.sqrt(np.mean((batch.action - mean) ** 2)), rel=1e-4
    )


def test_the_standard_deviation_becomes_that_of_the_errors(batch):
    """Of actions that are noise, the likeliest policy is the mean, and σ their standard deviation."""
    agent = GCBC(GCBCConfig(actor_net=SMALL, actor_lr=1e-2), SPEC)
    blind = batch.replace(obs=jax.tree.map(np.zeros_like, batch.obs))

    @jax.jit
    def learned(learner):
        step = lambda i, learner: agent.update(learner, blind, None, UpdateContext(i, 1.0))[0]
        return agent.policy(jax.lax.fori_loop(0, 800, step, learner).params, blind.obs)

    mean, log_std = map(np.asarray, learned(any_learner(agent)))
    np.testing.assert_allclose(mean[0], blind.action.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(np.exp(log_std), blind.action.std(axis=0), rtol=0.03)


def test_the_likelihood_of_an_action_at_its_limit_is_finite():
    mean, log_std = np.zeros((2, 3, 2), np.float32)
    ends = np.float32([[1.0, -1.0], [MAX_ACTION, -MAX_ACTION], [0.0, 0.0]])
    found = np.asarray(jax.jit(log_likelihood)(mean, log_std, ends))
    assert np.isfinite(found).all() and found[0] == found[1]
    assert found[2] == pytest.approx(-np.log(2 * np.pi), rel=1e-5)


def test_cloning_in_contrastive_rl_counts_own_goals_only():
    """−log π for each action dimension; transitions with another's goal do not count."""
    agent = CRL(CRLConfig(critic_net=SMALL, actor_net=SMALL, representation_dim=8, bc_weight=1.0), SPEC)
    head, action = np.zeros((4, 4), np.float32), np.zeros((4, 2), np.float32)
    loss = jax.jit(agent._cloning_loss)
    whole, half = (float(loss(head, action, swap)) for swap in (None, np.array([True, False, True, False])))
    assert half == pytest.approx(whole / 2, rel=1e-6)
    assert whole == pytest.approx(0.5 * np.log(2 * np.pi) - 1.5, rel=1e-4)  # σ is e^−1.5 where its head is 0
