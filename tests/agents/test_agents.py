"""All agents alike: greedy actions, seeds side by side, one trace, runs that go on after a stop."""

import dataclasses
import functools
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import NETS, SMALL, SPEC, some_batch
from probes import walk
from run_helpers import SAVE, TRAIN, Watch, assert_same_results, no_key_check, probe_envs, run  # noqa: F401

import homing
from homing.agents import AGENTS, make_agent
from homing.agents.crl import CRLConfig
from homing.agents.gcbc import GCBCConfig
from homing.agents.ppo import PPOConfig
from homing.agents.sac import SACConfig
from homing.agents.srl import SRLConfig
from homing.agents.td3 import TD3Config
from homing.config.onpolicy import OnPolicyConfig
from homing.config.presets import preset
from homing.training import runner
from homing.training.build import make_loop, make_plan
from homing.training.seeds import programs, seed_keys
from homing.types import Obs, UpdateContext

ON_POLICY = OnPolicyConfig(total_steps=1_920, num_envs=8, unroll_length=10, evaluations=4, eval_envs=8)
SETTINGS = {
    "crl": CRLConfig(**NETS, representation_dim=8, normalise_observations=True),
    "sac": SACConfig(**NETS, her=True),
    "td3": TD3Config(**NETS, her=True, her_strategy="episode"),
    "srl": SRLConfig(
        encoder_net=SMALL,
        head_net=SMALL,
        actor_net=SMALL,
        representation_dim=8,
        horizon=20,
        hazard_bins=8,
        occupancy_bins=4,
    ),
    "ppo": PPOConfig(actor_net=SMALL, value_net=SMALL, minibatches=2, normalise_observations=True),
    "gcbc": GCBCConfig(actor_net=SMALL),
}
# Runs of the others, which learn from a dataset, are in training/test_offline.py.
COLLECTING = [name for name, (_, agent) in AGENTS.items() if not getattr(agent, "needs_data", False)]
slow = pytest.mark.slow


def loop_config(name):
    return ON_POLICY if name == "ppo" else TRAIN


@functools.cache
def untrained(name):
    agent = make_agent(SETTINGS[name], SPEC)
    return agent, jax.jit(agent.init)(jax.random.key(0))


@pytest.mark.parametrize("name", ["crl", "sac", "td3"])
def test_lr_scale_scales_every_learning_rate(name):
    agent, learner = untrained(name)
    draws = agent.draw(jax.random.key(1), 6)
    update = jax.jit(agent.update)

    def step(lr_scale):
        after, _ = update(learner, some_batch(), draws, UpdateContext(np.int32(1), np.float32(lr_scale)))
        before, after = (jax.tree.map(np.asarray, fits_of(x)) for x in (learner, after))
        moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), after, before)
        return {part: max(jax.tree.leaves(moved[part])) for part in moved}

    whole, half, none = step(1.0), step(0.5), step(0.0)
    assert ("log_alpha" in whole) == (name != "td3")
    for part, moved in whole.items():
        assert moved > 0, part
        assert half[part] == pytest.approx(0.5 * moved, rel=1e-3), part
        assert none[part] == 0, part


def fits_of(learner):
    """All that gradients move, by part: networks and the temperature; no targets, no statistics."""
    learner = getattr(learner, "learner", learner)
    if hasattr(learner, "critic"):
        return {"critic": learner.critic.params, "actor": learner.actor.params}
    return getattr(learner, "fit", learner).params


@pytest.mark.parametrize("name", AGENTS)
def test_greedy_actions_are_deterministic_and_in_range(name):
    """A20: one protocol of evaluation, without noise, for all agents."""
    agent, learner = untrained(name)
    rng = np.random.default_rng(0)
    normal = lambda size: (9 * rng.normal(size=(40, size))).astype(np.float32)
    obs = Obs(state=normal(4), goal=normal(3))

    @jax.jit
    def act(learner, key):
        k_greedy, k_noisy = jax.random.split(key)
        return [agent.act(learner, obs, k, explore=k is k_noisy) for k in (k_greedy, k_noisy)]

    (*greedy,), (*noisy,) = zip(
        *(map(np.asarray, act(learner, jax.random.key(k))) for k in (1, 2)), strict=True
    )
    np.testing.assert_array_equal(*greedy)
    assert not np.array_equal(*noisy)
    for action in greedy + noisy:
        assert action.shape == (40, agent.chunk * 2)
        assert np.abs(action).max() <= 1
    assert agent.has_critic == (name != "gcbc")
    if agent.has_critic:
        assert jax.eval_shape(agent.value, learner, obs, greedy[0]).shape == (40,)


def test_presets_of_the_paper():
    for name, gamma in (("sac", 0.99), ("td3", 0.99), ("ppo", 0.97)):
        chosen = preset(name, "paper")
        assert chosen.agent.gamma == gamma
        assert not chosen.agent.normalise_observations
    assert preset("ppo", "paper").train.num_envs == 4096
    sac = preset("sac", "paper")
    assert (sac.train.num_envs, sac.train.unroll_length, sac.train.prefill_steps) == (1024, 62, 1000)
    for env, num_envs in (("humanoid", 512), ("humanoid_u_maze", 512), ("ant", 1024)):
        assert preset("td3", "paper", env).train.num_envs == num_envs
    assert preset("ppo", "paper", "humanoid").train.num_envs == 4096


def counted(name):
    """The agent, counting how often it is traced."""
    agent = make_agent(SETTINGS[name], walk().spec)
    traced = []
    learn = "learn" if name == "ppo" else "update"
    inner = getattr(agent, learn)
    setattr(agent, learn, lambda *args: traced.append(1) or inner(*args))
    return agent, traced


@slow
@pytest.mark.parametrize("name", AGENTS)
def test_one_of_three_seeds_is_as_if_alone_and_programs_are_traced_once(name):
    env = walk(num_envs=8)
    agent, traced = counted(name)
    plan = make_plan(loop_config(name), env, agent)
    made = programs(make_loop(env, agent, plan), env)

    def trained(seeds):
        train = made.init(seed_keys(seeds))
        for epoch in range(plan.epochs):
            before = len(traced)
            train, metrics = made.epoch(train, *plan.epoch_bounds(epoch))
            assert epoch == 0 or len(traced) == before
            assert bool(metrics["finite"].all())
        return train.learner, made.evaluate(train, plan.iterations)

    together, scores = trained([3, 4, 5])
    traces = len(traced)
    alone, score = trained([4])
    assert len(traced) == 2 * traces  # another number of seeds is another program
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(np.asarray(a)[1], np.asarray(b)[0], rtol=2e-3, atol=2e-4)
        if a.size > 3 * 8 and jnp.issubdtype(a.dtype, jnp.floating):
            assert not np.allclose(np.asarray(a)[0], np.asarray(a)[1], atol=0)  # second moments are tiny
    assert float(scores["final_distance"][1]) == pytest.approx(float(score["final_distance"][0]), abs=0.02)


@slow
@pytest.mark.parametrize("name", COLLECTING)
@pytest.mark.usefixtures("probe_envs")
def test_a_stopped_run_goes_on_as_if_nothing_had_happened(name, tmp_path):
    changes = {"agent": name, "settings": SETTINGS[name], "train": loop_config(name)}
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert run(whole, **changes)[0].status == "finished"

    def stop(iteration):
        if iteration == 13:
            signal.raise_signal(signal.SIGTERM)

    outcome, _ = run(stopped, hook=stop, **changes)
    assert outcome.status == "stopped"
    assert runner.resume(stopped, Watch()).status == "finished"
    assert_same_results(whole, stopped)
    # The policy that is loaded is the one that was trained, its normalisation included.
    state, goal = np.full((2, 2), 0.3, np.float32), np.full((2, 2), -0.4, np.float32)
    action = homing.load(whole, seed=4)(state, goal)
    np.testing.assert_array_equal(action, homing.load(stopped, seed=4)(state, goal))
    assert np.abs(action).max() <= 1


def test_names_of_settings_are_saved_and_read_back(tmp_path):
    from homing.config.run import RunConfig, from_json, to_json

    for name in AGENTS:
        config = RunConfig(
            agent=name,
            env="reacher",
            train=dataclasses.replace(loop_config(name), evaluations=3),
            settings=SETTINGS[name],
            reward="dense",
            save=SAVE,
        )
        assert from_json(to_json(config)) == config
