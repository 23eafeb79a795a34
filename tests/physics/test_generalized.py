"""The generalized pipeline: its equations, forces that only push, and the inverse of the mass matrix."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import scene
from scipy.optimize import nnls
from solving_helpers import positive_definite

from homing.envs import make
from homing.errors import ConfigError
from homing.physics import Timing, brax_pipelines
from homing.physics.generalized.constraints import Rows
from homing.physics.generalized.engine import Equations, Generalized
from homing.physics.solvers import inverse, non_negative

# Links that touch the floor and their limits, with little to compile.
TOUCHING = """
<mujoco>
  <default><geom friction="0.7 0.1 0.1" solimp="0.5 0.9 0.1"/></default>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 0.2">
      <joint type="slide" axis="1 0 0"/>
      <joint type="slide" axis="0 0 1" limited="true" range="-0.1 0.2"/>
      <joint type="hinge" axis="0 1 0" limited="true" range="-10 20" solreflimit="-300 -5"/>
      <geom type="capsule" size="0.15" fromto="-0.3 0 0 0.3 0 0"/>
      <body pos="0.3 0 0.3">
        <joint name="j" type="hinge" axis="1 1 0"/>
        <geom size="0.2" pos="0 0.1 -0.3"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="j"/></actuator>
</mujoco>
"""
ROBOTS = ("ant", "reacher", "pusher_hard", "half_cheetah", "humanoid", "ant_soccer")


def random_system(seed, rows=12, coordinates=6):
    """A = J W Jᵀ + D and b as contacts give them, some of which do not touch."""
    rng = np.random.default_rng(seed)
    jac = rng.normal(size=(rows, coordinates)) * rng.uniform(0.1, 10, size=(rows, 1))
    jac[rng.random(rows) < 0.4] = 0.0
    weights = np.diag(rng.uniform(0.1, 3.0, size=coordinates))
    soft = np.where(jac.any(axis=1), rng.uniform(0.05, 0.5, size=rows), 0.0)
    matrix = jac @ weights @ jac.T + np.diag(soft * np.maximum((jac @ weights @ jac.T).diagonal(), 1e-3))
    matrix[~jac.any(axis=1)] = 0.0
    offset = np.where(jac.any(axis=1), rng.normal(size=rows), 0.0)
    return matrix, offset


def test_forces_come_near_the_best_that_only_push():
    errors = []
    for seed in range(40):
        matrix, offset = random_system(seed)
        found = np.asarray(non_negative(jnp.asarray(matrix, jnp.float32), jnp.asarray(offset, jnp.float32)))
        assert (found >= 0).all()
        assert (found[~matrix.any(axis=1)] == 0).all(), "what does not touch does not push"
        best, least = nnls(matrix, -offset)
        assert np.linalg.norm(matrix @ found + offset) >= least - 1e-4
        errors.append(np.linalg.norm(matrix @ (found - best)) / (1e-6 + np.linalg.norm(matrix @ best)))
    assert np.mean(errors) < 0.25  # contacts of such different sizes are rare; an arm's come out below 0.01


def test_more_turns_come_nearer():
    errors = []
    for iterations in (4, 24, 120):
        each = []
        for seed in range(20):
            matrix, offset = random_system(seed)
            found = non_negative(
                jnp.asarray(matrix, jnp.float32), jnp.asarray(offset, jnp.float32), iterations
            )
            best = nnls(matrix, -offset)[0]
            each.append(np.linalg.norm(matrix @ (np.asarray(found) - best)))
        errors.append(np.mean(each))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 3e-2


def test_nothing_touches_nothing_pushes():
    assert (np.asarray(non_negative(jnp.zeros((5, 5)), jnp.zeros(5))) == 0).all()


@pytest.mark.parametrize("size", [1, 2, 9])
def test_inverses_are_exact(size):
    rng = np.random.default_rng(size)
    matrix = positive_definite(rng, size)
    found = np.asarray(inverse(jnp.asarray(matrix, jnp.float32)))
    np.testing.assert_allclose(found @ matrix, np.eye(size), atol=1e-3)


def test_braxs_own_pipelines_can_be_asked_for_where_ours_can():
    assert make("reacher", num_envs=1, physics="generalized_brax").spec.physics == "generalized_brax"
    assert type(scene("ant", "spring_brax").engine) is brax_pipelines.Spring
    with pytest.raises(ConfigError, match="runs on mjx, not on generalized_brax"):
        scene("ant_push", "generalized_brax")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ('<option integrator="RK4"/>', "integrator"),
        ('<option density="1"/>', "fluid"),
        ('<equality><joint joint1="j"/></equality>', "equality"),
        ('<actuator><general joint="j" dyntype="integrator"/></actuator>', "internal state"),
    ],
)
def test_models_that_would_move_wrongly_are_refused(part, words):
    body = '<worldbody><body><joint name="j" type="hinge"/><geom size="0.1"/></body></worldbody>'
    load = lambda xml: Generalized(mujoco.MjModel.from_xml_string(xml), Timing(0.01, 1), ())
    with pytest.raises(ConfigError, match=words):
        load(f"<mujoco>{part}{body}</mujoco>")
    load(f"<mujoco>{body}</mujoco>")


ALONE = {
    "hinge": '<joint type="hinge" axis="0 1 0"/>',
    "plane": '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>',
    "free": "<freejoint/>",
}


@pytest.mark.parametrize("joints", ALONE.values(), ids=ALONE)
def test_a_robot_of_one_link_moves_as_in_mujoco(joints):
    geom = '<geom type="box" size="0.2 0.1 0.3" pos="0 0 -0.3" mass="1" contype="0" conaffinity="0"/>'
    xml = f'<mujoco><option timestep="0.005"/><worldbody><body>{joints}{geom}</body></worldbody></mujoco>'
    model = mujoco.MjModel.from_xml_string(xml)
    engine, data = Generalized(model, Timing(0.005, 20), ()), mujoco.MjData(model)
    data.qvel[:] = np.linspace(-0.5, 0.7, model.nv)
    state = engine.init(*(jnp.asarray(x, jnp.float32)[None] for x in (data.qpos, data.qvel)))
    after = jax.jit(engine.step)(state, np.zeros((1, 0), np.float32))
    mujoco.mj_step(model, data, 20)
    mujoco.mj_kinematics(model, data)
    np.testing.assert_allclose(engine.q(after)[0], data.qpos, atol=1e-5)
    np.testing.assert_allclose(engine.links(after).pos[0, 0], data.xpos[1], atol=1e-5)


def states(engine, count: int):
    """Poses around the rest pose with velocities, and controls."""
    k_q, k_qd, k_ctrl = jax.random.split(jax.random.key(1), 3)
    layout = engine.layout
    q = jnp.asarray(layout.init_q) + 0.3 * jax.random.normal(k_q, (count, layout.q_size))
    if layout.q_size > layout.qd_size:
        q = q.at[:, 3:7].divide(jnp.linalg.norm(q[:, 3:7], axis=-1, keepdims=True))
    ctrl = jax.random.uniform(k_ctrl, (count, layout.act_size), minval=-1.0, maxval=1.0)
    return q, jax.random.normal(k_qd, (count, layout.qd_size)), ctrl


def equations(engine, q, qd, ctrl):
    """The equations of a physics step, and what is read of the state."""
    state = engine.init(q, qd)
    walls = jax.vmap(engine._near_walls)(engine.links(state).pos)
    found = jax.vmap(engine.equations)(q, qd, ctrl, walls)
    return found, engine.links(state), engine.mass_features(state), engine.torques(state, ctrl)


def braxs_equations(engine, q, qd, ctrl):
    from brax.generalized import dynamics

    state = engine.init(q, qd)
    torques = engine.torques(state, ctrl)
    force = jax.vmap(lambda s, tau: dynamics.forward(engine.system, s, tau))(state, torques)
    rows = Rows(state.con_jac, state.con_diag, state.con_aref)
    return (
        Equations(state.mass_mx_inv, force, rows),
        engine.links(state),
        engine.mass_features(state),
        torques,
    )


def engines(name: str):
    """Our engine and brax's for an environment or for MJCF text."""
    if "<" not in name:
        return tuple(scene(name, pipeline).engine for pipeline in ("generalized", "generalized_brax"))
    load = lambda kind: kind(mujoco.MjModel.from_xml_string(name), Timing(0.01, 1), ())
    return load(Generalized), load(brax_pipelines.Generalized)


@pytest.mark.parametrize(
    "name",
    [pytest.param(TOUCHING, id="touching"), *(pytest.param(id, marks=pytest.mark.slow) for id in ROBOTS)],
)
def test_equations_are_those_of_brax(name):
    """Mass matrix, forces, contacts, limits and links at the same coordinates differ by rounding."""
    ours, theirs = engines(name)
    given = states(ours, 16)
    mine = jax.jit(lambda *x: equations(ours, *x))(*given)
    other = jax.jit(lambda *x: braxs_equations(theirs, *x))(*given)
    # brax also has rows for joints without limits; they are zero.
    used = [k for k in range(other[0].rows.target.shape[1]) if k not in unlimited(ours, mine[0].rows)]
    other = (
        other[0]._replace(rows=jax.tree.map(lambda x: x[:, np.array(used, int)], other[0].rows)),
        *other[1:],
    )
    if name != "reacher":
        assert np.abs(mine[0].rows.jacobian).sum(axis=-1).any(axis=0).sum() > 4, "something touches"
    for a, b in zip(jax.tree.leaves(mine), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * max(np.abs(b).max(initial=0.0), 1e-3))


def unlimited(engine, rows) -> set[int]:
    """Indices of brax's rows of joints without limits, which come after those of contacts and in order of joints."""
    limits = set(np.asarray(engine.limits._dof))
    free = 6 * int(engine.tree.free.sum())  # free links come first
    contacts = rows.target.shape[1] - len(limits)
    joints = range(free, engine.layout.qd_size)
    return {contacts + k - free for k in joints if k not in limits} if limits else set()


@pytest.mark.slow
def test_forces_of_a_pushing_arm_are_more_exact_than_braxs():
    """On systems as they occur: environments that act at random until some touch the puck or a limit."""
    from brax.generalized import constraint

    ours, theirs = (scene("pusher_hard", name).engine for name in ("generalized", "generalized_brax"))
    layout, count = ours.layout, 64
    k_start, k_act = jax.random.split(jax.random.key(0))
    q = jnp.asarray(layout.init_q) + 0.1 * jax.random.normal(k_start, (count, layout.q_size))
    acts = jax.random.uniform(k_act, (40, count, layout.act_size), minval=-1.0, maxval=1.0)
    run = jax.jit(lambda q: jax.lax.scan(lambda s, a: (ours.step(s, a), None), ours.init(q, 0 * q), acts)[0])
    state = run(q)
    found = jax.jit(lambda s: equations(ours, s.q, s.qd, acts[-1])[0])(state)

    def of_brax(q, qd, found):
        parts = {
            "con_jac": found.rows.jacobian,
            "con_diag": found.rows.softness,
            "con_aref": found.rows.target,
        }
        same = theirs._start(theirs.system, q, qd).replace(
            mass_mx_inv=found.inverse_mass, qf_smooth=found.force, **parts
        )
        return constraint.force(theirs.system, same)

    forces = {
        "ours": np.asarray(jax.jit(jax.vmap(Equations.constraint_force))(found)),
        "brax": np.asarray(jax.jit(jax.vmap(of_brax))(state.q, state.qd, found)),
    }
    errors = {"ours": [], "brax": []}
    for i in range(count):
        jac, softness, target = (np.asarray(x[i], float) for x in found.rows)
        if not jac.any():
            continue
        inv = np.asarray(found.inverse_mass[i], float)
        matrix = jac @ inv @ jac.T + np.diag(softness)
        offset = jac @ inv @ np.asarray(found.force[i], float) - target
        best = jac.T @ nnls(matrix, -offset)[0]
        for name in errors:
            errors[name].append(np.linalg.norm(forces[name][i] - best) / (1e-6 + np.linalg.norm(best)))
    assert len(errors["ours"]) > 10
    assert np.mean(errors["ours"]) < 0.3 * np.mean(errors["brax"])
