"""The laws of goals, starts and objects, held against the benchmark's ranges."""

import jax
import numpy as np
import pytest
from helpers import draws, scene
from scipy import stats

from homing.envs.arenas import Floor, Maze
from homing.envs.goals import Box, Cells, Points, Ring
from homing.envs.registry import get_spec
from homing.errors import ConfigError

P = 1e-4  # a right law fails a check this seldom


def uniform(values, low, high):
    assert values.min() >= low - 1e-5
    assert values.max() <= high + 1e-5
    assert stats.kstest((values - low) / (high - low), "uniform").pvalue > P


def angles(points):
    return np.arctan2(points[:, 1], points[:, 0])


def alike(counts):
    assert stats.chisquare(counts).pvalue > P


def independent(a, b):
    assert abs(np.corrcoef(a, b)[0, 1]) < 4.5 / np.sqrt(len(a))


def test_ant_goals_lie_on_a_circle_of_ten_metres():
    goal = draws("ant").goal
    np.testing.assert_allclose(np.linalg.norm(goal, axis=-1), 10.0, rtol=1e-5)
    uniform(angles(goal), -np.pi, np.pi)
    assert draws("ant").start is None


def test_random_start_is_ten_metres_from_the_goal_in_any_direction():
    d = draws("ant_random_start")
    np.testing.assert_allclose(np.linalg.norm(d.start - d.goal, axis=-1), 10.0, rtol=1e-5)
    uniform(angles(d.start - d.goal), -np.pi, np.pi)
    uniform(angles(d.goal), -np.pi, np.pi)
    independent(angles(d.start - d.goal), angles(d.goal))


def test_reacher_goals_have_a_uniform_radius():
    goal = draws("reacher").goal
    uniform(np.linalg.norm(goal[:, :2], axis=-1), 0.0, 0.2)
    uniform(angles(goal), -np.pi, np.pi)
    np.testing.assert_allclose(goal[:, 2], 0.01)


def test_humanoid_goals():
    goal = draws("humanoid").goal
    uniform(np.linalg.norm(goal[:, :2], axis=-1), 1.0, 5.0)
    uniform(angles(goal), -np.pi, np.pi)
    np.testing.assert_allclose(goal[:, 2], 1.25)


def test_half_cheetah_goals_are_on_either_side():
    goal = draws("half_cheetah").goal[:, 0]
    assert set(np.unique(goal)) == {-5.0, 5.0}
    alike([np.sum(goal < 0), np.sum(goal > 0)])
    assert (draws("half_cheetah_fixed").goal == 5.0).all()


def test_ant_push_goals():
    goal = draws("ant_push").goal
    right = goal[:, 0] >= 16.0
    alike([right.sum(), (~right).sum()])
    for part, corner in ((right, (16.0, 8.0)), (~right, (8.0, 16.0))):
        uniform(goal[part, 0], corner[0], corner[0] + 2.0)
        uniform(goal[part, 1], corner[1], corner[1] + 2.0)
    uniform(draws("ant_push").props.ravel(), -0.1, 0.1)


@pytest.mark.parametrize(
    ("id", "goals", "cell"),
    [
        ("ant_u_maze", 6, 4.0),
        ("ant_u_maze_eval", 3, 4.0),
        ("ant_big_maze", 25, 4.0),
        ("ant_big_maze_eval", 10, 4.0),
        ("ant_hardest_maze", 45, 4.0),
        ("humanoid_u_maze", 6, 2.0),
        ("point_big_maze", 25, 4.0),
        ("ant_soccer_u_maze", 5, 4.0),
        ("ant_soccer_big_maze", 20, 4.0),
        ("ant_u4_maze", 10, 4.0),
        ("ant_u_maze_single_eval", 1, 4.0),
    ],
)
def test_maze_goals_are_the_centres_of_marked_cells(id, goals, cell):
    d = draws(id)
    cells, counts = np.unique(d.goal[:, :2], axis=0, return_counts=True)
    assert len(cells) == goals
    if goals > 1:
        alike(counts)
    start = (2 * cell, cell) if id == "ant_u4_maze" else (cell, cell)
    np.testing.assert_array_equal(d.start, np.tile(start, (len(d.start), 1)))
    grid = get_spec(id).arena.grid
    for x, y in cells:
        assert grid[round(x / cell), round(y / cell)] == "G"


WALLS = {"u": 18, "big": 38, "hardest": 62}


@pytest.mark.parametrize("name", WALLS)
def test_walls_of_the_mazes(name):
    maze = Maze(name)
    assert maze.wall_cells.sum() == WALLS[name]
    area = sum(4 * w.half[0] * w.half[1] for w in maze.walls())
    assert area == pytest.approx(WALLS[name] * 16.0), "joined walls cover the same ground"


def test_soccer_ball_has_an_angle_of_its_own_and_is_clear_of_the_torso():
    d = draws("ant_soccer")
    np.testing.assert_allclose(np.linalg.norm(d.goal, axis=-1), 5.0, rtol=1e-5)
    offset = d.props - 0.2 * d.goal
    np.testing.assert_allclose(np.linalg.norm(offset, axis=-1), 1.0, rtol=1e-4)
    turn = np.angle(np.exp(1j * (angles(offset) - angles(d.goal))))
    widest = 2 * np.arccos(0.4)
    uniform(turn, -widest, widest)
    independent(turn, angles(d.goal))
    assert np.linalg.norm(d.props, axis=-1).min() > 0.799


def test_soccer_maze_draws_goal_ball_and_start_apart():
    d = draws("ant_soccer_big_maze", 8000)
    balls, which = np.unique(d.props, axis=0, return_inverse=True)
    assert len(balls) == 2
    alike(np.bincount(which))
    _, goal = np.unique(d.goal, axis=0, return_inverse=True)
    table = np.zeros((20, 2))
    np.add.at(table, (goal, which), 1)
    assert stats.chi2_contingency(table).pvalue > P, "the ball tells nothing of the goal"


PUSH = {
    "pusher_easy": ((0.25, 0.65), (-0.60, -0.30)),
    "pusher_hard": ((-0.10, 0.90), (-0.70, 0.30)),
}


def puck_places(props):
    """World x, y of a puck from its joints, y first."""
    return np.stack([props[:, 1] + 0.45, props[:, 0] - 0.05], axis=-1)


def outside(places, low, high):
    """How far each place is from a box."""
    return np.linalg.norm(np.maximum(0.0, np.maximum(np.subtract(low, places), places - high)), axis=-1)


@pytest.mark.parametrize("id", PUSH)
def test_pusher_goals_and_pucks(id):
    d = draws(id, 20000)
    (x0, x1), (y0, y1) = PUSH[id]
    uniform(d.goal[:, 0], x0, x1)
    uniform(d.goal[:, 1], y0, y1)
    np.testing.assert_allclose(d.goal[:, 2], -0.275)
    puck = puck_places(d.props)
    assert (outside(puck, (0.25, -0.35), (0.65, -0.05)) > 1e-5).mean() < 1e-3
    assert outside(puck, (0.25, -0.35), (0.65, -0.05)).max() < 0.17
    assert np.linalg.norm(puck - d.goal[:, :2], axis=-1).min() >= 0.17 - 1e-5
    # Where the goal is far from every place of the puck's region, the puck is uniform in it.
    free = (d.goal[:, 0] < 0.05) | (d.goal[:, 0] > 0.85)
    if free.sum() > 500:
        uniform(puck[free, 0], 0.25, 0.65)
        uniform(puck[free, 1], -0.35, -0.05)


def test_pusher_two_draws_each_goal_by_itself():
    d = draws("pusher_two", 20000)
    first, second = d.goal[:, :3], d.goal[:, 3:]
    uniform(first[:, 0], -0.15, 0.375)
    uniform(second[:, 0], 0.375, 0.90)
    for goal in (first, second):
        uniform(goal[:, 1], -0.70, 0.30)
    independent(first[:, 1], second[:, 1])
    for goal, props, (x0, x1) in (
        (first, d.props[:, :2], (0.25, 0.45)),
        (second, d.props[:, 2:], (0.45, 0.65)),
    ):
        puck = puck_places(props)
        assert outside(puck, (x0, -0.35), (x1, -0.05)).max() < 0.17
        assert (outside(puck, (x0, -0.35), (x1, -0.05)) > 1e-5).mean() < 0.05
        assert np.linalg.norm(puck - goal[:, :2], axis=-1).min() >= 0.17 - 1e-5


def test_pusher_reach_goals():
    goal = draws("pusher_reach").goal
    uniform(goal[:, 0], 0.25, 0.65)
    uniform(goal[:, 1], -0.35, -0.05)
    np.testing.assert_allclose(goal[:, 2], -0.323)


def poses(id, count=3000):
    s = scene(id)
    return [
        np.asarray(x) for x in jax.jit(jax.vmap(s.sample_reset))(jax.random.split(jax.random.key(2), count))
    ]


def test_ant_starts():
    q, qd, _ = poses("ant")
    for k in (0, 1, 7, 9):
        uniform(q[:, k], -0.1, 0.1)
    uniform(q[:, 2], 0.45, 0.65)
    uniform(q[:, 8], 0.9, 1.1)
    uniform(q[:, 10], -1.1, -0.9)
    np.testing.assert_allclose(np.linalg.norm(q[:, 3:7], axis=-1), 1.0, atol=1e-5)
    assert stats.kstest(qd.ravel() / 0.1, "norm").pvalue > P


def test_other_starts():
    q, qd, _ = poses("reacher")
    uniform(q.ravel(), -0.1, 0.1)
    uniform(qd.ravel(), -0.005, 0.005)
    q, qd, _ = poses("half_cheetah")
    uniform(q.ravel(), -0.1, 0.1)
    assert stats.kstest(qd.ravel() / 0.1, "norm").pvalue > P
    q, qd, _ = poses("pusher_easy")
    assert (q[:, :7] == 0).all()
    uniform(qd[:, :7].ravel(), -0.005, 0.005)
    assert (qd[:, 7:] == 0).all(), "objects start at rest"
    q, qd, _ = poses("humanoid")
    assert (q[:, 2] == np.float32(1.4)).all() and (qd == 0).all()
    q, qd, _ = poses("ant_push")
    uniform(q[:, 2], 0.65, 0.85)
    assert (qd[:, 14:] == 0).all()
    q, _, _ = poses("ant_u_maze")
    assert (q[:, :2] == 4.0).all(), "exactly at the cell's centre"
    uniform(q[:, 2], 0.45, 0.65)


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        (lambda: Ring(-1.0), "radius must be from 0"),
        (lambda: Ring(2.0, 1.0), "0 ≤ radius"),
        (lambda: Box((0.0,), (-1.0,)), "low ≤ high"),
        (lambda: Box((0.0,), (1.0, 2.0)), "low ≤ high"),
        (lambda: Points(()), "points"),
        (lambda: Points(((1.0,), (1.0, 2.0))), "equal size"),
        (lambda: Maze("###\n#R#\n##"), "same length"),
        (lambda: Maze("###\n#X#\n###"), "X"),
        (lambda: Maze("###\n#.#\n###"), "no start"),
        (lambda: Cells("G").draw(jax.random.key(0), Maze("###\n#R#\n###")), "no cell marked G"),
        (lambda: Cells("G").draw(jax.random.key(0), Floor()), "no cells"),
    ],
)
def test_impossible_laws_are_refused(broken, part):
    with pytest.raises(ConfigError) as caught:
        broken()
    assert part in str(caught.value)
