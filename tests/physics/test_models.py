"""Building models."""

import mujoco
import numpy as np
import pytest
from brax_files import brax_file

from homing.envs.registry import get_spec
from homing.envs.scene import build_model
from homing.errors import ConfigError, UnknownNameError
from homing.physics import Model, robots


def test_removing_a_body_shortens_the_numbers_of_each_body():
    model = brax_file("reacher", without=("target",))
    numbers = {n.name: np.asarray(n.data) for n in model.spec.numerics}
    np.testing.assert_array_equal(numbers["init_qpos"], [0, 0])
    np.testing.assert_array_equal(numbers["constraint_stiffness"], [1000, 1000])
    np.testing.assert_array_equal(numbers["constraint_vel_damping"], [3, 3])
    assert model.compile().nq == 2


def test_a_body_is_removed_with_its_children_and_their_numbers():
    numbers = '<numeric name="init_qpos" data="1 2 3"/><numeric name="constraint_stiffness" data="10 20 30"/>'
    part = '<joint/><geom size="0.1"/>'
    marker = f'<body name="marker">{part}<body name="tip">{part}</body></body>'
    xml = f"<mujoco><custom>{numbers}</custom><worldbody>{marker}<body>{part}</body></worldbody></mujoco>"
    model = Model.from_xml(xml, without=("marker",)).compile()
    assert (model.nbody, model.nq) == (2, 1)
    assert (model.numeric("init_qpos").data, model.numeric("constraint_stiffness").data) == ([3], [30])


def test_added_joints_lengthen_the_start_pose():
    model = build_model(get_spec("ant_soccer")).compile()
    assert model.nq == 17
    start = next(model.numeric(i).data for i in range(model.nnumeric) if model.numeric(i).name == "init_qpos")
    assert len(start) == 17 and (start[15:] == 0).all()


def test_the_ball_is_the_benchmarks():
    model = build_model(get_spec("ant_soccer")).compile()
    ball = model.body("ball")
    assert ball.mass[0] == pytest.approx(0.576, abs=1e-3)
    for name in ("ball_x", "ball_y"):
        joint = model.joint(name)
        assert joint.armature[0] == 1.0 and joint.damping[0] == 0.0
        np.testing.assert_array_equal(joint.range, [-100, 100])
    assert model.ncam == 1 and model.nbody == 11


def test_the_block_is_the_benchmarks():
    model = build_model(get_spec("ant_push")).compile()
    assert model.body("block").mass[0] == pytest.approx(0.0002)
    np.testing.assert_allclose(model.geom("block_geom").size, [3.6, 3.6, 1.8])
    np.testing.assert_allclose(model.geom("torso_geom").solimp[:3], [0.995, 0.995, 0.01])
    light = robots.ant().compile().body("torso").mass[0]
    assert model.body("torso").mass[0] == pytest.approx(8.0 * light, rel=1e-6)
    assert sum(int(t) == 6 for t in model.geom_type) == 8


def test_the_point_is_the_benchmarks():
    model = build_model(get_spec("point_u_maze")).compile()
    assert model.body("torso").mass[0] == pytest.approx(0.327, abs=1e-3)
    np.testing.assert_array_equal(model.actuator_gear[:, 0], [5, 5])


def test_a_total_mass_holds_for_bodies_whose_mass_is_given():
    given = '<inertial pos="0.1 0 0" mass="3" diaginertia="1 1.2 1.1"/>'
    other = '<body pos="0 0 1"><joint/><geom size="0.2"/></body>'
    xml = f"""<mujoco><compiler settotalmass="14"/><worldbody>
    <body><joint/>{given}<geom size="0.1"/>{other}</body></worldbody></mujoco>"""
    theirs, ours = mujoco.MjModel.from_xml_string(xml), Model.from_xml(xml).compile()
    np.testing.assert_allclose(ours.body_mass, theirs.body_mass)
    np.testing.assert_allclose(ours.body_inertia, theirs.body_inertia)


@pytest.mark.parametrize(
    ("broken", "error", "part"),
    [
        (lambda: Model.from_xml("<mujoco><wordbody/></mujoco>"), ConfigError, "cannot be read"),
        (lambda: Model.from_xml("no xml"), ConfigError, "cannot be read"),
        (lambda: brax_file("ant", without=("tail",)), UnknownNameError, "body 'tail'"),
        (lambda: robots.ant().set_contact(("torso_gem",), 1), UnknownNameError, "torso_geom"),
    ],
)
def test_bad_models_are_named(broken, error, part):
    with pytest.raises(error) as caught:
        broken()
    assert part in str(caught.value)
