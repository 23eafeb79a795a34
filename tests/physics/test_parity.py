"""Our step equals brax's own pipeline on brax's own model, with its target where it has one."""

import warnings

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from brax_files import brax_file
from helpers import scene

from homing import physics
from homing.envs.bodies import Ant, HalfCheetah, Humanoid
from homing.envs.scene import base_pipeline
from homing.physics import Model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from brax.envs import ant, half_cheetah, humanoid, pusher, reacher

NUM_ENVS, STEPS = 3, 50


def brax_env(kind, backend):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind(backend=backend)


def start(layout, quaternion: bool, noise: float = 0.05):
    """The same noisy start for both sides."""
    k_q, k_qd = jax.random.split(jax.random.key(3))
    q = jnp.asarray(layout.init_q) + noise * jax.random.normal(k_q, (NUM_ENVS, layout.q_size))
    if quaternion:
        q = q.at[:, 3:7].divide(jnp.linalg.norm(q[:, 3:7], axis=-1, keepdims=True))
    return q, 2 * noise * jax.random.normal(k_qd, (NUM_ENVS, layout.qd_size))


def actions(layout):
    return jax.random.uniform(jax.random.key(7), (STEPS, NUM_ENVS, layout.act_size), minval=-1.0, maxval=1.0)


def ours(engine, q, qd, acts):
    def run(q, qd):
        def body(state, action):
            state = engine.step(state, action)
            return state, (engine.q(state), engine.qd(state), engine.links(state).pos)

        return jax.lax.scan(body, engine.init(q, qd), acts)[1]

    return jax.tree.map(np.asarray, jax.jit(run)(q, qd))


def theirs(env, q, qd, acts):
    """brax's pipeline; coordinates that only brax's model has (a target's) start at its own rest."""
    full_q = jnp.tile(env.sys.init_q, (NUM_ENVS, 1)).at[:, : q.shape[1]].set(q)
    full_qd = jnp.zeros((NUM_ENVS, env.sys.qd_size())).at[:, : qd.shape[1]].set(qd)

    def run(q, qd):
        def body(state, action):
            state = jax.vmap(env.pipeline_step)(state, action)
            return state, (state.q, state.qd, state.x.pos)

        return jax.lax.scan(body, jax.vmap(env.pipeline_init)(q, qd), acts)[1]

    return jax.tree.map(np.asarray, jax.jit(run)(full_q, full_qd))


CASES = {
    "ant on spring": ("ant", "spring", ant.Ant, True),
    "humanoid on spring": ("humanoid", "spring", humanoid.Humanoid, True),
    "reacher on spring, brax with target": ("reacher", "spring", reacher.Reacher, False),
    "reacher on generalized, brax with target": ("reacher", "generalized", reacher.Reacher, False),
    "pusher on generalized, brax with goal": ("pusher_easy", "generalized", pusher.Pusher, False),
    "half-cheetah on mjx": ("half_cheetah", "mjx_mujoco", half_cheetah.Halfcheetah, False),
}


# The pusher's physics is that of the arm on generalized, with more to compile; MJX compiles longest of all.
SLOW = ("pusher on generalized, brax with goal", "half-cheetah on mjx")
EACH = [pytest.param(case, marks=pytest.mark.slow if case in SLOW else []) for case in CASES]


@pytest.mark.parametrize("case", EACH)
def test_trajectories_equal_brax(case):
    id, pipeline, kind, quaternion = CASES[case]
    engine = scene(id, pipeline).engine
    # The pusher's rest pose is at its joints' limits, and beyond them its solver stops at another iteration
    # for every small difference: it starts as the environment starts it.
    q, qd = start(engine.layout, quaternion, noise=0.002 if id == "pusher_easy" else 0.05)
    acts = actions(engine.layout)
    a, b = ours(engine, q, qd, acts), theirs(brax_env(kind, base_pipeline(pipeline)), q, qd, acts)
    assert np.abs(np.diff(a[0], axis=0)).max() > 1e-3, "the robot moves"
    # On generalized our solver of contacts and limits is more exact than brax's.
    near = 2e-3 if pipeline == "generalized" else 1e-4
    np.testing.assert_allclose(a[2], b[2][..., : a[2].shape[2], :], atol=near)
    # brax reads the second angle of stacked hinges off an arccos, whose float32 steps are 3.5e-4 near zero.
    angles = 5e-4 if id == "humanoid" else near
    np.testing.assert_allclose(a[0], b[0][..., : q.shape[1]], atol=angles)
    speeds = 2e-2 if pipeline == "generalized" else 1e-3
    np.testing.assert_allclose(a[1], b[1][..., : qd.shape[1]], atol=speeds, rtol=1e-3)


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
    q, qd = start(without.layout, True)
    acts = actions(without.layout)[:25]
    place = jnp.tile(jnp.array([3.0, -2.0]), (NUM_ENVS, 1))
    a = ours(without, q, qd, acts)
    b = ours(marked, jnp.hstack([q, place]), jnp.hstack([qd, 0 * place]), acts)
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
