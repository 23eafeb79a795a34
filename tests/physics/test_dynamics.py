"""Mass matrix, bias forces, springs, motors and link frames of the generalized pipeline are MuJoCo's."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from homing.physics import Timing
from homing.physics.generalized.engine import Generalized

# Free links, hinges and slides in any order in one link, frames and inertias that are turned, joints off the origin.
MECHANISM = """
<mujoco>
  <default>
    <geom contype="0" conaffinity="0"/>
    <joint armature="0.01" damping="0.3" stiffness="0.7"/>
  </default>
  <worldbody>
    <body name="float" pos="1 2 3">
      <freejoint/>
      <geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0.05" euler="20 30 40"/>
      <body name="arm" pos="0.3 0.1 0" euler="10 50 -30">
        <joint name="swing" type="hinge" axis="1 2 0" pos="0.05 0 0.1"/>
        <joint name="reach" type="slide" axis="0 1 1" pos="0.05 0 0.1"/>
        <joint name="twist" type="hinge" axis="0 0 1" pos="0.05 0 0.1"/>
        <geom type="capsule" size="0.05" fromto="0 0 0 0.3 0.1 0.2"/>
        <body name="hand" pos="0.3 0.1 0.2" euler="0 40 0">
          <joint name="bend" type="hinge" axis="0 1 0" pos="0 0.02 0"/>
          <joint name="roll" type="hinge" axis="1 0 1" pos="0 0.02 0"/>
          <geom type="box" size="0.05 0.1 0.02" pos="0.1 0 0"/>
        </body>
      </body>
      <body name="leg" pos="-0.2 0 0">
        <joint name="knee" type="hinge" axis="0 0 1"/>
        <geom type="sphere" size="0.1" pos="0 0.2 0"/>
      </body>
    </body>
    <body name="cart" euler="0 20 0">
      <joint name="x" type="slide" axis="1 0 0"/>
      <joint name="pole" type="hinge" axis="0 1 0"/>
      <geom type="capsule" size="0.05" fromto="0 0 0 0 0 0.6"/>
    </body>
  </worldbody>
  <actuator>
    <motor joint="swing" gear="3" ctrllimited="true" ctrlrange="-0.5 0.5"/>
    <position joint="bend" kp="4" kv="0.2" gear="2"/>
    <motor joint="bend" gear="-1" forcelimited="true" forcerange="-0.2 0.2"/>
    <general joint="x" biastype="affine" biasprm="0.3 0 -0.1"/>
  </actuator>
</mujoco>
"""
COUNT = 8


@pytest.fixture(scope="module")
def found():
    """Ours at random states: the states, equations and links."""
    model = mujoco.MjModel.from_xml_string(MECHANISM)
    engine = Generalized(model, Timing(model.opt.timestep, 1), ())
    rng = np.random.default_rng(0)
    q, qd, ctrl = (
        rng.normal(size=(COUNT, size)).astype(np.float32) for size in (model.nq, model.nv, model.nu)
    )
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)

    def ours(q, qd, ctrl):
        walls = jnp.asarray(model.geom_pos, jnp.float32)
        equations = jax.vmap(lambda *x: engine.equations(*x, walls))(q, qd, ctrl)
        state = engine.step(engine.init(q, qd), ctrl)
        return equations, engine.links(engine.init(q, qd)), engine.q(state), engine.qd(state)

    return model, (q, qd, ctrl), jax.tree.map(np.asarray, jax.jit(ours)(q, qd, ctrl))


def by_mujoco(found, read):
    """What MuJoCo has at the same states, in float64."""
    model, given, _ = found
    values = []
    for q, qd, ctrl in zip(*given, strict=True):
        data = mujoco.MjData(model)
        data.qpos, data.qvel, data.ctrl = q, qd, ctrl
        mujoco.mj_forward(model, data)
        values.append(read(model, data))
    return np.array(values)


def mass_matrix(model, data):
    full = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, full)
    return full


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=2e-5 * np.abs(b).max())


def test_the_mass_matrix_is_mujocos(found):
    masses = by_mujoco(found, mass_matrix)
    close(found[2][0].inverse_mass @ masses, np.broadcast_to(np.eye(masses.shape[1]), masses.shape))


def test_forces_are_mujocos(found):
    forces = by_mujoco(found, lambda m, d: d.qfrc_passive - d.qfrc_bias + d.qfrc_actuator)
    close(found[2][0].force, forces)


def test_links_are_where_mujoco_has_them(found):
    close(found[2][1].pos, by_mujoco(found, lambda m, d: d.xpos[1:]))
    turned = by_mujoco(found, lambda m, d: d.xquat[1:])
    assert np.abs(np.abs(np.sum(found[2][1].rot * turned, axis=-1)) - 1).max() < 1e-5


def test_a_step_is_eulers(found):
    """Velocities first, then positions with them; damping is explicit."""
    model, (q, qd, _), (_, _, after_q, after_qd) = found
    acceleration = by_mujoco(found, lambda m, d: np.linalg.solve(mass_matrix(m, d), d.qfrc_smooth))
    close(after_qd, qd + model.opt.timestep * acceleration)
    for before, speed, after in zip(q, after_qd, after_q, strict=True):
        moved = before.astype(float)
        mujoco.mj_integratePos(model, moved, speed.astype(float), model.opt.timestep)
        close(after, moved)
