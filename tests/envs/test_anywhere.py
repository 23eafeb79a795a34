"""Environments whose episodes start anywhere."""

import jax
import mujoco
import numpy as np
import pytest
from helpers import draws, scene
from scipy import stats

from homing.envs import env_ids
from homing.envs.arenas import FREE, Floor, Maze
from homing.envs.bodies import Ant
from homing.envs.goal_groups import goal_groups
from homing.envs.goal_space import GoalSpace
from homing.envs.goals import Around, Away, FreeCells
from homing.envs.registry import get_spec
from homing.envs.tasks import Reach
from homing.envs.tasks.base import next_goal
from homing.errors import ConfigError

P = 1e-3
ANYWHERE = [id for id in env_ids() if id.endswith("_anywhere")]
MAZES = [id for id in ANYWHERE if "maze" in id]


def uniform(values, low, high):
    assert stats.kstest((values - low) / (high - low), "uniform").pvalue > P


def cells(places, cell):
    return np.round(places / cell).astype(int)


def test_every_body_has_mazes_and_a_floor_to_start_anywhere():
    assert len(ANYWHERE) == 12
    assert len(MAZES) == 10


@pytest.mark.parametrize("id", MAZES)
def test_starts_and_goals_are_in_free_cells_and_never_in_the_same(id):
    d, maze = draws(id), get_spec(id).arena
    start, goal = cells(d.start, maze.cell), cells(d.goal[:, :2], maze.cell)
    assert not maze.wall_cells[tuple(start.T)].any()
    assert not maze.wall_cells[tuple(goal.T)].any()
    assert (start != goal).any(axis=-1).all()
    free = len(maze.cells(FREE))
    assert free == (maze.grid != "#").sum()
    for places in (start, goal):
        _, counts = np.unique(places, axis=0, return_counts=True)
        assert len(counts) == free, "every free cell"
        assert stats.chisquare(counts).pvalue > P
    np.testing.assert_allclose(d.goal[:, :2], goal * maze.cell, err_msg="goals are centres")


@pytest.mark.parametrize(("id", "half", "most"), [("ant_anywhere", 10, 10), ("humanoid_anywhere", 5, 5)])
def test_on_open_floor_distances_and_directions_are_uniform(id, half, most):
    d = draws(id)
    for axis in (0, 1):
        uniform(d.start[:, axis], -half, half)
    gap = d.goal[:, :2] - d.start
    uniform(np.linalg.norm(gap, axis=-1), 1.0, most)
    uniform(np.arctan2(gap[:, 1], gap[:, 0]), -np.pi, np.pi)
    if d.goal.shape[1] == 3:
        np.testing.assert_allclose(d.goal[:, 2], 1.25)


@pytest.mark.parametrize("id", ANYWHERE)
def test_no_start_is_a_success_and_none_is_in_a_wall(id):
    d, spec = draws(id), get_spec(id)
    assert np.linalg.norm(d.goal[:, :2] - d.start, axis=-1).min() > 1.9 * spec.task.within
    clear = _extent(spec.body)
    space = GoalSpace(id, spec)
    turns = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    for step in clear * np.stack([np.cos(turns), np.sin(turns)], axis=-1):
        assert not space.in_wall(d.start + step).any()


def _extent(body):
    """Distance along the floor from the root to the farthest point of the robot at rest."""
    built = body.build()
    model = built.compile()
    data = mujoco.MjData(model)
    rest = next((list(n.data) for n in built.spec.numerics if n.name == "init_qpos"), data.qpos)
    data.qpos[: len(rest)] = rest[: model.nq]
    mujoco.mj_forward(model, data)
    solid = model.geom_bodyid > 0
    gap = data.geom_xpos[solid, :2] - data.body(body.root).xpos[:2]
    return float((np.linalg.norm(gap, axis=-1) + model.geom_rbound[solid]).max())


def headings(q):
    w, x, y, z = q[:, 3:7].T
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def poses(id, count=3000):
    keys = jax.random.split(jax.random.key(2), count)
    return [np.asarray(x) for x in jax.jit(jax.vmap(scene(id).sample_reset))(keys)]


@pytest.mark.parametrize("id", ["ant_anywhere", "humanoid_anywhere"])
def test_headings_are_spread_over_the_circle_and_the_robot_stays_upright(id):
    q, qd, _ = poses(id)
    base, base_qd, _ = poses(id.removesuffix("_anywhere"))
    uniform(headings(q), -np.pi, np.pi)
    np.testing.assert_allclose(np.linalg.norm(q[:, 3:7], axis=-1), 1.0, atol=1e-5)
    tilt = lambda q: 1 - 2 * (q[:, 4] ** 2 + q[:, 5] ** 2)  # z of the robot's own vertical axis
    assert stats.ks_2samp(tilt(q), tilt(base)).pvalue > P
    assert stats.ks_2samp(qd.ravel(), base_qd.ravel()).pvalue > P
    assert stats.ks_2samp(q[:, 7:].ravel(), base[:, 7:].ravel()).pvalue > P


def test_without_the_option_the_ant_starts_with_one_heading():
    assert np.abs(headings(poses("ant")[0])).max() < 0.5
    assert not Ant().any_heading


def next_goals(id, place):
    """Goals of 500 robots at one place."""
    spec = get_spec(id)
    keys = jax.random.split(jax.random.key(0), 500)
    return np.asarray(jax.vmap(lambda key: next_goal(spec.task, key, spec.arena, place))(keys))


def test_the_next_goal_is_drawn_from_where_the_robot_is():
    place = np.array([11.0, 5.0], np.float32)  # in the cell (3, 1)
    found = {tuple(c) for c in cells(next_goals("point_u_maze_anywhere", place), 4.0)}
    assert len(found) == 6
    assert (3, 1) not in found
    corner = np.array([19.0, -19.0], np.float32)
    goals = next_goals("ant_anywhere", corner)
    uniform(np.linalg.norm(goals - corner, axis=-1), 1.0, 10.0)
    assert (np.abs(goals) <= 20.0).mean() > 0.99, "goals stay on the floor"
    goals = next_goals("point_u_maze", place)
    assert len(np.unique(goals, axis=0)) == 6, "the cells marked G, wherever the robot is"


def test_evaluations_are_broken_down_by_free_cell():
    groups = goal_groups(get_spec("point_u_maze_anywhere"))
    assert len(groups.labels) == 7
    assert goal_groups(get_spec("ant_anywhere")).edges is not None


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        (lambda: Around(3.0, 2.0), "least ≤ most"),
        (lambda: Around(-1.0, 2.0), "least"),
        (lambda: FreeCells(spread=-1.0), "spread"),
        (lambda: Reach(("x", "y"), Around(1.0, 2.0)), "need starts"),
        (lambda: Reach(("x", "y"), FreeCells(), starts=Away(3.0)), "need starts"),
        (lambda: FreeCells().draw(jax.random.key(0), Floor()), "no cells"),
        (
            lambda: FreeCells().draw_from(jax.random.key(0), Maze("###\n#R#\n###"), np.zeros(2)),
            "one free cell",
        ),
    ],
)
def test_impossible_distributions_are_refused(broken, part):
    with pytest.raises(ConfigError) as caught:
        broken()
    assert part in str(caught.value)
