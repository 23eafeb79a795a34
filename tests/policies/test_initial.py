"""Policies as the start of a run: what fits, and what is said where they do not."""

import dataclasses

import jax
import numpy as np
import pytest
from policy_helpers import NET, maze_policy  # noqa: F401

import homing
from homing.cli.main import main
from homing.config.run import from_json, run_config, to_json
from homing.errors import ConfigError
from homing.policies import find_policies
from homing.policies.initial import initial_learner
from homing.policies.store import write_policies
from homing.training.build import build

NETS = {"critic_net": NET, "actor_net": NET, "representation_dim": 4}


def initial(source, agent="crl", env="point_u_maze", seeds=(3, 4), **changes):
    config = run_config(
        agent,
        env,
        preset_name="quickstart",
        seeds=seeds,
        init_from=str(source),
        changes={"num_envs": 4, **changes},
    )
    return initial_learner(config, build(config))


def same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_each_seed_starts_with_its_own(maze_policy):  # noqa: F811
    learner = find_policies(maze_policy).learner
    same(initial(maze_policy, **NETS), learner)
    same(initial(maze_policy, seeds=(4, 3), **NETS), jax.tree.map(lambda x: x[::-1], learner))


def test_the_only_seed_of_a_file_is_the_start_of_all(maze_policy, tmp_path):  # noqa: F811
    one = find_policies(maze_policy).only((4,))
    path = write_policies(tmp_path / "one.safetensors", one)
    taken = initial(path, seeds=(0, 1, 2), **NETS)
    for seed in range(3):
        same(jax.tree.map(lambda x, seed=seed: x[seed], taken), jax.tree.map(lambda x: x[0], one.learner))


def test_seeds_that_it_does_not_have_are_refused(maze_policy):  # noqa: F811
    with pytest.raises(ConfigError, match=r"has the seeds 3, 4.*homing export .*--seed 3"):
        initial(maze_policy, seeds=(3, 5), **NETS)


def test_other_networks_are_refused_with_their_flags(maze_policy):  # noqa: F811
    with pytest.raises(
        ConfigError, match=r"not those of this run.*--critic-net\.width 8.*--actor-net\.depth 1"
    ):
        initial(maze_policy)
    with pytest.raises(ConfigError, match=r"trained with: --representation-dim 4$"):
        initial(maze_policy, **NETS | {"representation_dim": 8})


def test_another_agent_and_another_environment_are_refused(maze_policy):  # noqa: F811
    with pytest.raises(ConfigError, match="holds policies of crl, and sac cannot"):
        initial(maze_policy, agent="sac")
    with pytest.raises(ConfigError, match="cannot act in reacher"):
        initial(maze_policy, env="reacher", **NETS)


def test_parameters_that_are_not_finite_are_refused(maze_policy, monkeypatch):  # noqa: F811
    policies = find_policies(maze_policy)
    broken = dataclasses.replace(
        policies, learner=jax.tree.map(lambda x: x.at[1].set(np.nan), policies.learner)
    )
    monkeypatch.setattr("homing.policies.initial.find_policies", lambda source: broken)
    same(initial("run", seeds=(3,), **NETS), jax.tree.map(lambda x: x[:1], policies.learner))
    with pytest.raises(ConfigError, match="diverged"):
        initial("run", **NETS)


def test_the_command_takes_a_shipped_policy_and_refuses_what_is_none(capsys):
    flags = ("--preset", "quickstart", "--num-envs", "4", "--cpu", "--dry-run", "--init-from")
    settings = find_policies("point_u_maze").settings
    width = ("--critic-net.width", "192", "--actor-net.width", "192")
    assert settings.critic_net.width == 192
    main(["train", "crl", "point_u_maze", *width, *flags, "point_u_maze"])
    with pytest.raises(SystemExit):
        main(["train", "crl", "point_u_maze", *width, *flags, "point_u_mase"])
    assert "point_u_maze" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="init_from"):
        homing.train("crl", "point_u_maze", init_from=3)


def test_a_config_keeps_what_it_started_with(maze_policy):  # noqa: F811
    config = run_config("crl", "point_u_maze", preset_name="quickstart", init_from=maze_policy)
    assert from_json(to_json(config)) == config
