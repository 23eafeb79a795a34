"""Recipes name agents and presets that exist, and quote what their recorded runs reached."""

import json
from pathlib import Path

import pytest
from cli_helpers import command

import homing
from homing.config.presets import preset
from homing.config.recipes import UNMEASURED, recipe_for, recipes
from homing.config.run import RunConfig
from homing.envs import env_ids
from homing.errors import ConfigError, UnknownNameError

ROOT = Path(__file__).parents[2]


def test_recipes_are_of_known_agents_and_presets():
    for recipe in recipes():
        assert preset(recipe.agent, recipe.preset)
    assert recipes()[-1].env == "*", "every environment has one"


@pytest.mark.parametrize("env", env_ids())
def test_every_environment_has_a_recipe_with_large_evaluations_that_says_if_it_was_measured(env):
    recipe = recipe_for(env)
    chosen = preset(recipe.agent, recipe.preset, env)
    episodes = recipe.settings.get("eval_envs", chosen.train.eval_envs)
    assert episodes >= 512, "fewer episodes say little of each goal cell"
    assert RunConfig(
        agent=recipe.agent,
        env=env,
        train=chosen.train,
        settings=chosen.agent,
        seeds=(0,),
        preset=recipe.preset,
    )
    assert (UNMEASURED in recipe.summary) == (recipe.reached is None) == (recipe.result is None)


def test_a_recipe_without_a_recorded_run_says_so(capsys):
    code, out, _ = command(capsys, "recipes")
    rows = [line for line in out.splitlines() if any(f" {agent} " in line for agent in ("srl", "crl", "ppo"))]
    rows = [row for row in rows if "│" in row]
    assert code == 0 and len(rows) == len(recipes())
    assert "all others" in rows[-1]
    for recipe, row in zip(recipes(), rows, strict=True):
        assert (UNMEASURED in row) == (recipe.result is None)


def test_recipes_can_be_filtered_by_environment(capsys):
    code, out, _ = command(capsys, "recipes", "u4", "--json")
    assert code == 0
    assert [row["env"] for row in json.loads(out)] == ["ant_u4_maze", "ant_*maze*"]
    code, _, err = command(capsys, "recipes", "atn")
    assert code == 2 and "ant" in err


def test_numbers_are_those_of_the_recorded_runs():
    from make_recipes import reached

    measured = reached()
    assert measured
    for recipe in recipes():
        if recipe.result is not None:
            assert recipe.reached is not None
            assert recipe.reached.__dict__ == measured[recipe.result]


def test_the_most_specific_recipe_counts():
    assert recipe_for("ant_big_maze").result == "learn_srl_ant_big_maze_waypoints_h200.jsonl"
    assert recipe_for("reacher").env == "reacher"
    with pytest.raises(UnknownNameError):
        recipe_for("antt")


def test_best_trains_by_the_recipe_wherever_it_stands():
    from homing.cli.train import arranged

    args, chosen = arranged(["--seeds", "2", "best", "ant_u4_maze"])
    assert chosen == ("srl", "fast", "ant_u4_maze")
    assert args[:4] == ["srl", "ant_u4_maze", "--preset", "fast"]
    with pytest.raises(ConfigError, match="homing recipes"):
        arranged(["best", "ant", "--preset", "paper"])
    with pytest.raises(ConfigError, match="homing recipes"):
        homing.train("best", "ant", preset="paper")


def test_best_has_the_environment_options_of_its_recipe_beside_given_ones(monkeypatch):
    from homing.cli.train import arranged

    assert recipe_for("ant_u4_maze").env_options == {"goals.renew": "reached", "goals.hold": 30}
    args, _ = arranged(
        ["best", "ant_u4_maze", "--env-option", "goals.hold=5", "task.within=0.3", "--seeds", "2"]
    )
    (at,) = (i for i, arg in enumerate(args) if arg == "--env-option")
    assert args[at + 1 :] == ["goals.renew=reached", "goals.hold=5", "task.within=0.3"]
    assert "goals.hold=30" in recipe_for("ant_u4_maze").command
    assert "--env-option" not in arranged(["best", "half_cheetah"])[0]

    seen = []
    monkeypatch.setattr("homing.api.train_config", lambda config, *_, **__: seen.append(config))
    homing.train("best", "ant_u4_maze", quiet=True)
    homing.train("best", "ant_u4_maze", env_options={"goals.hold": 5}, quiet=True)
    assert [run.env_options["goals.hold"] for run in seen] == [30, 5]
    assert all(run.env_options["goals.renew"] == "reached" for run in seen)


def test_a_recipe_may_train_elsewhere_with_rewards_and_from_a_shipped_policy(monkeypatch, capsys):
    from homing.cli.train import arranged
    from homing.policies import shipped_names

    recipe = recipe_for("humanoid_u_maze")
    assert (recipe.agent, recipe.reward, recipe.init_from) == ("ppo", "dense", "humanoid")
    assert recipe.init_from in shipped_names()
    args, chosen = arranged(["best", "humanoid_u_maze", "--seeds", "2"])
    assert chosen == ("ppo", "dense", "humanoid_u_maze_anywhere")
    value = lambda flag: args[args.index(flag) + 1]
    assert args[:2] == ["ppo", "humanoid_u_maze_anywhere"]
    assert value("--eval-env") == "humanoid_u_maze" and value("--reward") == "dense"
    assert value("--init-from") == "humanoid" and value("--actor-net.width") == "128"
    assert "body.any_heading=false" in args
    assert "dense reward, in humanoid_u_maze_anywhere, from the shipped policy humanoid" in recipe.summary
    assert recipe.command.startswith("homing train ppo humanoid_u_maze_anywhere --preset dense")

    given = [
        "--reward",
        "sparse",
        "--init-from",
        "x",
        "--actor-net.width",
        "64",
        "--eval-env",
        "humanoid_big_maze",
    ]
    args, _ = arranged(["best", "humanoid_u_maze", *given])
    for flag, chosen in zip(given[::2], given[1::2], strict=True):
        assert args.count(flag) == 1 and args[args.index(flag) + 1] == chosen

    seen = []
    monkeypatch.setattr("homing.api.train_config", lambda config, *_, **__: seen.append(config))
    homing.train("best", "humanoid_u_maze", quiet=True)
    homing.train(
        "best", "humanoid_u_maze", reward="sparse", init_from="x", actor_net={"width": 64}, quiet=True
    )
    homing.train("best", "ant", quiet=True)
    whole, changed, plain = seen
    assert (whole.env, whole.eval_env) == ("humanoid_u_maze_anywhere", "humanoid_u_maze")
    assert (whole.reward, whole.init_from, whole.settings.actor_net.width) == ("dense", "humanoid", 128)
    assert (changed.reward, changed.init_from) == ("sparse", "x")
    assert (changed.settings.actor_net.width, changed.settings.actor_net.depth) == (64, 3)
    assert (plain.env, plain.eval_env, plain.reward, plain.init_from) == ("ant", None, "sparse", None)


def test_the_plan_names_the_recipe_of_the_environment_that_was_asked_for(capsys):
    code, out, _ = command(capsys, "train", "best", "humanoid_u_maze", "--seeds", "1", "--cpu", "--dry-run")
    assert code == 0 and recipe_for("humanoid_u_maze").summary in out.replace("\n", " ")


def test_best_has_the_settings_of_its_recipe_where_none_are_given(monkeypatch):
    from homing.cli.train import arranged

    recipe = recipe_for("arm_reach")
    assert recipe.settings["horizon"] == recipe.settings["episode_length"] == 100
    args, _ = arranged(["best", "arm_reach", "--horizon", "50", "--steps", "1000"])
    assert args.count("--horizon") == 1 and args[args.index("--horizon") + 1] == "50"
    assert "--total-steps" not in args and args[args.index("--gamma") + 1] == "0.99"
    assert recipe.command.split()[2:6] == ["srl", "arm_reach", "--preset", "fast"]

    seen = []
    monkeypatch.setattr("homing.api.train_config", lambda config, *_, **__: seen.append(config))
    homing.train("best", "arm_reach", gamma=0.5, quiet=True)
    homing.train("best", "arm_push_hard", episode_length=77, quiet=True)
    reach, push = seen
    assert (reach.episode_length, reach.settings.horizon, reach.settings.gamma) == (100, 100, 0.5)
    assert (push.episode_length, push.settings.horizon) == (
        77,
        recipe_for("arm_push_hard").settings["horizon"],
    )
