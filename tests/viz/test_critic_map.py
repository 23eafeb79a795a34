"""Paths and critics from above: the numbers behind the figures, and the figures."""

import dataclasses

import jax.numpy as jnp
import matplotlib.image
import numpy as np
import pytest
from policy_helpers import maze_policy, untrained  # noqa: F401

import homing
from homing.cli import main
from homing.errors import ConfigError
from homing.policies.store import Spaces
from homing.viz import critic_map, plots, video


@pytest.fixture(scope="module")
def actor(maze_policy):  # noqa: F811
    return video.actors([maze_policy], "4", "last", num_envs=4)[0]


@pytest.fixture(scope="module")
def towards(actor):
    """A point that heads straight for its goal: walls stop it before some of them."""

    def act(learner, obs, key):
        return jnp.clip(obs.goal - obs.state[..., :2] - obs.state[..., 2:], -1, 1)

    env = homing.make("point_u_maze", num_envs=8, episode_length=120)
    return critic_map.walk(dataclasses.replace(actor, env=env, act=act), 0, None)


def test_paths_tell_who_reached_its_goal(towards):
    assert towards.track.shape == (121, 8, 2)
    counted = np.arange(121)[:, None] <= towards.length
    distance = np.where(counted, np.linalg.norm(towards.track - towards.goal, axis=-1), np.inf)
    np.testing.assert_array_equal(towards.reached, distance[1:].min(axis=0) < 0.5)
    assert towards.reached.any()
    assert not towards.reached.all()
    np.testing.assert_allclose(towards.track[:-1], towards.robot, atol=1e-3)


def test_a_map_of_goals_is_the_critic_asked_about_each(actor, maze_policy):  # noqa: F811
    made = critic_map.critic_map(actor, "goals", 0, size=10)
    policy = homing.load(maze_policy, seed=4)
    state, _ = critic_map._start(actor.env, 0)
    row, column = np.argwhere(made.free)[7]
    expected = -policy.value(state, made.places[row, column])  # shown as a distance
    np.testing.assert_allclose(made.values[row, column], expected, rtol=1e-4)
    np.testing.assert_array_equal(made.free, ~made.space.in_wall(made.places))
    assert "‖φ(s, a) − ψ(g)‖" in made.scale.name


def test_a_map_of_states_moves_the_robot_and_nothing_else(actor, maze_policy):  # noqa: F811
    made = critic_map.critic_map(actor, "states", 0, goal="4,8", size=10)
    policy = homing.load(maze_policy, seed=4)
    state = critic_map._start(actor.env, 0)[0].copy()
    row, column = np.argwhere(made.free)[3]
    state[:2] = made.places[row, column]
    expected = -policy.value(state, np.array([4.0, 8.0]))
    np.testing.assert_allclose(made.values[row, column], expected, rtol=1e-4)
    moved = critic_map.critic_map(actor, "goals", 0, at="4,12", size=10)
    np.testing.assert_allclose(moved.at, [4, 12])


def test_what_a_critics_number_means_follows_from_its_energy():
    config = untrained("x", Spaces("x", 4, 2, 2)).settings
    assert critic_map.scale_of(config).near_is_low
    assert not critic_map.scale_of(dataclasses.replace(config, energy="dot")).near_is_low
    assert critic_map.scale_of(object()).name == "value"


def test_agents_without_a_critic_and_arms_are_refused(actor, monkeypatch):
    monkeypatch.setattr("homing.envs.goal_space.free_entries", lambda scene: np.array([False, False]))
    monkeypatch.setattr(critic_map, "free_entries", lambda scene: np.array([False, False]))
    with pytest.raises(ConfigError, match="map goals instead"):
        critic_map.critic_map(actor, "states", 0)
    with pytest.raises(ConfigError, match="leave --at out"):
        critic_map.critic_map(actor, "goals", 0, at="4,12")
    with pytest.raises(ConfigError, match="has no critic"):
        critic_map.value_function(dataclasses.replace(actor, policies=None), "goals")
    monkeypatch.delattr(type(actor.policies.agent), "value")
    with pytest.raises(ConfigError, match="'crl' have no critic"):
        critic_map.critic_map(actor, "goals", 0)


def near(picture, colour):
    return np.abs(picture[..., :3] - np.array(colour)).max(axis=-1) < 0.06


def rgb(text):
    return [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def test_the_figure_of_paths_has_walls_goals_and_both_colours(towards, tmp_path):
    file = plots.save_paths([towards], tmp_path / "paths.png")
    picture = matplotlib.image.imread(file)
    share = lambda colour: near(picture, rgb(colour)).mean()
    assert share(plots.WALL) > 0.15, "more than half of this maze is wall"
    assert share(plots.GOAL) > 0.0005
    assert plots.save_paths([towards], tmp_path / "paths.pdf").read_bytes().startswith(b"%PDF")


def test_commands_write_figures(maze_policy, tmp_path, capsys):  # noqa: F811
    out = tmp_path / "map.svg"
    main.main(["render", maze_policy, "--map", "states", "--goal", "4,8", "--seed", "all", "--out", str(out)])
    assert str(out) in capsys.readouterr().out
    assert out.read_text().count("<image") == 4, "two maps and two scales"
    for args, words in (
        (("--map", "goals", "--goal", "4,8"), "--goal is for a map of states"),
        (("--map", "states", "--at", "4,8"), "--at places the robot"),
    ):
        with pytest.raises(SystemExit):
            main.main(["render", maze_policy, *args, "--out", str(tmp_path / "b.png")])
        assert words in capsys.readouterr().err
