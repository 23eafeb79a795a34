"""Contrastive RL learns what the probes ask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import delay, echo, walk
from scipy import stats

from homing.agents.crl import CRL, CRLConfig
from homing.config import TrainConfig
from homing.nets import NetConfig
from homing.training.offpolicy import OffPolicy, make_plan
from homing.training.seeds import programs, seed_keys
from homing.types import Obs


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # The check takes a vmapped scan over split keys for reuse; test_offpolicy has it on, for one seed.
    with jax.debug_key_reuse(False):
        yield


def learn(env, steps, **settings):
    net = NetConfig(width=32)
    agent = CRL(
        CRLConfig(
            critic_net=net, actor_net=net, representation_dim=16, critic_lr=1e-3, actor_lr=1e-3, **settings
        ),
        env.spec,
    )
    config = TrainConfig(
        total_steps=steps,
        num_envs=32,
        unroll_length=25,
        batch_size=128,
        replay_rows=1000,
        prefill_rows=100,
        evaluations=1,
        eval_envs=32,
    )
    plan = make_plan(config, env, agent, seeds=2)
    made = programs(OffPolicy(env, agent, plan), env)
    train = made.init(seed_keys([0, 1]))
    before = made.evaluate(train, 0)
    train, metrics = made.epoch(train, *plan.epoch_bounds(0))
    assert bool(metrics["finite"].all())
    return agent, train, before, made.evaluate(train, plan.iterations)


def test_echo_the_goal_is_the_action():
    _, _, before, after = learn(echo(), 15_000)
    assert float(before["success_end"].max()) < 0.4
    assert float(after["success_end"].min()) > 0.9


def test_delay_only_the_first_action_counts():
    _, _, before, after = learn(delay(), 45_000)
    assert float(before["success_end"].max()) < 0.5
    assert float(after["success_end"].min()) > 0.8


def test_walk_reaches_goals_and_orders_distances():
    agent, train, before, after = learn(walk(), 25_000)
    assert float(before["success_any"].max()) < 0.8
    assert float(after["success_any"].min()) > 0.9
    assert float(after["final_distance"].max()) < 0.3
    # From the middle, nearer goals must have larger values under the policy's own actions.
    learner = jax.tree.map(lambda x: x[0], train.learner)
    goal = jnp.asarray(np.random.default_rng(0).uniform(-0.9, 0.9, (200, 2)), jnp.float32)
    obs = Obs(state=jnp.zeros((200, 2), jnp.float32), goal=goal)
    value = agent.value(learner, obs, agent.act(learner, obs, jax.random.key(0), explore=False))
    assert stats.spearmanr(value, -jnp.linalg.norm(goal, axis=-1)).statistic > 0.9
