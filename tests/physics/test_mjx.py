"""MJX with our solvers beside MuJoCo's own."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import scene
from solving_helpers import exact

from homing.envs.registry import get_spec
from homing.envs.scene import Scene
from homing.errors import ConfigError
from homing.physics import Timing
from homing.physics.mjx import Mjx, MjxMujoco, _constraints, _jacobian, mjx, mjx_engine, support
from homing.physics.solvers import constrained

# It allows MuJoCo's default of 100 turns.
ARM = """<mujoco><option timestep="0.01" {option}/>
<worldbody><geom name="floor" type="plane" size="5 5 .1"/>
<body pos="0 0 0.3"><freejoint/><geom type="capsule" size=".1" fromto="0 0 0 .4 0 0"/>
<body pos=".4 0 0"><joint name="elbow" type="hinge" axis="0 1 0" range="-60 60" limited="true" damping="1"/>
<geom type="capsule" size=".08" fromto="0 0 0 .4 0 0"/></body></body></worldbody>
<actuator><motor joint="elbow" gear="20" ctrlrange="-1 1"/></actuator></mujoco>"""


def arm(option=""):
    return mujoco.MjModel.from_xml_string(ARM.format(option=option))


def motion(engine, q, qd, acts):
    step = lambda state, act: (engine.step(state, act), engine.q(state))
    return np.asarray(jax.jit(lambda q, qd: jax.lax.scan(step, engine.init(q, qd), acts)[1])(q, qd))


def starts(layout, num_envs, noise=0.05):
    k_q, k_qd = jax.random.split(jax.random.key(0))
    q = jnp.asarray(layout.init_q) + noise * jax.random.normal(k_q, (num_envs, layout.q_size))
    return q, 2 * noise * jax.random.normal(k_qd, (num_envs, layout.qd_size))


def apart(engines, steps, num_envs=16):
    """Largest differences of the coordinates [steps, environments] between two engines of one model."""
    layout = engines[0].layout
    acts = jax.random.uniform(jax.random.key(7), (steps, num_envs, layout.act_size), minval=-1.0, maxval=1.0)
    a, b = (motion(engine, *starts(layout, num_envs), acts) for engine in engines)
    assert np.abs(np.diff(a, axis=0)).max() > 1e-2, "the robot moves"
    return np.abs(a - b).max(axis=2)


def test_on_a_cpu_links_are_computed_one_after_the_other_and_by_mjx_itself_as_ever():
    """Fused, each link computes its parents anew: arms of seven joints were thousands of times as slow."""
    engine = MjxMujoco(arm(), Timing(0.01, 1), ())
    q, qd = starts(engine.layout, 1)

    def barriers(fn, *args):
        return str(jax.make_jaxpr(fn)(*args)).count("optimization_barrier")

    assert barriers(engine.init, q, qd) >= len(engine.layout.links)
    assert (
        barriers(lambda q: mjx.kinematics(engine.model, mjx.make_data(engine.model).replace(qpos=q)), q[0])
        == 0
    )


def test_an_arm_falls_and_moves_as_by_mujocos_solver():
    """Contacts, a joint limit, damping that is integrated implicitly."""
    timing = Timing(0.01, 2)
    q, qd = starts(mjx_engine(arm(), timing, ()).layout, 8, noise=0.02)
    q = q.at[:, 3:7].divide(jnp.linalg.norm(q[:, 3:7], axis=1, keepdims=True))
    acts = jnp.where(jnp.arange(25) < 12, 1.0, -1.0)[:, None, None] * jnp.ones((25, 8, 1))
    ours, theirs = (motion(kind(arm(), timing, ()), q, qd, acts) for kind in (Mjx, MjxMujoco))
    assert theirs[-1, :, 2].max() < 0.2 < theirs[0, :, 2].min(), "it has fallen"
    assert np.abs(theirs[..., 7]).max() > 1.0, "its elbow has met the limit"
    np.testing.assert_allclose(ours, theirs, atol=2e-3)


@pytest.mark.parametrize(
    ("option", "what"),
    [('cone="elliptic"', "cones"), ('integrator="RK4"', "integrator"), ('solver="CG"', "solver")],
)
def test_what_our_solvers_do_not_know_runs_on_mujocos(option, what):
    assert what in Mjx.supports(arm(option))
    assert type(mjx_engine(arm(option), Timing(0.01, 1), ())) is MjxMujoco
    assert Mjx.supports(arm()) is None
    assert type(mjx_engine(arm(), Timing(0.01, 1), ())) is Mjx


def test_motors_with_a_state_are_refused():
    xml = ARM.format(option="").replace("<motor ", '<general dyntype="integrator" actlimited="false" ')
    with pytest.raises(ConfigError, match="actuators with internal state"):
        mjx_engine(mujoco.MjModel.from_xml_string(xml), Timing(0.01, 1), ())


def test_both_can_be_asked_for():
    assert type(scene("half_cheetah", "mjx").engine) is Mjx
    assert type(scene("half_cheetah", "mjx_mujoco").engine) is MjxMujoco


def test_jacobians_of_points_are_mujocos():
    model = arm()
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    data.qpos[:] = np.concatenate([rng.normal(size=7), [0.4]])
    mujoco.mj_forward(model, data)
    on_device = mjx.put_model(model, impl="jax")
    put = mjx.put_data(model, data, impl="jax")
    point = np.array([0.3, -0.2, 0.5])
    jacobian = jax.jit(lambda body: _jacobian(on_device, put, jnp.asarray(point), body))
    assert support.jac is _jacobian
    for body in range(model.nbody):
        moved, turned = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_jac(model, data, moved, turned, point, body)
        for ours, theirs in zip(jacobian(jnp.asarray(body)), (moved, turned), strict=True):
            np.testing.assert_allclose(ours, theirs.T, atol=1e-5)
    assert np.abs(moved).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("id", ["half_cheetah", "ant_push"])
def test_robots_move_as_by_mujocos_solver(id):
    """Lanes part sooner or later, since contacts are chaotic: half of them stay together for longer."""
    engines = [scene(id, name).engine for name in ("mjx", "mjx_mujoco")]
    assert [type(engine) for engine in engines] == [Mjx, MjxMujoco]
    distance = apart(engines, steps=21)
    assert distance[5].max() < 1e-3
    assert np.median(distance[20]) < 1e-3


@pytest.mark.slow
def test_the_deepest_contacts_are_all_that_touch():
    spec = get_spec("ant_push")
    whole = dataclasses.replace(spec, body=dataclasses.replace(spec.body, contacts=None))
    distance = apart([Scene(s, "mjx").engine for s in (spec, whole)], steps=21)
    assert distance[5].max() < 1e-4
    assert np.median(distance[20]) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("id", ["half_cheetah", "ant_push"])
def test_accelerations_are_at_least_as_exact_as_mujocos(id):
    """On systems as they occur: environments that act at random until some touch the floor, a wall or a limit."""
    engine = scene(id, "mjx").engine
    acts = jax.random.uniform(jax.random.key(7), (15, 48, engine.layout.act_size), minval=-1.0, maxval=1.0)
    step = lambda state, act: (engine.step(state, act), None)
    state = jax.jit(lambda q, qd: jax.lax.scan(step, engine.init(q, qd), acts)[0])(*starts(engine.layout, 48))
    systems = jax.jit(jax.vmap(lambda s, ctrl: system(engine.model, s, ctrl)))(state, acts[0])
    errors = []
    for mass, force, rules, *found in lanes_of(systems):
        if rules.jacobian.any():
            best = exact(mass, force, rules, found[0])
            errors.append([np.linalg.norm(a - best) / np.linalg.norm(best) for a in found])
    ours, theirs = np.mean(errors, axis=0)
    assert len(errors) > 10
    assert ours < theirs and ours < 1e-6


def system(model, state, ctrl):
    """What a frame has to solve, and the accelerations that our solver and MuJoCo's find."""
    data = mjx.make_data(model)
    data = data.replace(qpos=state.q, qvel=state.qd, qacc_warmstart=state.warmstart, ctrl=ctrl)
    for part in (mjx.fwd_position, mjx.fwd_velocity, mjx.fwd_actuation, mjx.fwd_acceleration):
        data = part(model, data)
    mass, rules = mjx.full_m(model, data), _constraints(data)
    ours, _ = constrained(mass, data.qfrc_smooth, rules, data.qacc_warmstart, int(model.opt.iterations))
    return mass, data.qfrc_smooth, rules, ours, mjx.solve(model, data).qacc


def lanes_of(tree):
    """One tree for each lane, in double precision."""
    tree = jax.tree.map(lambda x: np.asarray(x, bool if x.dtype == bool else float), tree)
    return [jax.tree.map(lambda x, i=i: x[i], tree) for i in range(len(tree[0]))]
