"""Presets build, plan and are found by name."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from probes import walk

from homing.agents import AGENTS, make_agent
from homing.config.presets import PRESETS, preset
from homing.config.run import run_config
from homing.errors import ConfigError, UnknownNameError
from homing.training.build import build, make_plan


@pytest.mark.parametrize(("agent", "name"), [(agent, name) for agent in PRESETS for name in PRESETS[agent]])
def test_every_preset_makes_an_agent_and_a_plan(agent, name):
    chosen = preset(agent, name)
    assert type(chosen.agent) is AGENTS[agent][0]
    env = walk()
    plan = make_plan(chosen.train, env, make_agent(chosen.agent, env.spec))
    assert plan.sizes.learner_bytes > 100_000
    assert chosen.about


@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_presets_with_settings_of_hindsight_use_it(agent):
    assert preset(agent, "fast").agent.her
    assert preset(agent, "fast").agent.relabel.sampler == "uniform_future"
    for name, chosen in PRESETS[agent].items():
        plain = AGENTS[agent][0]()
        changed = any(getattr(chosen.agent, s) != getattr(plain, s) for s in ("her_strategy", "her_ratio"))
        assert chosen.agent.her or not changed, name


def test_wrong_names_are_answered():
    with pytest.raises(UnknownNameError, match="quickstart"):
        preset("crl", "quick_start")
    with pytest.raises(UnknownNameError, match="crl"):
        preset("cr", "paper")


def test_presets_differ_where_an_environment_needs_it():
    assert preset("crl", "paper", "humanoid_u_maze").train.num_envs == 512
    assert (
        preset("crl", "paper", "ant").train.num_envs
        == preset("crl", "fast", "humanoid").train.num_envs
        == 1024
    )
    assert preset("ppo", "paper", "humanoid").train == PRESETS["ppo"]["paper"].train
    assert preset("crl", "fast", "ant").train.train_episode_length == 300
    assert preset("crl", "fast", "ant_u_maze").train.train_episode_length is None


@pytest.mark.parametrize("name", ["paper", "chrono", "srl"])
def test_robots_that_fall_follow_sequences_of_goals_as_published(name):
    for env in ("humanoid", "humanoid_u_maze"):
        chosen = preset("srl", name, env)
        assert (chosen.agent.dwell, chosen.agent.goal_points, chosen.train.batch_size) == (32, 32, 1024)
        assert chosen.train.updates_per_step == 484 / (62 * 512)
        assert dataclasses.replace(chosen.agent, dwell=1, goal_points=1) == PRESETS["srl"][name].agent
    assert preset("srl", name, "ant_u4_maze") == PRESETS["srl"][name]
    assert preset("srl", "fast", "humanoid").agent.goal_points == 1


def test_an_alias_of_the_environment_is_evaluated_in_with_its_options():
    options, changes = {"task.within": 0.9}, {"num_envs": 4}
    same = run_config("crl", "point_u_maze", changes=changes, eval_env="simple_u_maze", env_options=options)
    assert build(same).eval_env.spec.threshold == 0.9


def test_only_agents_that_learn_from_rewards_need_exact_states_for_dense_ones():
    half = {"num_envs": 4, "replay_dtype": "bfloat16"}
    for agent in ("crl", "srl"):
        build(run_config(agent, "point_u_maze", changes=half, reward="dense"))
    with pytest.raises(ConfigError, match="--replay-dtype float32"):
        build(run_config("sac", "point_u_maze", changes=half | {"her": True}, reward="dense"))


@pytest.mark.parametrize(("asked", "limit", "trained"), [(None, 40, 40), (7, 40, 7), (50, 40, 40)])
def test_training_may_cut_episodes_and_evaluation_does_not(asked, limit, trained):
    changes = {"num_envs": 4, "train_episode_length": asked}
    parts = build(run_config("crl", "point_u_maze", changes=changes, episode_length=limit))
    assert (parts.env.episode_length, parts.env.spec.episode_length) == (trained, trained)
    assert parts.eval_env.episode_length == limit
    assert parts.env.num_envs == 4
    steps = jnp.asarray([0, 1, trained - 2, trained - 1], jnp.int32)
    first = lambda key: parts.env.reset(key).replace(steps=steps)
    after = jax.jit(lambda key: parts.env.step(first(key), jnp.zeros((4, 2))))(jax.random.key(0))
    assert after.truncated.tolist() == [False, False, False, True]


def test_single_settings_of_a_network_change_that_of_the_preset():
    whole = preset("ppo", "dense").agent.actor_net
    changed = run_config("ppo", "reacher", preset_name="dense", changes={"actor_net": {"depth": 5}}).settings
    assert changed.actor_net == dataclasses.replace(whole, depth=5)
    assert changed.value_net == preset("ppo", "dense").agent.value_net
    with pytest.raises(UnknownNameError, match="did you mean 'width'"):
        run_config("ppo", "reacher", changes={"actor_net": {"widht": 5}})
    with pytest.raises(ConfigError, match="residual blocks have four layers"):
        run_config("crl", "reacher", changes={"critic_net": {"residual": "blocks", "depth": 3}})
