"""The Panda's environments: starts, goals, commands and states, without compiling their physics."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import draws

import homing
from homing.envs.bodies.panda import CUBE_REGION, DRIVEN, HIGH, LEVEL, LOW, WRIST_REGION
from homing.envs.bodies.panda_hand import RANGES, REACH
from homing.envs.goal_space import GoalSpace
from homing.envs.registry import get_spec
from homing.envs.renewal import next_goals
from homing.envs.scene import build_model
from homing.envs.tasks.base import point_distances
from homing.errors import ConfigError, UnknownNameError
from homing.physics import panda
from homing.physics.engine import compiled

MOVES = ("arm_push_easy", "arm_push_hard", "arm_binpick_easy", "arm_binpick_hard", "arm_binpick_easy_hand")


@pytest.mark.parametrize("id", MOVES)
def test_cubes_start_away_from_their_goals_and_in_reach(id):
    sample, task = draws(id), get_spec(id).task
    cubes, goals = sample.props[:, :3], sample.goal
    assert np.linalg.norm(cubes - goals, axis=-1).min() >= task.within + 0.019
    assert (cubes[:, 2] == np.float32(task.cube.half)).all() and (
        goals[:, 2] == np.float32(task.cube.half)
    ).all()
    for points in (cubes, goals):
        assert CUBE_REGION.inside(points).all()
        assert np.ptp(points[:, 0]) > 0.009, "they differ between episodes"
    np.testing.assert_array_equal(sample.props[:, 3:], np.tile(np.float32([1, 0, 0, 0]), (len(cubes), 1)))


@pytest.mark.parametrize("id", ["arm_binpick_easy", "arm_binpick_hard"])
def test_cubes_and_goals_are_inside_of_different_bins(id):
    sample, arena = draws(id), get_spec(id).arena
    for points, centre in zip((sample.props, sample.goal), arena.bins, strict=True):
        offset = np.abs(points[:, :2] - (centre, arena.depth))
        assert offset.max() < arena.half - 0.03, "all of the cube is between the walls"


def test_goals_of_the_wrist_can_be_held_and_no_start_is_a_success():
    spec, goals = get_spec("arm_reach"), draws("arm_reach").goal
    assert WRIST_REGION.inside(goals).all()
    model = compiled(build_model(spec), spec.body.pipelines["mjx"])
    data, rng, starts = mujoco.MjData(model), np.random.default_rng(0), []
    for _ in range(300):
        data.qpos[:] = model.numeric("init_qpos").data
        data.qpos[list(DRIVEN)] += rng.choice([-1, 1], 4) * spec.body.start_noise
        mujoco.mj_kinematics(model, data)
        starts.append(data.body("link7").xpos.copy())
    gaps = np.linalg.norm(goals[:, None] - np.array(starts), axis=-1)
    assert gaps.min() > spec.task.within
    low, high = goals.min(axis=0), goals.max(axis=0)
    np.testing.assert_allclose(low, [-0.2, 0.3, 0.1], atol=0.02)
    np.testing.assert_allclose(high, [0.2, 0.7, 0.5], atol=0.02)


def test_goals_of_a_grasp_are_a_true_grip():
    sample, task = draws("arm_grasp"), get_spec("arm_grasp").task
    cube, left, right = sample.goal.reshape(-1, 3, 3).transpose(1, 0, 2)
    np.testing.assert_array_equal(cube, sample.props[:, :3])
    np.testing.assert_allclose(0.5 * (left + right), cube, atol=1e-6)
    # The inner face of a closed finger is 0.0005 m from its frame, and its tip 0.005.
    np.testing.assert_allclose(
        np.linalg.norm(left - right, axis=-1), 2 * (task.cube.half + 0.0045), atol=1e-5
    )
    along = (left - right) / np.linalg.norm(left - right, axis=-1, keepdims=True)
    assert np.abs(np.sum(along * cube, axis=-1)).max() < 1e-6, "across the plane of the arm"
    w, z = sample.props[:, 3], sample.props[:, 6]
    facing = np.stack([w * w - z * z, 2 * w * z, 0 * w], axis=-1)
    assert np.abs(np.sum(facing * along, axis=-1)).max() < 1e-5, "fingers close on two faces"


def test_open_fingers_are_no_grasp():
    task, goal = get_spec("arm_grasp").task, draws("arm_grasp").goal
    cube, left, right = np.split(goal, 3, axis=-1)
    along = (left - right) / np.linalg.norm(left - right, axis=-1, keepdims=True)
    distance = lambda half: np.asarray(
        jnp.max(
            point_distances(np.concatenate([cube, cube + half * along, cube - half * along], -1), goal, 3), -1
        )
    )
    assert distance(0.0345).max() < task.margins["success_hard"]
    assert distance(0.5 * (2 * panda.STRETCH + 0.01)).min() > task.within


@pytest.mark.parametrize("half", [0.01, 0.03])
def test_a_true_grip_meets_the_goal_of_a_cube_of_any_size(half):
    """The tip of a finger is 0.005 m from its frame, and its inner face 0.0005 m."""
    scene = scene_of("arm_grasp", **{"task.cube.half": half})
    goal = np.asarray(scene.sample_reset(jax.random.key(0))[2]).reshape(3, 3)
    gaps = np.linalg.norm(goal[1:] - goal[0], axis=-1)
    np.testing.assert_allclose(gaps, half - 0.0005 + 0.005, atol=1e-6)


def test_a_cube_as_wide_as_the_open_fingers_is_refused():
    with pytest.raises(ConfigError, match="fingers that stand open are within"):
        scene_of("arm_grasp", **{"task.cube.half": 0.04})
    scene_of("arm_grasp", **{"task.cube.half": 0.04, "task.within": 0.01})


def test_a_new_goal_of_a_grasp_is_the_cube_where_it_is():
    spec = get_spec("arm_grasp")
    places = jnp.asarray([[0.2, 0.5], [-0.1, 0.4], [0.0, 0.0]])
    lifted = jnp.full((3, 1), 0.08)
    achieved = jnp.concatenate([places, lifted, jnp.full((3, 6), 0.3)], axis=-1)
    goals = np.asarray(next_goals(spec.task, spec.arena, jax.random.key(0), achieved))
    assert np.isfinite(goals).all()
    np.testing.assert_allclose(goals[:, :2], places, atol=1e-6)
    np.testing.assert_allclose(goals[:, 2], spec.task.cube.half)
    own = np.asarray(draws("arm_grasp").goal[:3])
    again = next_goals(spec.task, spec.arena, jax.random.key(1), jnp.asarray(own))
    np.testing.assert_allclose(again, own, atol=1e-6)


def scene_of(id, **options):
    return homing.make(id, options=options).scene


def test_actions_are_targets_of_four_joints_and_close_the_hand():
    scene = scene_of("arm_push_easy")
    action = jnp.asarray([[-1.0, -1.0, -1.0, -1.0, -1.0], [1.0, 1.0, 1.0, 1.0, 0.1], [0.0] * 5])
    low, high, middle = np.asarray(scene.spec.body.command(scene.engine, None, action))
    np.testing.assert_allclose(low, [*LOW, LEVEL, 255, 255], atol=1e-6)
    np.testing.assert_allclose(high, [*HIGH, LEVEL, 0, 0], atol=1e-6)
    np.testing.assert_allclose(middle[:6], 0.5 * (np.array(LOW) + HIGH), atol=1e-6)


def test_the_original_states_gains_and_wrist_can_be_asked_for():
    original = {"body.state": "original", "task.cube.state": "original"}
    sizes = {"arm_grasp": 24, "arm_push_easy": 18, "arm_binpick_hard": 18, "arm_binpick_easy_hand": 11}
    for id, size in sizes.items():
        assert len(scene_of(id, **original).columns) == size
    reach = scene_of("arm_reach", **{"body.state": "original", "body.gains": "original"})
    assert len(reach.columns) == 13
    np.testing.assert_allclose(reach.engine.layout.init_q[6], 1.4487)
    cube = scene_of("arm_push_easy", **{"task.cube.table_friction": 1.0}).spec.task.cube
    assert cube.table_friction == 1.0
    with pytest.raises(UnknownNameError, match="known: equal, original"):
        homing.make("arm_reach", options={"body.gains": "high"})
    with pytest.raises(ConfigError, match="must be at least 10"):
        homing.make("arm_reach", options={"body.frames": 2})


def test_the_original_friction_of_all_pairs_can_be_asked_for():
    names = ("task.cube.table_friction", "body.friction", "arena.friction")
    spec = scene_of("arm_binpick_easy", **dict.fromkeys(names, 1.0)).spec
    assert (build_model(spec).compile().pair_friction[:, :2] == 1.0).all()


def test_free_bodies_have_one_coordinate_more_than_velocities():
    scene = scene_of("arm_push_easy")
    assert (scene.body_q, scene.body_qd, scene.prop_qd) == (9, 9, 6)
    q, qd, goal = scene.sample_reset(jax.random.key(0))
    assert (q.shape, qd.shape, goal.shape) == ((16,), (15,), (3,))
    np.testing.assert_allclose(np.linalg.norm(q[12:]), 1.0)
    np.testing.assert_array_equal(scene.engine.layout.init_q[9:], np.float32([0, 0, 0.03, 1, 0, 0, 0]))


def test_the_hand_is_commanded_from_where_it_is():
    scene = scene_of("arm_binpick_easy_hand")

    class Engine:
        q = staticmethod(lambda state: state)

    action = jnp.asarray([[0.5, -1.0, 0.0, 1.0], [1.0, 0.0, -1.0, 0.0]])
    place = jnp.asarray([[0.1, 0.6, 0.3], [0.35, 0.6, 0.2]])
    found = np.asarray(scene.spec.body.command(Engine(), place, action))
    np.testing.assert_allclose(found[0], [0.1 + 0.5 * REACH, 0.4, 0.3, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(found[1], [RANGES[0][1], 0.6, RANGES[2][0], 255.0, 255.0], atol=1e-6)


def space(id):
    return GoalSpace(id, get_spec(id))


def test_goals_out_of_reach_are_moved_in_three_dimensions(caplog):
    reach = space("arm_reach")
    np.testing.assert_allclose(reach.parse("0.1,0.5,0.3"), [0.1, 0.5, 0.3])
    assert not caplog.records
    moved = reach.parse("0,0.9,0.9")
    (record,) = caplog.records
    assert "out of reach in arm_reach, whose arm reaches at most" in record.getMessage()
    assert WRIST_REGION.inside(moved) and 0.6 < np.linalg.norm(moved - [0.0, 0.0, 0.333]) < 0.8
    caplog.clear()
    behind = reach.parse("0.4,-0.2,0.3")
    assert WRIST_REGION.inside(behind) and len(caplog.records) == 1


def test_goals_of_a_cube_stay_on_the_table_and_off_the_walls(caplog):
    np.testing.assert_allclose(space("arm_push_easy").parse("0,0.99"), [0.0, 0.85, 0.03], atol=1e-6)
    np.testing.assert_allclose(space("arm_push_easy").parse("0,0.6,-1"), [0.0, 0.6, 0.03], atol=1e-6)
    bins = space("arm_binpick_easy")
    moved = bins.parse("0,0.6")
    assert not bins.fault(moved) and abs(abs(moved[0]) - 0.06) < 0.05
    assert [("out of reach" in r.getMessage(), "wall" in r.getMessage()) for r in caplog.records] == [
        (True, False),
        (True, False),
        (False, True),
    ]


def lifted(friction):
    """A gripped cube before and after it is lifted: how far fingers are in it, and how far it slipped (metres)."""
    spec = get_spec("arm_binpick_easy_hand")
    cube = dataclasses.replace(spec.task.cube, finger_friction=friction)
    spec = dataclasses.replace(spec, task=dataclasses.replace(spec.task, cube=cube))
    model = compiled(build_model(spec), spec.body.pipelines["mjx"])
    data = mujoco.MjData(model)
    height = cube.half + panda.FINGERS_AT[2] + panda.TIP_AT[2] - 0.005
    data.qpos[:] = (-0.17, 0.6, height, 0.04, 0.04, -0.17, 0.6, cube.half, 1, 0, 0, 0)
    data.ctrl[:] = (-0.17, 0.6, height, 0.0, 0.0)
    mujoco.mj_step(model, data, 300)
    above = data.qpos[7] - data.qpos[2]
    for k in range(500):
        data.ctrl[2] = height + 0.15 * min(1.0, k / 125)
        mujoco.mj_step(model, data)
    pads = [model.geom(f"{finger}_pad").id for finger in panda.FINGERS]
    inside = [-contact.dist for contact in data.contact[: data.ncon] if set(contact.geom) & set(pads)]
    assert inside, "it is still held"
    return max(inside), above - (data.qpos[7] - data.qpos[2])


def test_a_friction_of_one_holds_a_lifted_cube_and_ten_lets_fingers_sink_into_it():
    sunk, slipped = lifted(get_spec("arm_grasp").task.cube.finger_friction)
    assert sunk < 2e-4 and abs(slipped) < 5e-4
    sunk, with_ten = lifted(10.0)  # as the original's files say and its pairs do not do
    assert sunk > 2e-3 and with_ten > slipped
