"""Starts and goals of mazes at a set number of cells from each other."""

from collections import Counter, deque

import jax
import numpy as np
import pytest
from helpers import draws
from scipy import stats

import homing
from homing.envs import env_ids
from homing.envs.arenas import FREE, Floor, Maze
from homing.envs.cell_pairs import CellPairs, walking_distances
from homing.envs.goal_groups import goal_groups
from homing.envs.goals import FreeCells
from homing.envs.mazes import NEAR
from homing.envs.registry import get_spec
from homing.envs.tasks import Reach
from homing.envs.tasks.base import next_goal
from homing.errors import ConfigError

P = 1e-3
PAIRS = [id for id in env_ids() if "_pairs" in id]


def steps_from(maze, start):
    """Cells to walk from a start to every free cell, by search over the text."""
    rows = ["".join(row) for row in maze.grid]
    found, queue = {start: 0}, deque([start])
    while queue:
        i, j = queue.popleft()
        for near in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if rows[near[0]][near[1]] != "#" and near not in found:
                found[near] = found[i, j] + 1
                queue.append(near)
    return found


def every_pair(maze):
    """Cells to walk between any two free cells."""
    free = [tuple(cell) for cell in np.argwhere(maze.grid != "#").tolist()]
    return {(start, goal): n for start in free for goal, n in steps_from(maze, start).items()}


def cells(places, maze):
    return [tuple(cell) for cell in np.round(places[:, :2] / maze.cell).astype(int).tolist()]


def test_mazes_of_every_body_have_near_pairs_and_far_ones():
    assert len(PAIRS) == 16
    for id in PAIRS:
        goals = get_spec(id).task.goals
        assert (goals.least, goals.most) == ((NEAR + 1, None) if id.endswith("_eval") else (1, NEAR))


@pytest.mark.parametrize("id", PAIRS)
def test_pairs_are_those_at_their_distance_and_all_are_as_likely(id):
    d, maze = draws(id), get_spec(id).arena
    apart = every_pair(maze)
    far = id.endswith("_eval")
    wanted = {pair for pair, n in apart.items() if (n > NEAR if far else 1 <= n <= NEAR)}
    seen = Counter(zip(cells(d.start, maze), cells(d.goal, maze), strict=True))
    assert set(seen) <= wanted
    assert min(apart[pair] for pair in seen) >= 1 and (max(apart[pair] for pair in seen) > NEAR) == far
    if len(wanted) * 20 < len(d.start):
        assert set(seen) == wanted
        assert stats.chisquare([seen[pair] for pair in wanted]).pvalue > P
    np.testing.assert_allclose(
        d.goal[:, :2], maze.cell * np.array(cells(d.goal, maze)), err_msg="goals are centres"
    )
    assert np.abs(d.start - maze.cell * np.array(cells(d.start, maze))).max() <= 0.5


@pytest.mark.parametrize("layout", ["u", "u5", "big", "hardest"])
def test_distances_are_those_of_a_search(layout):
    maze = Maze(layout)
    centres = maze.cells(FREE)
    apart = walking_distances(centres)
    names = cells(centres, maze)
    for (start, goal), n in every_pair(maze).items():
        assert apart[names.index(start), names.index(goal)] == n


def test_walls_between_cells_count():
    maze = Maze("#####\n#R#.#\n#.#.#\n#####")
    apart = walking_distances(maze.cells(FREE))
    assert np.isinf(apart[0, 1]) and apart[0, 2] == 1
    pairs = CellPairs(1, None)
    keys = jax.random.split(jax.random.key(0), 200)
    goal, start = jax.vmap(lambda key: pairs.draw_pair(key, maze))(keys)
    assert (np.asarray(goal)[:, 1] == np.asarray(start)[:, 1]).all(), "no way leads to the other column"


def next_goals(least, most, place):
    spec = get_spec("point_u_maze")
    task = Reach(("x", "y"), CellPairs(least, most))
    keys = jax.random.split(jax.random.key(0), 300)
    goals = jax.vmap(lambda key: next_goal(task, key, spec.arena, place))(keys)
    return Counter(cells(np.asarray(goals), spec.arena))


def test_the_next_goal_is_as_far_from_where_the_robot_is():
    place = np.array([5.0, 11.5], np.float32)  # in the cell (1, 3), two cells from the start of the U
    assert set(next_goals(1, 1, place)) == {(1, 2), (2, 3)}
    found = next_goals(2, 3, place)
    assert set(found) == {(1, 1), (3, 3), (3, 2)}
    assert stats.chisquare(list(found.values())).pvalue > P
    assert set(next_goals(6, None, place)) == {(3, 1)}, "where none is as far, the farthest"


def test_the_distance_is_an_option():
    task = homing.make("point_u_maze_pairs", options={"task.goals.most": 1}).task
    keys = jax.random.split(jax.random.key(0), 200)
    sample = jax.vmap(lambda key: task.draw(key, get_spec("point_u_maze_pairs").arena))(keys)
    gap = np.abs(np.asarray(sample.goal) - np.round(np.asarray(sample.start) / 4.0) * 4.0).sum(axis=-1)
    np.testing.assert_allclose(gap, 4.0)


def test_evaluations_are_broken_down_by_free_cell():
    assert len(goal_groups(get_spec("point_u_maze_pairs_eval")).labels) == 7


@pytest.mark.parametrize(
    ("broken", "part"),
    [
        (lambda: CellPairs(3, 2), "least ≤ most"),
        (lambda: CellPairs(0), "least"),
        (lambda: Reach(("x", "y"), CellPairs(), starts=FreeCells()), "leave `starts` out"),
        (lambda: CellPairs().draw(jax.random.key(0), Floor()), "no cells"),
        (lambda: CellPairs(9, None).draw(jax.random.key(0), Maze("u")), "the farthest are 6"),
    ],
)
def test_bad_pairs_are_answered(broken, part):
    with pytest.raises(ConfigError, match=part):
        broken()


@pytest.mark.parametrize("id", PAIRS)
def test_policies_transfer_between_all_goals_of_a_maze(id):
    ours, base = homing.make(id).spec, homing.make(id.partition("_pairs")[0]).spec
    for name in ("state_names", "goal_names", "action_dim", "goal_indices", "threshold", "dt", "physics"):
        assert getattr(ours, name) == getattr(base, name), name
