"""Models read by NumPy are those that brax reads."""

import subprocess
import sys

import mujoco
import numpy as np
import pytest
from brax.io import mjcf
from brax_files import ASSETS

from homing.envs.registry import ENVIRONMENTS
from homing.envs.scene import build_model
from homing.physics import Model, brax_pipelines, engine, mechanism, spring_settings
from homing.physics.generalized.engine import Generalized
from homing.physics.merging import merged
from homing.physics.spring.engine import Spring

BODIES = ["ant", "humanoid", "ant_soccer", "point_u_maze", "reacher"]


def compiled(id):
    spec = ENVIRONMENTS[id]
    return engine.compiled(build_model(spec), spec.body.pipelines["spring"])


def same(mine, theirs):
    np.testing.assert_array_equal(np.asarray(mine, float), np.asarray(theirs, float))


@pytest.mark.parametrize("id", [id for id in BODIES if "spring" in ENVIRONMENTS[id].pipelines()])
def test_the_numbers_are_those_of_brax(id):
    model = compiled(id)
    mine, theirs = mechanism.read(model), brax_pipelines.load_system(model)
    settings = spring_settings.read(model)
    links, link = mine.links, theirs.link
    assert (links.types, tuple(links.parents)) == (theirs.link_types, tuple(theirs.link_parents))
    for part, other in [
        (links.pos, link.transform.pos), (links.rot, link.transform.rot), (links.joint, link.joint.pos),
        (links.centre, link.inertia.transform.pos), (links.principal, link.inertia.transform.rot),
        (links.mass, link.inertia.mass), (settings.joint_stiffness, link.constraint_stiffness),
        (links.inertia, np.diagonal(np.asarray(link.inertia.i), axis1=1, axis2=2)),
        (settings.joint_limit_stiffness, link.constraint_limit_stiffness),
        (settings.joint_vel_damping, link.constraint_vel_damping),
        (settings.joint_ang_damping, link.constraint_ang_damping),
        (mine.dofs.hinges, theirs.dof.motion.ang), (mine.dofs.slides, theirs.dof.motion.vel),
        (mine.actuators.dof, theirs.actuator.qd_id), (mine.actuators.ctrl_range, theirs.actuator.ctrl_range),
        (mine.actuators.force_range, theirs.actuator.force_range), (mine.actuators.gain, theirs.actuator.gain),
        (mine.actuators.gear, theirs.actuator.gear), (mine.init_q, theirs.init_q),
        (mine.gravity, theirs.gravity), (mine.timestep, theirs.opt.timestep),
        (settings.elasticity, theirs.elasticity), (settings.push_out, theirs.baumgarte_erp),
        (settings.vel_damping, theirs.vel_damping), (settings.ang_damping, theirs.ang_damping),
        (settings.mass_scale, theirs.spring_mass_scale), (settings.inertia_scale, theirs.spring_inertia_scale),
    ]:  # fmt: skip
        same(part, other)
    if theirs.dof.limit is None:
        assert np.isinf(mine.dofs.low).all() and np.isinf(mine.dofs.high).all()
    else:
        same(np.stack([mine.dofs.low, mine.dofs.high]), np.stack(theirs.dof.limit))


BODY = """<body name="a"><joint name="j" type="hinge"/><geom size="0.1"/></body>"""


@pytest.mark.parametrize(
    ("custom", "words"),
    [
        ('<numeric name="elasticity" data="1 2 3 4 5"/>', "elasticity has 5 values"),
        ('<tuple name="elasticity"><element objtype="body" objname="a" prm="1"/></tuple>', "custom tuples"),
    ],
)
def test_what_would_be_read_wrongly_is_left_to_brax(custom, words):
    xml = f"<mujoco><custom>{custom}</custom><worldbody>{BODY}</worldbody></mujoco>"
    reason = Spring.supports(mujoco.MjModel.from_xml_string(xml))
    assert reason is not None and words in reason
    assert Spring.supports(Model.from_xml(xml.replace(custom, "")).compile()) is None


@pytest.mark.parametrize("pipeline", [Spring, Generalized])
@pytest.mark.parametrize(
    ("joint", "body", "rest", "words"),
    [
        ("", "", '<equality><joint joint1="j"/></equality>', "equality constraints"),
        ("", "", '<tendon><fixed stiffness="9"><joint joint="j" coef="1"/></fixed></tendon>', "tendons"),
        ('frictionloss="2"', "", "", "joint friction"),
        ("", 'gravcomp="1"', "", "weight is borne"),
        ('actuatorfrcrange="-1 1"', "", "", "limit the force of their actuators"),
        ("", "", '<actuator><general joint="j" dyntype="filter" dynprm="1"/></actuator>', "internal state"),
        ("", "", '<option><flag gravity="disable"/></option>', "it disables gravity"),
        ("", "", '<option><flag limit="disable"/></option>', "it disables limit"),
    ],
)
def test_what_our_engines_would_ignore_is_refused(pipeline, joint, body, rest, words):
    def reason(joint="", body="", rest=""):
        link = f'<body {body}><joint name="j" type="hinge" {joint}/><geom size="0.1"/></body>'
        return pipeline.supports(
            mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{link}</worldbody>{rest}</mujoco>")
        )

    assert reason() is None
    assert words in reason(joint, body, rest)


FILES = ["ant.xml", "half_cheetah.xml", "humanoid.xml", "pusher.xml", "reacher.xml"]


@pytest.mark.parametrize("asset", FILES)
def test_bodies_without_joints_are_merged_as_brax_merges_them(asset):
    xml = (ASSETS / asset).read_text()
    mine, theirs = (mujoco.MjModel.from_xml_string(merge(xml)) for merge in (merged, mjcf.fuse_bodies))
    for name in ("body_pos", "body_quat", "geom_pos", "geom_quat", "geom_size", "jnt_pos", "jnt_axis"):
        same(getattr(mine, name), getattr(theirs, name))
    same(mine.body_mass, theirs.body_mass)
    same(mine.body_inertia, theirs.body_inertia)


def test_a_turned_body_without_joints_keeps_its_rotation():
    turned = '<body quat="1 0 0 1"><geom name="g" size="0.1" pos="1 0 0"/></body>'
    xml = f"<mujoco><worldbody><body><freejoint/>{turned}</body></worldbody></mujoco>"
    np.testing.assert_allclose(Model.from_xml(xml).compile().geom("g").pos, [0, 1, 0], atol=1e-6)


ROD = '<geom name="g" type="capsule" size="0.05 0.2" pos="0.3 0.1 0"/>'
TURNED = {
    "euler": f'<body pos="0 0 0.1" euler="10 20 90">{ROD}</body>',
    "axisangle": f'<body pos="0 0 0.1" axisangle="0 1 1 50">{ROD}</body>',
    "xyaxes": f'<body xyaxes="0 1 0 -1 0 0">{ROD}</body>',
    "zaxis": f'<body zaxis="1 0 1">{ROD}</body>',
    "part": '<body quat="1 0 1 0"><geom name="g" type="box" size="0.1 0.2 0.3" euler="0 70 0"/></body>',
    "twice": f'<body euler="0 0 90"><body pos="0 1 0" euler="30 0 0">{ROD}</body></body>',
}
BALL = '<geom size="0.1" pos="0 0 0.2"/>'
GIVEN = '<inertial pos="0.1 0 0.2" mass="2" fullinertia="0.5 0.6 0.7 0.01 0.02 0.03"/>'
WEIGHED = {
    "parent": (GIVEN, f'<body pos="0 1 0" quat="1 1 0 0">{BALL}</body>'),
    "child": (BALL, f'<body pos="0 1 0" quat="1 1 0 0">{GIVEN}</body>'),
    "both": (GIVEN, f'<body pos="0 1 0" euler="0 40 0">{GIVEN}<body pos="1 0 0">{BALL}</body></body>'),
}


def whole_and_merged(link, compiler="", default=""):
    """MuJoCo's model of a link with a part that has no joint, and ours in which it is merged."""
    xml = f"""<mujoco><compiler {compiler}/><default>{default}</default><worldbody>
    <body name="base">{GIVEN}<body name="link" pos="0 0 1"><joint axis="0 1 0"/>{link}</body></body>
    </worldbody></mujoco>"""
    return mujoco.MjModel.from_xml_string(xml), Model.from_xml(xml).compile()


@pytest.mark.parametrize("compiler", ["", 'angle="radian" eulerseq="zxy"'])
@pytest.mark.parametrize("part", TURNED.values(), ids=TURNED)
def test_merged_parts_stay_where_they_are_however_they_are_turned(part, compiler):
    where = []
    for model in whole_and_merged(BALL + part, compiler):
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        where.append(np.concatenate([data.geom("g").xpos, np.abs(data.geom("g").xmat)]))
    np.testing.assert_allclose(*where, atol=1e-5)


@pytest.mark.parametrize(("own", "part"), WEIGHED.values(), ids=WEIGHED)
def test_merged_bodies_keep_their_mass_and_inertia(own, part):
    whole, ours = whole_and_merged(own + part)
    assert ours.body("link").mass == pytest.approx(whole.body_mass[2:].sum())
    for model in (whole, ours):
        model.opt.gravity[:] = (1.0, 2.0, -9.0)
    forces = []
    for model in (whole, ours):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = 0.4, 2.0
        mujoco.mj_forward(model, data)
        forces.append([*data.qacc, *data.qfrc_bias])
    np.testing.assert_allclose(*forces, rtol=1e-5)


def test_merged_parts_keep_the_class_of_their_body():
    default = '<default class="wide"><geom size="0.3"/></default>'
    link = f'{BALL}<body childclass="wide"><geom name="g"/></body>'
    assert whole_and_merged(link, default=default)[1].geom("g").size[0] == 0.3


def test_a_spring_environment_imports_no_simulator_but_mujoco():
    code = "import sys, homing; homing.make('ant'); print({'brax', 'mujoco.mjx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
