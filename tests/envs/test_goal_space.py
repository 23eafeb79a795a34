"""Places on the floor: goals from what people write and click."""

import jax
import numpy as np
import pytest
from helpers import draws

import homing
from homing.envs.goal_space import GoalSpace, free_entries, goal_space
from homing.envs.registry import get_spec
from homing.errors import ConfigError


def space(id):
    return GoalSpace(id, get_spec(id))


def test_a_goal_is_written_as_a_place_and_keeps_its_height():
    np.testing.assert_allclose(space("point_u_maze").parse("4,8"), [4, 8])
    np.testing.assert_allclose(space("humanoid").parse("2,-1"), [2, -1, 1.25])
    np.testing.assert_allclose(space("humanoid").parse("2,-1,1.1"), [2, -1, 1.1])
    np.testing.assert_allclose(space("half_cheetah").parse("5"), [5])
    two = space("pusher_two")
    goal = two.parse("0.1,0.2,0.5,-0.4")
    np.testing.assert_allclose(two.points(goal), [[0.1, 0.2], [0.5, -0.4]])
    np.testing.assert_allclose(goal[[2, 5]], two.template[[2, 5]])


@pytest.mark.parametrize(
    ("id", "text", "words"),
    [
        ("point_u_maze", "4", "is 2 comma-separated numbers"),
        ("point_u_maze", "4;8", "not '4;8'"),
        ("point_u_maze", "nan,8", "is 2 comma-separated numbers"),
        ("half_cheetah", "4,8", "is one number, for instance"),
    ],
)
def test_a_goal_that_cannot_be_read_is_refused_with_a_way_out(id, text, words):
    with pytest.raises(ConfigError) as told:
        space(id).parse(text)
    assert words in str(told.value)


@pytest.mark.parametrize("id", ["reacher", "half_cheetah", "point_u_maze", "pusher_two", "arm_reach", "ant"])
def test_the_goal_that_a_refusal_names_is_one(id, caplog):
    with pytest.raises(ConfigError) as told:
        space(id).parse("x")
    example = str(told.value).partition("for instance ")[2].partition(", not")[0]
    space(id).parse(example)
    assert not caplog.records


def test_the_place_that_is_offered_is_free():
    maze = space("point_u_maze")
    for xy in ((8, 4), (0, 0), (-50, 70), (8, 11.9), (18, 18), (50, 70)):
        near = np.array(maze.nearest_free(xy))
        assert np.all((near > 2) & (near < 14)), "inside of the outer wall, which begins at 2 and at 14"
        assert not maze.in_wall(near)
        assert maze.fault(near) == ""
    assert maze.nearest_free((4, 8)) == (4, 8)


@pytest.mark.parametrize(
    ("id", "text", "words", "goal"),
    [
        ("point_u_maze", "40,8", "(40, 8) is outside of point_u_maze, where x ranges from -2 to 18", None),
        ("point_u_maze", "8,4", "(8, 4) is inside a wall of point_u_maze; using the nearest free", None),
        ("point_u_maze", "18,18", "(18, 18) is inside a wall of point_u_maze; using the nearest free", None),
        ("ant", "0,13", "(0, 13) is outside of ant", (0, 12)),
        (
            "reacher",
            "0.3,0",
            "out of reach in reacher, whose arm reaches 0.21 m from (0, 0)",
            (0.21, 0, 0.01),
        ),
        ("reacher", "-3,0", "outside of reacher", (-0.21, 0, 0.01)),
        ("pusher_reach", "0.78,-0.6", "out of reach in pusher_reach", (0.7446, -0.6, -0.323)),
    ],
)
def test_a_goal_that_cannot_be_reached_is_moved_with_one_line(id, text, words, goal, caplog):
    moved = space(id).parse(text)
    (record,) = caplog.records
    assert words in record.getMessage()
    assert "\n" not in record.getMessage()
    assert not any(space(id).fault(point) for point in space(id).points(moved))
    if goal is not None:
        np.testing.assert_allclose(moved, goal, atol=1e-3)


@pytest.mark.parametrize(
    "id", ["pusher_easy", "pusher_hard", "pusher_two", "arm_push_hard", "ant_push", "ant_anywhere"]
)
def test_a_goal_that_training_draws_stays_where_it_is(id):
    places = space(id)
    for goal in np.asarray(draws(id).goal[:200]):
        settled, moved = places.settled(goal)
        assert not moved
        np.testing.assert_array_equal(settled, goal)


def test_goals_within_reach_stay_where_they_are(caplog):
    np.testing.assert_allclose(space("reacher").parse("0.15,-0.1"), [0.15, -0.1, 0.01])
    # A puck slides on where the arm ends.
    np.testing.assert_allclose(space("pusher_hard").parse("0.78,0.2")[:2], [0.78, 0.2])
    assert not caplog.records


@pytest.mark.parametrize(
    ("id", "low", "high", "slack"), [("reacher", -3.1, 3.1, 0.005), ("pusher_reach", -0.5, 1.3, 0.15)]
)
def test_an_arm_reaches_as_far_as_its_joints_allow(id, low, high, slack):
    scene, reachable = homing.make(id).scene, space(id).regions[0]
    layout = scene.engine.layout
    q = np.random.default_rng(0).uniform(low, high, (4000, layout.q_size)).astype(np.float32)
    q[:, 3:] *= 0.2  # the elbow nearly straight
    still = lambda size: np.zeros((4000, size), np.float32)
    observe = jax.jit(lambda q, qd, ctrl: scene.observe(scene.engine.init(q, qd), ctrl))
    states = np.asarray(observe(q, still(layout.qd_size), still(layout.act_size)))
    tips = states[:, scene.indices(reachable.entries)]
    at_height = np.abs(tips[:, 2] - space(id).template[2]) < 0.05
    farthest = np.linalg.norm(tips[at_height, :2] - np.asarray(reachable.centre), axis=-1).max()
    assert reachable.radius - slack < farthest < reachable.radius + 0.03


def test_walls_are_where_the_layout_says():
    maze = space("point_u_maze")
    cells = get_spec("point_u_maze").arena.wall_cells
    centres = 4.0 * np.stack(np.meshgrid(*map(np.arange, cells.shape), indexing="ij"), axis=-1)
    np.testing.assert_array_equal(maze.in_wall(centres), cells)


def test_a_grid_fills_the_arena_with_squares():
    grid = space("ant_push").grid(40)
    x0, x1, y0, y1 = get_spec("ant_push").arena.extent()
    step = grid[0, 1, 0] - grid[0, 0, 0]
    assert step == pytest.approx(grid[1, 0, 1] - grid[0, 0, 1], rel=0.05)
    assert grid[0, 0, 0] - step / 2 == pytest.approx(x0)
    assert grid[0, -1, 0] + step / 2 == pytest.approx(x1)
    assert max(grid.shape[:2]) == 40
    assert y0 < grid[0, 0, 1] < grid[-1, 0, 1] < y1


def test_the_tip_of_an_arm_is_not_free_but_a_robot_on_the_floor_is():
    assert free_entries(homing.make("point_u_maze").scene).all()
    assert not free_entries(homing.make("reacher").scene).any()


def test_the_space_of_an_environment_knows_its_options():
    env = homing.make("point_u_maze", options={"task.within": 0.25})
    assert goal_space(env).spec.task.within == 0.25
