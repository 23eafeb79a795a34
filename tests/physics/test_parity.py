"""Our step equals brax's own pipeline on brax's own model, with its target where it has one."""

import jax
import mujoco
import numpy as np
import pytest
from brax_files import brax_file
from brax_reference import FEW, ROBOTS, STEPS, asking, noisy_start, random_controls, start_of

from homing import physics
from homing.envs.bodies import Ant, HalfCheetah, Humanoid
from homing.physics import Model


def ours(engine, q, qd, acts):
    """Coordinates, velocities and places of links [T, N, ...]."""

    def body(state, action):
        state = engine.step(state, action)
        return state, (engine.q(state), engine.qd(state), engine.links(state).pos)

    first = jax.jit(engine.init)(q, qd)
    return jax.device_get(jax.jit(lambda state: jax.lax.scan(body, state, acts)[1])(first))


# The pusher's physics is that of the arm on generalized, with more to compile; MJX compiles longest of all.
SLOW = ("pusher on generalized, brax with goal", "half-cheetah on mjx")


@pytest.mark.parametrize(("robot", "brax"), asking("robot", list(ROBOTS), slow=SLOW))
def test_trajectories_equal_brax(robot, brax):
    id, pipeline, _, _ = ROBOTS[robot]
    engine, *given = start_of(robot)
    q, qd, pos = ours(engine, *given, random_controls(engine.layout, STEPS, FEW))
    theirs = brax("robot", robot)
    assert np.abs(np.diff(q, axis=0)).max() > 1e-3, "the robot moves"
    # On generalized our solver of contacts and limits is more exact than brax's.
    near = 2e-3 if pipeline == "generalized" else 1e-4
    np.testing.assert_allclose(pos, theirs["pos"], atol=near)
    # brax reads the second angle of stacked hinges off an arccos, whose float32 steps are 3.5e-4 near zero.
    angles = 5e-4 if id == "humanoid" else near
    np.testing.assert_allclose(q, theirs["q"], atol=angles)
    speeds = 2e-2 if pipeline == "generalized" else 1e-3
    np.testing.assert_allclose(qd, theirs["qd"], atol=speeds, rtol=1e-3)


def with_target(model: Model, axes: str, height: float, mass: float) -> Model:
    """The body that the original code adds to its models to mark the goal."""
    model.add_body("target", (0.0, 0.0, height))
    for axis in axes:
        model.add_slide("target", f"target_{axis}", axis, limit=(-20.0, 20.0))
    model.add_geom("target", "target_geom", "sphere", (0.5,), mass=mass)
    return model


@pytest.mark.parametrize(
    ("body", "axes", "height"),
    [(Ant(), "xy", 0.01), pytest.param(Humanoid(), "xy", 1.25, marks=pytest.mark.slow)],
    ids=lambda x: getattr(x, "name", None),
)
def test_a_target_body_changes_nothing_of_the_motion(body, axes, height):
    pipeline = next(iter(body.pipelines))
    timing = body.pipelines[pipeline]
    without = physics.load(body.build(), pipeline, timing)
    marked = physics.load(with_target(body.build(), axes, height, 1.0), pipeline, timing)
    q, qd = noisy_start(without.layout, True)
    acts = random_controls(without.layout, 25, FEW)
    place = np.tile(np.float32([3.0, -2.0]), (FEW, 1))
    a = ours(without, q, qd, acts)
    b = ours(marked, np.hstack([q, place]), np.hstack([qd, 0 * place]), acts)
    np.testing.assert_allclose(a[0], b[0][..., : q.shape[1]], atol=1e-4)


def test_the_half_cheetah_weighs_what_its_file_says():
    model = HalfCheetah().build().compile()
    assert model.body_mass.sum() == pytest.approx(14.0)
    assert model.body("torso").mass[0] == pytest.approx(6.250, abs=2e-3)


@pytest.mark.parametrize(
    ("id", "asset"),
    [("ant", "ant"), ("humanoid", "humanoid"), ("half_cheetah", "half_cheetah"), ("ant_u_maze", "ant")],
)
def test_models_are_the_files_that_brax_ships(id, asset):
    """Same masses, joints and motors; no target, no goal."""
    from homing.envs.registry import get_spec
    from homing.envs.scene import build_model

    own = build_model(get_spec(id)).compile()
    file = brax_file(asset).compile()
    for field in ("body_mass", "body_inertia", "body_pos", "jnt_axis", "jnt_range", "actuator_gear"):
        np.testing.assert_allclose(getattr(own, field), getattr(file, field), atol=1e-7, err_msg=field)
    names = [mujoco.mj_id2name(own, mujoco.mjtObj.mjOBJ_BODY, i) or "" for i in range(own.nbody)]
    assert not [n for n in names if "target" in n or "goal" in n]
