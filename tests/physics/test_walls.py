"""Walls that follow the robot give the contacts of the whole maze."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing import physics
from homing.envs.arenas import Maze, _runs
from homing.envs.registry import get_spec
from homing.envs.scene import build_model, load_engine
from homing.physics.walls import BELOW, BoundWindow, WallWindow, block_for


def engine(id: str, walls_as: str):
    spec = get_spec(id)
    arena = dataclasses.replace(spec.arena, walls_as=walls_as)
    return load_engine(dataclasses.replace(spec, arena=arena), spec.pipelines()[0])


def scattered(id: str, layout, count: int):
    """Robots at random places of the maze, most of them near or in a wall, in random poses."""
    maze, rng = get_spec(id).arena, np.random.default_rng(0)
    free = np.argwhere(maze.grid != "#") * maze.cell
    q = layout.init_q + 0.3 * rng.normal(size=(count, layout.q_size))
    # Up to 0.49 of a cell from its centre on each axis: legs reach into walls, corners and over edges.
    q[:, :2] = rng.choice(free, count) + maze.cell * rng.uniform(-0.49, 0.49, (count, 2))
    if layout.q_size > 4:
        q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=-1, keepdims=True)
    qd = 2.0 * rng.normal(size=(count, layout.qd_size))
    return q.astype(np.float32), qd.astype(np.float32), rng


@pytest.mark.parametrize(
    "id",
    [
        "ant_u_maze",
        pytest.param("ant_big_maze", marks=pytest.mark.slow),
        "point_hardest_maze",
        pytest.param("ant_soccer_u_maze", marks=pytest.mark.slow),
        "humanoid_u_maze",
    ],
)
def test_near_walls_move_robots_as_all_walls_do(id):
    near, whole = engine(id, "near"), engine(id, "all")
    q, qd, rng = scattered(id, near.layout, 256)
    if "soccer" in id:
        # The ball near walls too.
        q[:, 15:] = q[:, :2] + 0.9
    ctrl = rng.uniform(-0.4, 0.4, (len(q), near.layout.act_size)).astype(np.float32)
    run = lambda e: jax.jit(e.step)(jax.jit(e.init)(q, qd), ctrl)
    a, b = run(near), run(whole)
    np.testing.assert_allclose(near.q(a), whole.q(b), atol=2e-4, rtol=1e-4)
    np.testing.assert_allclose(near.qd(a), whole.qd(b), atol=2e-2, rtol=1e-3)


def test_walls_do_stop_a_robot():
    e = engine("point_u_maze", "near")
    q = jnp.array([[4.0, 4.0]])
    state = e.init(q, jnp.array([[-20.0, 0.0]]))
    step = jax.jit(e.step)
    for _ in range(20):
        state = step(state, jnp.zeros((1, 2)))
    # The wall's face is 2 m from the cell's centre, the ball's radius 0.25.
    assert float(e.q(state)[0, 0]) > 4.0 - 2.0 + 0.25 - 0.2
    assert float(e.qd(state)[0, 0]) > -1.0


def test_a_maze_costs_a_handful_of_boxes():
    """The original has one box a cell: 264, 524 and 836 candidate contacts."""
    counts = {"ant_u_maze": 4, "ant_big_maze": 4, "ant_hardest_maze": 4, "humanoid_big_maze": 9}
    for id, count in counts.items():
        model = build_model(get_spec(id)).compile()
        boxes = sum(int(t) == 6 for t in model.geom_type)
        assert boxes == count


@pytest.mark.parametrize("xy", [(4.0, 4.0), (5.99, 2.01), (0.3, 9.0), (-30.0, 50.0), (12.0, 12.0)])
@pytest.mark.parametrize("block", [2, 3])
def test_boxes_stand_on_the_nearest_wall_cells(xy, block):
    maze = Maze("big")
    window = BoundWindow(WallWindow("wall_", "torso", maze.wall_cells, 4.0, 1.0), tuple(range(block**2)), 0)
    centres = np.asarray(window.place(jnp.array(xy)))
    assert len(centres) == block**2
    shown = {(x, y) for x, y, z in centres if z != BELOW}
    walls = {(float(i * 4), float(j * 4)) for i, j in np.argwhere(maze.wall_cells)}
    assert shown <= walls
    # Every wall cell that comes within what the block covers is there.
    cover = 2.0 if block == 2 else 4.0
    touching = {w for w in walls if all(abs(w[k] - xy[k]) < 2.0 + cover - 1e-3 for k in range(2))}
    assert touching <= shown


def test_blocks_cover_the_reach_of_a_robot():
    assert block_for(1.5, 4.0) == 2
    assert block_for(2.1, 4.0) == 3
    assert block_for(1.66, 2.0) == 3
    assert block_for(2.2, 2.0) == 5


def test_reach_bounds_every_pose():
    model = get_spec("ant").body.build()
    model.mark_touching("torso", 256)
    assert model.reach("torso", 256) == pytest.approx(4 * 0.2 * np.sqrt(2) + 0.08, abs=1e-3)


def test_runs_of_cells():
    cells = np.array([[1, 1, 0, 1], [0, 1, 1, 1]], bool)
    assert [tuple(map(int, run)) for run in _runs(cells)] == [(0, 0, 1), (0, 3, 3), (1, 1, 3)]


def test_reference_walls_really_are_all_there():
    spec = get_spec("ant_big_maze")
    whole = dataclasses.replace(spec, arena=dataclasses.replace(spec.arena, walls_as="all"))
    model = build_model(whole).compile()
    assert sum(int(t) == 6 for t in model.geom_type) == 38
    assert physics.PIPELINES == ("spring", "generalized", "mjx")
