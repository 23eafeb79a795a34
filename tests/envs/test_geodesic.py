"""Shortest paths around walls, against a search on a fine grid."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import homing
from homing.envs.arenas import PUSH_ROOM, Floor, Maze, Room, Table, Wall
from homing.envs.geodesic import shortest_paths
from homing.errors import ConfigError

STEP = 0.1
AROUND = [(i, j) for i in range(-5, 6) for j in range(-5, 6) if np.gcd(i, j) == 1]


def free(paths, points):
    """Whether points [..., 2] are outside of all enlarged boxes."""
    inside = (points[..., None, :] > paths.low) & (points[..., None, :] < paths.high)
    return ~inside.all(axis=-1).any(axis=-1)


def searched(paths, start, extent):
    """Distances from a grid point to all others by Dijkstra's search, with 80 directions."""
    low = np.array(extent)[[0, 2]]
    shape = np.ceil((np.array(extent)[[1, 3]] - low) / STEP).astype(int) + 1
    grid = np.stack(np.meshgrid(*(np.arange(n) for n in shape), indexing="ij"), axis=-1)
    open_ = free(paths, low + STEP * grid)
    best = np.full(shape, np.inf)
    first = tuple(np.round((np.array(start) - low) / STEP).astype(int))
    queue, best[first] = [(0.0, first)], 0.0
    while queue:
        so_far, (i, j) = heapq.heappop(queue)
        if so_far > best[i, j]:
            continue
        for a, b in AROUND:
            n, steps = (i + a, j + b), max(abs(a), abs(b))
            if not (0 <= n[0] < shape[0] and 0 <= n[1] < shape[1]):
                continue
            between = [(round(i + a * k / steps), round(j + b * k / steps)) for k in range(1, steps + 1)]
            length = so_far + STEP * float(np.hypot(a, b))
            if length < best[n] and all(open_[c] for c in between):
                best[n] = length
                heapq.heappush(queue, (length, n))
    return low + STEP * grid, best


@pytest.mark.parametrize("layout", ["u", "u4"])
def test_lengths_are_those_of_a_search_on_a_grid(layout):
    arena = Maze(layout, cell=2.0)
    paths = shortest_paths(arena)
    start = arena.cells("R")[0]
    points, expected = searched(paths, start, arena.extent())
    reached = np.isfinite(expected) & free(paths, points)
    points, expected = points[reached][::7], expected[reached][::7]
    found = np.asarray(jax.jit(paths)(jnp.asarray(start), jnp.asarray(points, jnp.float32)))
    assert expected.max() > 8
    # The grid's ways are at most 2 % longer, but may cut a corner by a cell of the grid.
    np.testing.assert_allclose(found, expected, rtol=0.02, atol=0.15)


@pytest.mark.parametrize("arena", [Maze("big"), Maze("hardest", cell=2.0), PUSH_ROOM], ids=lambda a: a.name)
def test_distances_are_continuous_symmetric_and_zero_at_the_goal(arena):
    paths = jax.jit(shortest_paths(arena))
    rng = np.random.default_rng(0)
    low, high = (np.array(arena.extent())[i::2] for i in (0, 1))
    walls = np.array([[*w.centre[:2], *w.half[:2]] for w in arena.walls()])
    points = rng.uniform(low, high, (4000, 2))
    solid = (np.abs(points[:, None] - walls[:, :2]) < walls[:, 2:]).all(axis=-1).any(axis=1)
    points = points[~solid].astype(np.float32)
    start, goal = points[: len(points) // 2], points[len(points) // 2 : 2 * (len(points) // 2)]
    found = np.asarray(paths(start, goal))
    np.testing.assert_allclose(found, paths(goal, start), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(paths(start, start), 0.0, atol=1e-5)
    assert (found > np.linalg.norm(start - goal, axis=-1) - 1e-3).all()
    step = rng.normal(size=start.shape)
    step = (1e-3 * step / np.linalg.norm(step, axis=-1, keepdims=True)).astype(np.float32)
    change = np.abs(np.asarray(paths(start + step, goal)) - found)
    # Beside a wall a step counts twice: along the path, and away from the wall.
    assert np.quantile(change, 0.995) < 3.1e-3, np.sort(change)[-20:]


def test_cells_without_a_way_have_the_straight_distance():
    paths = shortest_paths(Maze("#####\n#R#G#\n#####"))
    np.testing.assert_allclose(paths(jnp.array([4.0, 4.0]), jnp.array([4.0, 12.0])), 8.0)


def test_open_floor_has_straight_lines_and_tables_are_refused():
    assert shortest_paths(Floor()) is None
    with pytest.raises(ConfigError, match="arms"):
        shortest_paths(Table())


def test_a_single_box_is_gone_around():
    paths = shortest_paths(
        Room((Wall((0.0, 0.0, 1.0), (0.5, 2.0, 1.0)), Wall((0.0, 9.0, 1.0), (9.0, 0.1, 1.0))))
    )
    found = paths(jnp.array([-3.0, 0.0]), jnp.array([3.0, 0.0]))
    np.testing.assert_allclose(found, 2 * np.hypot(2.0, 2.5) + 2.0, atol=1e-2)


def progress_along_the_corridor(geodesic):
    """Dense reward of a point that goes along its corridor, to a goal behind the wall beside it."""
    options = {"body.dense.geodesic": geodesic, "body.dense.progress": 1.0, "body.dense.distance": 0.0}
    env = homing.make("point_u_maze", reward="dense", options=options)
    before, after, goal = jnp.array([[4.0, 4.0, 0, 0]]), jnp.array([[4.0, 4.2]]), jnp.array([[12.0, 4.0]])
    return float(env.shaping(before, after, goal)[0])


def test_the_dense_reward_of_a_maze_follows_its_corridors():
    assert progress_along_the_corridor(False) < 0
    assert 3 < progress_along_the_corridor(True) <= 4.001
