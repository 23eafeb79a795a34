"""Groups of goals: cells of mazes, and bins of the distance elsewhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import walk

from homing.envs.arenas import Maze
from homing.envs.goal_groups import DISTANCES, goal_groups
from homing.envs.layouts import LAYOUTS
from homing.envs.registry import env_ids, get_spec
from homing.training.evaluation import evaluate


@pytest.mark.parametrize(
    ("id", "count"), [("ant_u4_maze", 10), ("ant_big_maze", 25), ("ant_hardest_maze", 45)]
)
def test_a_maze_has_a_group_for_each_goal_cell(id, count):
    spec = get_spec(id)
    groups = goal_groups(spec)
    assert len(groups.labels) == len(set(groups.labels)) == count
    drawn = jax.vmap(lambda key: spec.task.draw(key, spec.arena).goal)(
        jax.random.split(jax.random.key(0), 64)
    )
    found = np.asarray(groups.of(drawn, jnp.zeros(64)))
    np.testing.assert_allclose(np.asarray(drawn)[:, :2], groups.points[found], atol=1e-5)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if f"{name}_eval" in LAYOUTS])
def test_far_goals_of_a_maze_are_those_of_its_layout_for_evaluation(layout):
    maze, evaluated = Maze(layout), Maze(f"{layout}_eval")
    far = maze.far_goals()
    assert far is not None and 0 < far.sum() < len(far)
    np.testing.assert_array_equal(maze.cells("G")[far], evaluated.cells("G"))


def test_mazes_without_a_layout_for_evaluation_have_no_far_goals():
    assert goal_groups(get_spec("ant_hardest_maze")).far is None
    assert goal_groups(get_spec("ant_u_maze_eval")).far is None
    far = goal_groups(get_spec("point_u_maze")).far
    assert far is not None and far.tolist() == [False, False, False, True, True, True]


def test_elsewhere_goals_are_grouped_by_their_distance_from_the_start():
    spec = get_spec("ant")
    groups = goal_groups(spec)
    assert len(groups.labels) == len(DISTANCES) - 1
    distance = jnp.asarray([0.0, 1.99, 2.0, 7.9, 8.0, 1000.0])
    np.testing.assert_array_equal(groups.of(jnp.zeros((6, 2)), distance), [0, 0, 1, 2, 3, 4])
    np.testing.assert_allclose(groups.coordinates()["distance"], [0, 2, 4, 8, 16])


@pytest.mark.parametrize("id", env_ids())
def test_every_environment_says_where_its_groups_of_goals_lie(id):
    groups = goal_groups(get_spec(id))
    for place in groups.coordinates().values():
        assert place.shape == (len(groups.labels),)
        assert np.isfinite(place).all()


def test_metrics_by_goal_add_up_to_those_of_all():
    env = walk(64)
    policy = lambda obs, key: obs.goal - obs.state
    metrics = jax.jit(lambda key: evaluate(env, policy, key, by_goal=True))(jax.random.key(0))
    episodes = np.asarray(metrics["by_goal/episodes"])
    assert episodes.sum() == 64
    assert (episodes > 0).all()
    for name in ("success_any", "time_near_goal"):
        total = np.sum(episodes * np.asarray(metrics[f"by_goal/{name}"])) / 64
        assert total == pytest.approx(float(metrics[name]), abs=1e-5)
    near, far = np.asarray(metrics["by_goal/time_near_goal"])
    assert near > far


def test_metrics_of_far_goals_are_those_of_their_group(monkeypatch):
    env = walk(64)
    groups = dataclasses.replace(env.goal_groups, far=np.array([False, True]))
    monkeypatch.setattr(type(env), "goal_groups", property(lambda self: groups))
    policy = lambda obs, key: obs.goal - obs.state
    metrics = jax.jit(lambda key: evaluate(env, policy, key, by_goal=True))(jax.random.key(0))
    for far, by_goal in (("success_far_any", "success_any"), ("time_near_goal_far", "time_near_goal")):
        assert float(metrics[far]) == pytest.approx(float(metrics[f"by_goal/{by_goal}"][1]), abs=1e-6)
    assert float(metrics["time_near_goal_far"]) < float(metrics["time_near_goal"])
