"""An environment as OGBench's agents see it, and the example that trains one of them."""

import dataclasses
import json
import os
import re
import runpy
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import homing
import homing.adapters.gymnasium as adapter
from homing.adapters.ogbench import OGBenchEnv
from homing.datasets import Dataset, write_dataset
from homing.datasets.episodes import from_rows
from homing.errors import ConfigError, UnknownNameError

EPISODE = 60


def towards(goal: np.ndarray, obs: np.ndarray) -> np.ndarray:
    """An action of the point, whose observation is its position and its velocity."""
    return np.clip(2 * (goal - obs[..., :2]) - obs[..., 2:], -1, 1).astype(np.float32)


def direct_paths(env_id: str, episodes: int = 100) -> Dataset:
    """Episodes in which the tiny point goes straight to its goal, with noise on its actions."""
    env = gymnasium.make_vec(adapter.gymnasium_id(env_id), num_envs=episodes, max_episode_steps=EPISODE + 1)
    draw = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    goals, states, actions = obs["desired_goal"], [obs["observation"]], []
    for _ in range(EPISODE):
        noise = 0.3 * draw.normal(size=goals.shape)
        actions.append(np.clip(towards(goals, obs["observation"]) + noise, -1, 1))
        obs, *_ = env.step(actions[-1])
        states.append(obs["observation"])
    rows = lambda steps: np.swapaxes(steps, 0, 1).reshape(-1, np.shape(steps)[-1]).astype(np.float32)
    terminals = np.tile(np.arange(EPISODE + 1) == EPISODE, episodes).astype(np.float32)
    notes = {"env": env_id, "episode_length": EPISODE}
    return from_rows(rows(states), rows([*actions, 0 * actions[-1]]), terminals, notes=notes)


@pytest.fixture(scope="module")
def data(tiny):
    adapter.register_envs()
    yield direct_paths(tiny)
    gymnasium.registry.pop(adapter.gymnasium_id(tiny))


@pytest.fixture(scope="module")
def env(data):
    return OGBenchEnv(data)


def test_observations_are_flat_and_a_seed_repeats_an_episode(env):
    assert env.observation_space.shape == (4,) and env.action_space.shape == (2,)
    seen = []
    for _ in range(2):
        obs, info = env.reset(seed=5)
        after, *_ = env.step(np.ones(2, np.float32))
        assert all(env.observation_space.contains(each) for each in (obs, after, info["goal"]))
        seen.append(np.concatenate([obs, after, info["goal"]]))
    np.testing.assert_array_equal(*seen)


def test_a_goal_is_a_whole_observation_that_looks_like_the_data(env, data):
    _, info = env.reset(seed=3, options={"task_id": None, "render_goal": False})
    goal = info["goal"]
    assert goal.shape == (4,) and goal.dtype == np.float32
    nearest = min(range(data.rows), key=lambda row: np.sum((data.observations[row, :2] - goal[:2]) ** 2))
    np.testing.assert_array_equal(goal[2:], data.observations[nearest, 2:])
    wanted = np.array([0.25, -0.5], np.float32)
    np.testing.assert_array_equal(env.goal_observation(wanted)[:2], wanted)


def test_the_episode_ends_with_success_where_the_goal_is_reached(env):
    goal = np.array([1.0, 0.5], np.float32)
    obs, info = env.reset(seed=0, options={"goal": goal})
    np.testing.assert_allclose(info["goal"][:2], goal)
    ended = False
    while not ended:
        obs, _, terminated, truncated, info = env.step(towards(goal, obs))
        ended = terminated or truncated
        near = np.linalg.norm(obs[:2] - goal) <= env.unwrapped.goal_env.spec.threshold
        assert terminated == near == bool(info["success"])
    assert terminated and not truncated


def test_without_success_the_time_limit_of_the_data_ends_it(env):
    env.reset(seed=0, options={"goal": [2.0, 2.0]})
    steps = [env.step(np.zeros(2, np.float32))[2:] for _ in range(EPISODE)]
    assert [truncated for _, truncated, _ in steps] == [False] * (EPISODE - 1) + [True]
    assert not any(terminated or info["success"] for terminated, _, info in steps)


def test_data_of_another_environment_is_refused(data):
    with pytest.raises(ConfigError, match=r"sizes \(4, 2\), those of reacher \("):
        OGBenchEnv(data, env_id="reacher")
    with pytest.raises(ConfigError, match="names no environment"):
        OGBenchEnv(dataclasses.replace(data, notes={}))


def with_notes(data, **notes):
    return dataclasses.replace(data, notes={**data.notes, **notes})


def test_the_environment_has_the_physics_and_the_options_of_the_data(data):
    options = {"task.within": 0.7, "goals.renew": "reached", "goals.hold": 5}
    noted = with_notes(data, physics="generalized", env_options=options)
    spec = OGBenchEnv(noted).unwrapped.goal_env.spec
    assert (spec.threshold, spec.physics) == (0.7, "generalized") != (0.3, default_physics(data))
    assert OGBenchEnv(noted, env_options={}).unwrapped.goal_env.spec.threshold == pytest.approx(0.3)
    assert OGBenchEnv(noted, physics=None).unwrapped.goal_env.spec.physics == default_physics(data)


def default_physics(data):
    return homing.make(data.notes["env"]).spec.physics


def test_options_of_the_data_are_not_those_of_another_environment(data):
    noted = with_notes(data, env_options={"task.within": 0.7})
    other = OGBenchEnv(noted, env_id="point_u_maze").unwrapped.goal_env.spec
    assert other.threshold == homing.make("point_u_maze").spec.threshold


def test_an_alias_is_the_environment_that_it_stands_for(data):
    noted = with_notes(data, env="point_u_maze", env_options={"task.within": 0.7})
    for made in (
        OGBenchEnv(noted, env_id="simple_u_maze"),
        OGBenchEnv(with_notes(noted, env="simple_u_maze")),
    ):
        spec = made.unwrapped.goal_env.spec
        assert (spec.id, spec.threshold) == ("point_u_maze", 0.7)
    with pytest.raises(UnknownNameError, match="point_u_maze"):
        OGBenchEnv(data, env_id="point_u_maz")


def test_an_environment_of_ones_own_is_registered_with_gymnasium(data):
    gymnasium.registry.pop(adapter.gymnasium_id(data.notes["env"]))
    assert OGBenchEnv(data).unwrapped.goal_env.spec.id == data.notes["env"]


# The example.


@pytest.fixture
def example():
    return runpy.run_path(str(Path(__file__).parents[2] / "examples" / "ogbench_agent.py"))["main"]


@pytest.fixture
def clone(tmp_path):
    """What the example looks for in a clone: offline agents name a class of datasets."""
    agents = tmp_path / "ogbench" / "impls" / "agents"
    agents.mkdir(parents=True)
    for name in ("gcbc", "hiql"):
        (agents / f"{name}.py").write_text("dataset_class='GCDataset'")
    for name in ("__init__", "sac"):
        (agents / f"{name}.py").touch()
    return tmp_path / "ogbench"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "the following arguments are required: --ogbench, --data"),
        (
            "--ogbench {clone}/impls --data x.npz",
            r"there are no agents in \S+: clone \S+seohongpark/ogbench or",
        ),
        ("--ogbench {clone} --data x.npz --agent sac", "no offline agent sac; it has gcbc, hiql"),
        ("--ogbench {clone} --data x.npz --updates 0", "--updates and --episodes must be at least 1"),
    ],
)
def test_wrong_arguments_of_the_example_are_one_message(flags, message, example, clone, capsys):
    with pytest.raises(SystemExit):
        example(flags.format(clone=clone).split())
    assert re.search(message, capsys.readouterr().err)


def test_an_agent_of_ogbench_learns_from_our_data_and_reaches_goals_here(example, data, tmp_path):
    """`make test-ecosystem` fetches OGBench's source and names it by OGBENCH_REPO."""
    for package in ("ogbench", "distrax", "ml_collections"):
        pytest.importorskip(package)
    source = os.environ.get("OGBENCH_REPO")
    if source is None:
        pytest.skip("OGBENCH_REPO names no clone of OGBench")
    flags = [
        "--ogbench",
        source,
        "--data",
        str(write_dataset(tmp_path / "paths.npz", data)),
        "--episodes",
        "50",
    ]
    before = example([*flags, "--updates", "1"])["eval/success_any"]
    after = example([*flags, "--updates", "100", "--out", str(tmp_path / "x.jsonl")])["eval/success_any"]
    assert before < 0.5 and after > 0.9
    (line,) = (tmp_path / "x.jsonl").read_text().splitlines()
    row = json.loads(line)
    assert row["agent"] == "ogbench/gcbc" and row["eval/success_any"] == after and row["versions"]["ogbench"]
