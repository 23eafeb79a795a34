"""The Panda: published numbers, servos that reach their targets, and contacts that hold."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import scene
from solving_helpers import exact, single

from homing.envs.bodies.panda import HIGH, LEVEL, LOW, ORIGINAL_LEVEL, START, TIP, arm_plane
from homing.envs.registry import get_spec
from homing.envs.scene import build_model
from homing.physics import Timing, panda, solvers
from homing.physics.engine import compiled
from homing.physics.mjx import Mjx
from homing.physics.solvers import Constraints, constrained

ARMS = ("arm_reach", "arm_grasp", "arm_push_easy", "arm_push_hard", "arm_binpick_easy", "arm_binpick_hard")


def model_of(id, **body):
    spec = get_spec(id)
    spec = dataclasses.replace(spec, body=dataclasses.replace(spec.body, **body))
    return compiled(build_model(spec), spec.body.pipelines["mjx"])


def settled(model, ctrl, steps=3000):
    data = mujoco.MjData(model)
    data.qpos[:] = model.numeric("init_qpos").data
    data.ctrl[:] = ctrl
    for _ in range(steps):
        mujoco.mj_step(model, data)
    return data


def test_the_start_pose_is_the_benchmarks():
    model = panda.arm(gripper=False, start=(*START, ORIGINAL_LEVEL)).compile()
    data = mujoco.MjData(model)
    data.qpos[:] = model.numeric("init_qpos").data
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose(data.body("link7").xpos, [0.0, 0.678, 0.371], atol=5e-4)
    np.testing.assert_allclose(data.body("hand").xpos, [0.0, 0.750, 0.292], atol=5e-4)
    assert model.body("hand").mass[0] == pytest.approx(0.87127, abs=1e-5)
    assert model.body("link1").mass[0] == pytest.approx(4.970684)
    links = (4.970684, 0.646926, 3.228604, 3.587895, 1.225946, 1.666555, 0.735522)
    assert sum(model.body_mass) == pytest.approx(sum(links) + 0.871268, abs=1e-5)


@pytest.mark.parametrize("id", ARMS)
def test_models_have_no_goal_body_and_explicit_pairs_only(id):
    model = model_of(id)
    assert (model.nv, model.nu) == ((7, 7) if id == "arm_reach" else (15, 9))
    assert not model.geom_contype.any() and not model.geom_conaffinity.any()
    assert Mjx.supports(model) is None


def test_frictions_are_those_of_the_pairs():
    model = model_of("arm_push_easy")
    name = lambda geom: model.geom(geom).name
    friction = {
        frozenset((name(a), name(b))): model.pair_friction[k, 0]
        for k, (a, b) in enumerate(zip(model.pair_geom1, model.pair_geom2, strict=True))
    }
    assert friction[frozenset(("cube_geom", "table"))] == 0.2
    assert friction[frozenset(("palm", "table"))] == 0.2
    assert friction[frozenset(("cube_geom", "left_finger_pad"))] == 1.0
    assert model.body("cube").mass[0] == pytest.approx(0.216)


def test_servos_reach_their_targets_and_the_originals_do_not():
    middle = 0.5 * (np.array(LOW) + np.array(HIGH))
    data = settled(model_of("arm_reach"), [*middle, LEVEL])
    np.testing.assert_allclose(data.qpos, [*middle, LEVEL], atol=0.015)
    data = settled(model_of("arm_reach", gains="original"), [*middle, ORIGINAL_LEVEL])
    np.testing.assert_allclose(data.qpos[[3, 5, 6]], [-0.904, 1.526, 0.724], atol=2e-3)


def test_the_hand_without_an_arm_has_no_weight_and_stays_put():
    model = model_of("arm_binpick_easy_hand")
    data = mujoco.MjData(model)
    data.qpos[:5] = model.numeric("init_qpos").data[:5]
    data.qpos[5:] = (-0.17, 0.6, 0.03, 1, 0, 0, 0)
    mujoco.mj_forward(model, data)
    np.testing.assert_allclose((data.qfrc_gravcomp - data.qfrc_bias)[:5], 0.0, atol=1e-9)
    place = data.qpos[:3].copy()
    for _ in range(100):  # as an action of 0 commands it, from where it is
        data.ctrl[:] = (*data.qpos[:3], panda.FINGER_CONTROL, panda.FINGER_CONTROL)
        mujoco.mj_step(model, data, 25)
    np.testing.assert_allclose(data.qpos[:3], place, atol=1e-6)


def test_the_plane_of_the_arm_is_mujocos():
    model = panda.arm(start=(*START, LEVEL, 0.04, 0.04)).compile()
    data = mujoco.MjData(model)
    for q2, q4, q6 in np.random.default_rng(0).uniform(
        (LOW[1], LOW[3], LOW[5]), (HIGH[1], HIGH[3], HIGH[5]), (20, 3)
    ):
        data.qpos[:] = (0.5 * np.pi, q2, 0.0, q4, 0.0, q6, LEVEL, 0.03, 0.03)
        mujoco.mj_kinematics(model, data)
        wrist, along, _ = arm_plane(q2, q4, q6)
        np.testing.assert_allclose(data.body("link7").xpos, [0.0, *wrist], atol=1e-6)
        tips = [data.body(f).xpos + data.body(f).xmat.reshape(3, 3) @ panda.TIP_AT for f in panda.FINGERS]
        np.testing.assert_allclose(np.mean(tips, axis=0), [0.0, *(wrist + TIP * along)], atol=1e-6)
        # The fingers close along the horizontal, across the plane.
        np.testing.assert_allclose(tips[0] - tips[1], [0.07, 0.0, 0.0], atol=1e-5)


def run(engine, ctrl, q=None):
    """Coordinates [T + 1, N, ·] of an engine from q [N, ·] under ctrl [T, N, ·]."""
    layout = engine.layout
    q = np.tile(layout.init_q, (ctrl.shape[1], 1)) if q is None else q
    step = lambda state, act: (lambda after: (after, engine.q(after)))(engine.step(state, act))
    start = lambda q: engine.init(q, jnp.zeros((len(q), layout.qd_size)))
    motion = jax.jit(lambda q, ctrl: jax.lax.scan(step, start(q), ctrl)[1])(q, jnp.asarray(ctrl, jnp.float32))
    return np.concatenate([np.asarray(q)[None], np.asarray(motion)])


def test_the_arm_moves_as_in_mujoco():
    """Random targets far away, so that servos are at their force limits, and nothing touches."""
    engine, steps = scene("arm_reach").engine, 12
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (steps, 1, 6))
    actions[..., 1] = -np.abs(actions[..., 1])  # the upper arm stays up
    low, high = np.array(LOW), np.array(HIGH)
    ctrl = np.concatenate([low + 0.5 * (actions + 1) * (high - low), np.full((steps, 1, 1), LEVEL)], axis=-1)
    found = run(engine, ctrl)
    model = model_of("arm_reach")
    data = mujoco.MjData(model)
    data.qpos[:] = engine.layout.init_q
    for k in range(steps):
        data.ctrl[:] = ctrl[k, 0]
        mujoco.mj_step(model, data, 25)
        np.testing.assert_allclose(found[k + 1, 0], data.qpos, atol=2e-4)
    assert np.abs(np.diff(found, axis=0)).max() > 0.2, "it moves far in a step"


# Joint angles, speeds and targets in a frame in which the hand strikes the table.
STRIKES = [
    (
        (1.9330, 1.0611, 0.0009, -1.7186, -0.0008, 3.5182, 0.7849),
        (-2.8564, -3.4779, -0.2063, -7.8946, 0.0592, 1.3755, 0.0069),
        (2.7925, 1.4835, 0.0, -3.0718, 0.0, 3.7525, 0.7854),
    ),
    (
        (2.7393, 0.7915, 0.0024, -2.3964, -0.0005, 3.7774, 0.7841),
        (-0.3135, 0.5629, 0.1619, 1.2400, -0.0486, -0.4834, -0.1120),
        (0.3491, 1.4835, 0.0, -0.0698, 0.0, 2.3562, 0.7854),
    ),
]


@pytest.mark.parametrize("solve", [solvers._cholesky_solve, solvers.eliminated])
@pytest.mark.parametrize("strike", STRIKES)
def test_contact_forces_converge_when_the_hand_strikes_the_table(strike, solve, monkeypatch):
    """On a CPU and on a GPU: after four iterations a joint was wrong by up to 11 rad/s in a frame.

    With elimination by an inverse, as GPUs had it, it was wrong without bounds, and one simulation in a few hundred
    diverged.
    """
    monkeypatch.setattr(solvers, "solve", solve)
    spec, model = get_spec("arm_reach"), model_of("arm_reach")
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = strike
    mass, force, rules = system(model, data)
    assert np.asarray(rules.stiffness).any(), "it touches"
    best = exact(mass, force, rules, np.zeros(7))
    speed_error = lambda iterations: (
        model.opt.timestep
        * np.max(np.abs(constrained(*single(mass, force), rules, jnp.zeros(7), iterations)[0] - best))
    )
    assert speed_error(spec.body.iterations) < 1e-3
    assert speed_error(4) > 0.1, "few iterations do not suffice"


def test_contact_forces_converge_when_a_finger_of_the_hand_strikes_a_wall():
    """The hand without an arm: after four iterations its speed was wrong by up to 0.7 m/s in a frame."""
    spec, model = get_spec("arm_binpick_easy_hand"), model_of("arm_binpick_easy_hand")
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    data.qpos[:] = (-0.285666, 0.769339, 0.140942, -0.00581, -0.005149, -0.179349, 0.640996, 0.03, 1, 0, 0, 0)
    data.qvel[:5] = (-0.852664, -0.244927, -0.081856, 0.022408, -0.007743)
    data.ctrl[:] = (-0.4, 0.56974, 0.1334, 0.0, 0.0)
    mass, force, rules = system(model, data)
    warm = np.zeros(model.nv)
    warm[:5] = (-32.0289, -210.1108, 1.0748, 56.4053, 23.3443)
    best = exact(mass, force, rules, warm)
    found = lambda count: constrained(*single(mass, force), rules, *single(warm), iterations=count)[0]
    speed_error = lambda count: model.opt.timestep * np.max(np.abs(found(count) - best)[:5])
    assert speed_error(spec.body.iterations) < 1e-3
    assert speed_error(4) > 0.1, "few iterations do not suffice"


# A slide with a light finger, driven against a wall by a servo that is stiff for the timestep.
PRESS = """<mujoco><option timestep="0.002" integrator="implicitfast" iterations="4"/>
<default><geom solref=".004 1" solimp=".95 .99 .001"/></default>
<worldbody><geom name="wall" type="box" size=".05 .5 .5" pos=".55 0 0"/>
<body><joint name="x" type="slide" axis="1 0 0" armature="0.1"/>
<geom type="sphere" size=".1" mass="0.02"/></body></worldbody>
<actuator><general joint="x" gainprm="4500" biastype="affine" biasprm="0 -4500 -450"
forcelimited="true" forcerange="-87 87"/></actuator></mujoco>"""


def test_a_stiff_servo_presses_against_a_wall_and_stays_there():
    engine = Mjx(mujoco.MjModel.from_xml_string(PRESS), Timing(0.002, 25), ())
    x = run(engine, np.full((40, 1, 1), 0.8))[:, 0, 0]
    assert np.abs(x[20:] - 0.4).max() < 0.03, "0.4 is where the finger touches the wall"
    assert np.ptp(x[25:]) < 1e-4


# Scripted hands: joint targets for a place of the fingertips.


def grid():
    axes = [np.linspace(LOW[k], HIGH[k], n) for k, n in ((1, 120), (3, 120), (5, 60))]
    return [values.ravel() for values in np.meshgrid(*axes, indexing="ij")]


def target(x, y, z, closed):
    """Targets of all servos that bring the tips to x, y, z, with the hand as upright as can be."""
    angles = grid()
    wrist, along, angle = arm_plane(*angles)
    tips = wrist + TIP * along
    cost = np.abs(tips - (np.hypot(x, y), z)).sum(axis=-1) + 0.02 * np.abs(angle - np.pi)
    q2, q4, q6 = (values[np.argmin(cost)] for values in angles)
    grip = 0.0 if closed else panda.FINGER_CONTROL
    return np.array([np.arctan2(y, x), q2, 0.0, q4, 0.0, q6, LEVEL, grip, grip])


def script(*parts):
    """Commands [T, 1, 9] of (steps, target) parts."""
    return np.concatenate([np.tile(goal, (steps, 1, 1)) for steps, goal in parts])


def with_cube(rest, x, y):
    """Coordinates [16] with the cube at x, y on the table, a face to the arm."""
    half = 0.5 * np.arctan2(y, x)
    cube = (x, y, 0.03, np.cos(half), 0.0, 0.0, np.sin(half))
    return np.concatenate([rest[:9], cube]).astype(np.float32)


def test_few_iterations_solve_the_contacts_of_a_grip():
    """Systems of a hand that goes down, closes on the cube and lifts it, from MuJoCo's own simulation."""
    spec, model = get_spec("arm_grasp"), model_of("arm_grasp")
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(model)
    data.qpos[:] = with_cube(model.numeric("init_qpos").data, 0.0, 0.6)
    places = ((12, 0.13, False), (15, 0.035, False), (10, 0.035, True), (10, 0.14, True))
    run = jax.jit(constrained, static_argnames="iterations")
    errors, touching = [], 0
    for ctrl in script(*((steps, target(0.0, 0.6, z, closed)) for steps, z, closed in places))[:, 0]:
        data.ctrl[:] = ctrl
        mujoco.mj_step(model, data, 24)
        warm = data.qacc.copy()
        mass, force, rules = system(model, data)
        found = run(*single(mass, force), rules, *single(warm), iterations=spec.body.iterations)[0]
        best = exact(mass, force, rules, warm)
        errors.append(np.linalg.norm(found - best) / np.linalg.norm(best))
        touching += int(np.asarray(rules.stiffness).any())
        mujoco.mj_step(model, data)
    assert touching > 40
    assert data.body("cube").xpos[2] > 0.08, "it is lifted"
    assert np.median(errors) < 1e-4 and np.quantile(errors, 0.9) < 1e-2


def system(model, data, size=160):
    """Mass matrix with damping, force and constraints at the data's state, padded to `size` rows."""
    for part in (
        mujoco.mj_fwdPosition,
        mujoco.mj_fwdVelocity,
        mujoco.mj_fwdActuation,
        mujoco.mj_fwdAcceleration,
    ):
        part(model, data)
    mass = np.zeros((model.nv, model.nv))
    for row, unit in zip(mass, np.eye(model.nv), strict=True):
        mujoco.mj_mulM(model, data, row, unit)  # `mj_fullM` takes other arguments in other versions
    damping = np.full(model.nv, panda.DAMPING)
    damping[model.nv - 6 :] = 0.0
    free = (np.abs(data.actuator_force) < model.actuator_forcerange[:, 1]) | (
        model.actuator_forcelimited == 0
    )
    damping[: model.nu] -= np.where(free, model.actuator_biasprm[:, 2], 0.0)
    rows = data.nefc
    pad = lambda x: jnp.asarray(np.concatenate([x, np.zeros((size - rows, *x.shape[1:]))]), jnp.float32)
    jacobian = pad(data.efc_J.reshape(rows, model.nv))
    rules = Constraints(jacobian, pad(data.efc_aref), pad(data.efc_D), jnp.arange(size) < data.ne)
    return mass + model.opt.timestep * np.diag(damping), data.qfrc_smooth.copy(), rules


@pytest.mark.slow
def test_the_hand_moves_a_cube_between_bins_and_nothing_passes_through_walls():
    engine, model = scene("arm_binpick_easy").engine, model_of("arm_binpick_easy")
    carry = script(
        (15, target(-0.17, 0.6, 0.13, False)),
        (15, target(-0.17, 0.6, 0.035, False)),
        (10, target(-0.17, 0.6, 0.035, True)),
        (15, target(-0.17, 0.6, 0.14, True)),
        (25, target(0.17, 0.6, 0.14, True)),
        (15, target(0.17, 0.6, 0.05, True)),
        (25, target(0.17, 0.6, 0.05, False)),
    )
    lanes, cubes = [carry], [(-0.17, 0.6)]
    rng = np.random.default_rng(0)
    for k in range(7):  # sweep the hand with all force at a wall, with the cube somewhere in its way
        angle = 2 * np.pi * k / 7
        away = (-0.17 + 0.5 * np.cos(angle), 0.6 + 0.3 * np.sin(angle))
        closed = k % 2 == 0
        parts = [(15, (-0.17, 0.6, 0.13)), (15, (-0.17, 0.6, 0.035)), (len(carry) - 30, (*away, 0.03))]
        lanes.append(script(*((steps, target(*place, closed)) for steps, place in parts)))
        cubes.append((-0.17 + rng.uniform(-0.08, 0.08), 0.6 + rng.uniform(-0.08, 0.08)))
    ctrl = np.concatenate(lanes, axis=1)
    q = run(engine, ctrl, np.stack([with_cube(engine.layout.init_q, *cube) for cube in cubes]))
    np.testing.assert_allclose(q[40, 0, 7:9], 0.0295, atol=1e-3)  # the fingers are at the cube's faces
    assert q[55:80, 0, 11].min() > 0.1, "it is held"
    np.testing.assert_allclose(q[-1, 0, 9:12], [0.17, 0.6, 0.03], atol=0.03)
    assert np.abs(q[..., 9:11]).max() < 1.0 and q[:, 1:, 11].max() < 0.3, "no cube is thrown"
    assert deepest(model, q) > -0.012, "walls are 0.03 m thick"


def deepest(model, q):
    """The deepest contact with a wall, in metres below zero, over coordinates [..., nq]."""
    data, worst = mujoco.MjData(model), 0.0
    for coordinates in q.reshape(-1, q.shape[-1]):
        data.qpos[:] = coordinates
        mujoco.mj_kinematics(model, data)
        mujoco.mj_collision(model, data)
        names = [[model.geom(g).name for g in contact.geom] for contact in data.contact]
        walls = [
            c.dist for c, pair in zip(data.contact, names, strict=True) if any("wall" in n for n in pair)
        ]
        worst = min(worst, *walls, 0.0)
    return worst


@pytest.mark.slow
def test_a_pushed_cube_comes_to_rest_and_gains_no_energy():
    """A cube slides, tumbles and falls, out of the hand's way: its energy never grows."""
    engine = scene("arm_push_easy").engine
    layout, count = engine.layout, 6
    rng = np.random.default_rng(1)
    q = np.tile(layout.init_q, (count, 1))
    q[:, 9:12] = (-0.4, 0.2, 0.08)
    q[0, 11] = 0.03
    turn = rng.normal(size=(count, 4))
    turn[0] = (1.0, 0.0, 0.0, 0.0)
    q[:, 12:] = turn / np.linalg.norm(turn, axis=-1, keepdims=True)
    qd = np.zeros((count, layout.qd_size), np.float32)
    qd[1:, 9:12] = rng.uniform(-0.5, 0.5, (count - 1, 3))
    ctrl = np.broadcast_to(np.array([*START, LEVEL, 255.0, 255.0], np.float32), (60, count, 9))

    def step(state, act):
        after = engine.step(state, act)
        return after, (engine.q(after), engine.qd(after))

    q, qd = jax.jit(lambda q, qd: jax.lax.scan(step, engine.init(q, qd), ctrl)[1])(q.astype(np.float32), qd)
    q, qd = np.asarray(q, float)[..., 9:], np.asarray(qd, float)[..., 9:]
    inertia = 0.216 * 0.06**2 / 6
    energy = (
        0.216 * 9.81 * q[..., 2]
        + 0.108 * (qd[..., :3] ** 2).sum(-1)
        + 0.5 * inertia * (qd[..., 3:] ** 2).sum(-1)
    )
    assert np.diff(energy, axis=0).max() < 2e-3
    assert np.abs(qd[-1]).max() < 0.02, "all are at rest"
    np.testing.assert_allclose(q[:, 0, :3], np.broadcast_to((-0.4, 0.2, 0.03), (60, 3)), atol=2e-4)
