"""The averaged policy: exactly the moving average of parameters, evaluated and saved in place of the last."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from probes import Probe, ProbeSpec
from run_helpers import TRAIN, no_key_check, probe_envs, run  # noqa: F401

from homing.agents import OffPolicyAgent
from homing.agents.normalised import Moments, NormalisedLearner
from homing.config.offpolicy import TrainConfig
from homing.networks import Fit
from homing.policies import find_policies
from homing.training import run as run_module
from homing.training.loop import TrainState, averaged
from homing.training.offpolicy import OffPolicy, make_plan
from homing.types import Array

DECAY, STEP = 0.8, 0.002
CONFIG = TrainConfig(
    total_steps=1_000,
    num_envs=4,
    unroll_length=5,
    batch_size=8,
    updates_per_step=0.13,
    replay_size=50,
    prefill_steps=10,
    evaluations=2,
    eval_envs=4,
    policy_ema=DECAY,
)


def mirror():
    """State and achieved goal are the action; the goal is 0."""
    spec = ProbeSpec(state_dim=1, action_dim=1, goal_dim=1, goal_indices=(0,), threshold=0.1)
    zeros = lambda key: jnp.zeros(1, jnp.float32)
    dynamics = lambda state, action, steps, key: (action, jnp.zeros((), bool))
    return Probe(spec, zeros, zeros, dynamics, num_envs=4, episode_length=6)


class Counting(struct.PyTreeNode):
    fit: Fit
    updates: Array  # [] int32


class Climber(OffPolicyAgent):
    """Its one parameter grows by the same step at every update and is its action."""

    spec = mirror().spec

    def init(self, key):
        return Counting(Fit(params=jnp.zeros((), jnp.float32), opt_state=()), jnp.zeros((), jnp.int32))

    def act(self, learner, obs, key, *, explore):
        return jnp.broadcast_to(learner.fit.params, obs.goal.shape)

    def update(self, learner, batch, draws, context):
        fit = learner.fit.replace(params=learner.fit.params + STEP)
        return Counting(fit, learner.updates + 1), {}


@functools.cache
def trained(config):
    """Plan, last state and evaluation of a run."""
    env = mirror()
    plan = make_plan(config, env, Climber())
    loop = OffPolicy(env, Climber(), plan)

    @jax.jit
    def run(key):
        train, _ = loop.epoch(loop.init(key), jnp.int32(0), jnp.int32(plan.iterations))
        return train, loop.evaluate(train, jnp.int32(plan.iterations), env)

    return plan, *run(jax.random.key(0))


def test_parameters_are_averaged_exactly_and_counts_are_taken_as_they_are():
    plan, train, _ = trained(CONFIG)
    average = 0.0
    for iteration in range(plan.iterations):
        average = DECAY * average + (1 - DECAY) * STEP * plan.updates_at(iteration + 1)
    last = STEP * plan.total_updates
    assert float(train.learner.fit.params) == pytest.approx(last, rel=1e-4)
    assert float(train.policy.fit.params) == pytest.approx(average, rel=1e-4)
    assert average < 0.99 * last
    assert int(train.policy.updates) == int(train.learner.updates) == plan.total_updates


def test_moments_of_observations_are_the_newest():
    moments = lambda mean: Moments(*(jnp.full((1,), x, jnp.float32) for x in (mean, mean)), jnp.int32(mean))
    fit = lambda x: Fit(params=jnp.float32(x), opt_state=())
    old, new = (NormalisedLearner(fit(x), moments(x), moments(x)) for x in (0, 10))
    found = averaged(old, new, DECAY)
    assert float(found.learner.params) == pytest.approx(10 * (1 - DECAY))
    jax.tree.map(np.testing.assert_array_equal, (found.state, found.goal), (new.state, new.goal))


class Pair(NamedTuple):
    fit: Fit
    updates: Array


def test_a_learner_may_be_a_tuple():
    pair = Pair(Fit(jnp.float32(1), ()), jnp.int32(2))
    state = TrainState(env=(), replay=(), learner=pair, average=pair._replace(updates=jnp.int32(3)), key=None)
    assert state.policy is state.average
    assert state.replace(average=()).policy is pair


def test_the_averaged_policy_is_evaluated():
    _, train, found = trained(CONFIG)
    assert float(found["final_distance"]) == pytest.approx(float(train.policy.fit.params), rel=1e-5)
    plan, train, found = trained(dataclasses.replace(CONFIG, policy_ema=0.0))
    assert train.policy is train.learner
    assert float(found["final_distance"]) == pytest.approx(STEP * plan.total_updates, rel=1e-4)


@pytest.mark.usefixtures("probe_envs")
def test_the_averaged_policy_is_saved(tmp_path, monkeypatch):
    saved, save = [], run_module.Run._save

    def seen(self, train):
        saved.append(jax.device_get((train.policy.params, train.learner.params)))
        save(self, train)

    monkeypatch.setattr(run_module.Run, "_save", seen)
    # As many updates in each iteration, so that there is no program of remaining ones.
    run(tmp_path / "run", train=dataclasses.replace(TRAIN, policy_ema=0.9, updates_per_step=1 / 40))
    average, last = saved[-1]
    loaded = find_policies(tmp_path / "run").learner.params
    jax.tree.map(np.testing.assert_array_equal, loaded, average)
    apart = jax.tree.map(lambda a, b: np.abs(a - b).max(), loaded, last)
    assert max(jax.tree.leaves(apart)) > 1e-5
