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


def test_a_spring_environment_imports_no_simulator_but_mujoco():
    code = "import sys, homing; homing.make('ant'); print({'brax', 'mujoco.mjx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
