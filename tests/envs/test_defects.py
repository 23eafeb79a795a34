"""Defects of the original environments (E1–E22), each by its number: none may come back.

E1, E2, E4, E7 are also held by test_base and test_goals; E16–E19 concern arms: test_arms and physics/test_panda.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import NUM_ENVS, draws, programs, record, scene

import homing
from homing.envs import env_ids
from homing.envs.registry import get_spec
from homing.envs.scene import build_model
from homing.errors import UnknownNameError


def test_e1_each_episode_starts_anew():
    r = record("ant")
    ended = (r.truncated | r.terminated)[:, 0]
    assert ended.sum() >= 3
    assert len(np.unique(r.goal[ended, 0], axis=0)) == ended.sum()


def test_e2_the_ball_does_not_share_the_goals_angle():
    d = draws("ant_soccer")
    goal_sine = d.goal[:, 1] / 5.0
    ball_sine = (d.props - 0.2 * d.goal)[:, 1]
    assert np.abs(ball_sine - goal_sine).mean() > 0.3


@pytest.mark.parametrize("id", ["ant_soccer", "ant_soccer_u_maze", "ant_soccer_big_maze"])
def test_e3_goals_are_about_the_ball(id):
    env = homing.make(id)
    assert env.spec.goal_indices == (29, 30)
    assert env.spec.goal_names == ("ball_x", "ball_y")
    s = scene(id)
    q = np.array(s.engine.layout.init_q)[None]
    q[:, 15:] = (3.0, -2.0)
    still = np.zeros((1, s.engine.layout.qd_size), np.float32)
    observe = jax.jit(lambda q, qd: s.observe(s.engine.init(q, qd), jnp.zeros((1, 8))))
    np.testing.assert_allclose(env.achieved(np.asarray(observe(q, still)))[0], [3.0, -2.0], rtol=1e-6)


def test_e5_success_tells_of_the_state_after_the_step():
    for id in ("pusher_easy", "ant", "reacher"):
        r = record(id)
        distance = np.asarray(r.env.distance(r.env.achieved(r.next_state), r.before_goal))
        np.testing.assert_allclose(r.metrics["distance"], distance, atol=1e-6)
        np.testing.assert_array_equal(r.metrics["success"], distance < r.env.spec.threshold)


def test_e6_a_pusher_goal_can_be_reached_exactly():
    r = record("pusher_easy")
    np.testing.assert_allclose(r.achieved[..., 2], r.before_goal[..., 2], atol=1e-5)


def test_e8_no_environment_has_a_goal_in_its_model():
    for id in env_ids():
        model = build_model(get_spec(id)).compile()
        names = [model.body(i).name for i in range(model.nbody)] + [
            model.joint(i).name for i in range(model.njnt)
        ]
        assert not [n for n in names if "goal" in n or "target" in n], id


@pytest.mark.parametrize("id", ["humanoid", "reacher"])
def test_e8_the_goal_does_not_leak_into_the_state(id):
    """Another goal, with the same pose, gives the same state now and after steps."""
    parts = programs(id)
    action = np.full((NUM_ENVS, parts.env.spec.action_dim), 0.3, np.float32)
    near, far = (parts.reset(jax.random.key(0)) for _ in range(2))
    far = far.replace(obs=far.obs.replace(goal=np.asarray(far.obs.goal) + np.float32(4.0)))
    for _ in range(3):
        near, far = parts.step(near, action), parts.step(far, action)
        assert (np.asarray(near.obs.goal) != np.asarray(far.obs.goal)).all()
        np.testing.assert_array_equal(near.obs.state, far.obs.state)


def test_e8_humanoid_state_has_no_place_for_a_target():
    spec = homing.make("humanoid").spec
    assert spec.state_dim == 24 + 23 + 110 + 66 + 23
    assert spec.state_names[:3] == ("torso_x", "torso_y", "torso_z")


def test_e9_the_half_cheetah_has_its_own_weight():
    assert build_model(get_spec("half_cheetah")).compile().body_mass.sum() == pytest.approx(14.0)


def test_e10_the_block_starts_at_rest():
    s = scene("ant_push")
    _, qd, _ = jax.jit(jax.vmap(s.sample_reset))(jax.random.split(jax.random.key(0), 50))
    assert (np.asarray(qd)[:, -3:] == 0).all()
    assert (np.asarray(qd)[:, :14] != 0).all()


def test_e11_control_costs_in_the_dense_half_cheetah():
    r = record("half_cheetah", reward="dense", physics="spring")  # the quickest to compile
    distance = np.abs(r.achieved[..., 0] - r.before_goal[..., 0])
    np.testing.assert_allclose(r.reward, -distance - 0.1 * (r.action**2).sum(-1), atol=1e-5)


SLOW = [pytest.param(id, marks=pytest.mark.slow) for id in ("humanoid_u_maze", "pusher_two", "pusher_reach")]


@pytest.mark.parametrize("id", ["point_u_maze", *SLOW])
def test_e12_sparse_by_default(id):
    r = record(id)
    assert r.env.spec.reward == "sparse"
    np.testing.assert_array_equal(r.reward, r.metrics["success"])


def test_e13_every_environment_has_a_threshold():
    for id in env_ids():
        assert 0 < get_spec(id).task.within < 1


def test_e14_models_load_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for id in ("ant_big_maze", "pusher_two", "humanoid"):
        assert homing.make(id).spec.id == id
    assert not list(tmp_path.iterdir()), "and leave nothing behind"


def test_e15_one_registry():
    with pytest.raises(UnknownNameError, match="did you mean"):
        homing.make("ant_ball_maze")
    assert {"ant_u_maze_eval", "ant_big_maze_eval", "ant_soccer_u_maze"} <= set(env_ids())


def test_e20_pipelines_and_options_are_wired():
    assert homing.make("half_cheetah", physics="generalized").spec.physics == "generalized"
    assert homing.make("pusher_two", physics="spring").spec.frames == 50
    env = homing.make("humanoid", reward="dense", options={"task.goals.radius": 5.0})
    assert env.spec.reward == "dense"
    goals = jax.jit(jax.vmap(env.scene.sample_reset))(jax.random.split(jax.random.key(0), 20))[2]
    np.testing.assert_allclose(np.linalg.norm(goals[:, :2], axis=-1), 5.0, rtol=1e-5)


def test_e22_environments_import_no_tracker_and_no_plotter():
    code = (
        "import sys, homing; homing.make('ant');"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'wandb', 'wandb_osh', 'matplotlib'}))"
    )
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert answer.stdout.strip() == "[]"
