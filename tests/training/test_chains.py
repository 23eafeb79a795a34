"""Chains of goals on environments whose answers are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Probe, ProbeSpec, echo, ledge, walk

import homing
from homing.errors import ConfigError
from homing.training.chains import evaluate_chain

ENVS = 16


def straight(obs, key):
    """The perfect policy of the walk: towards the goal."""
    return jnp.clip((obs.goal - obs.state) / 0.15, -1, 1)


def scores(env, policy, length=4, **options):
    run = jax.jit(lambda key: evaluate_chain(env, policy, key, length, **options))
    return {name: float(value) for name, value in run(jax.random.key(0)).items()}


def test_a_perfect_policy_reaches_every_goal_of_a_chain():
    found = scores(walk(ENVS), straight)
    assert set(found) == {"reached", "reached_all", "fell", *(f"reached_{k}" for k in (1, 2, 3, 4))}
    assert found["fell"] == 0
    assert all(value == 1 for name, value in found.items() if name != "fell")


def test_a_policy_that_ignores_new_goals_fails_the_second():
    """It heads for the goal that it was given first, wherever the robot is now."""
    env = walk(ENVS)
    first = env.reset(jax.random.split(jax.random.key(0))[0]).obs.goal
    with jax.debug_key_reuse(False):
        found = scores(env, lambda obs, key: straight(obs.replace(goal=first), key))
    assert found["reached_1"] == 1
    # Goals beside the way are passed by chance; none is where the robot already is.
    assert found["reached_2"] < 0.3
    assert found["reached_all"] == 0
    assert found["reached"] == pytest.approx(np.mean([found[f"reached_{k}"] for k in (1, 2, 3, 4)]))


def test_a_goal_has_its_own_time_limit():
    assert scores(walk(ENVS), straight, steps=1)["reached"] < 0.5 < scores(walk(ENVS), straight)["reached"]


def test_a_fall_ends_the_chain():
    env = ledge(ENVS)
    falling = lambda obs, key: jnp.concatenate([straight(obs, key), jnp.ones((ENVS, 1))], axis=-1)
    safe = lambda obs, key: jnp.concatenate([straight(obs, key), -jnp.ones((ENVS, 1))], axis=-1)
    assert scores(env, safe)["reached_all"] == 1
    found = scores(env, falling, length=6)
    assert found["fell"] > 0.5
    by_position = [found[f"reached_{k}"] for k in range(1, 7)]
    assert by_position == sorted(by_position, reverse=True)
    assert by_position[-1] < by_position[0]


def counting(limit=7):
    """Counts its steps; no goal is ever reached."""

    def dynamics(state, action, steps, key):
        return state + 1, jnp.zeros((), bool)

    spec = ProbeSpec(state_dim=1, action_dim=1, goal_dim=1, goal_indices=(0,), threshold=0.5)
    nowhere = lambda key: jnp.full((1,), -9.0, jnp.float32)
    return Probe(spec, lambda key: jnp.zeros(1, jnp.float32), nowhere, dynamics, ENVS, limit)


def test_the_robot_is_not_reset_and_time_ends_with_the_last_goal():
    seen = []

    def policy(obs, key):
        jax.debug.callback(lambda state: seen.append(float(state[0, 0])), obs.state)
        return jnp.zeros((ENVS, 1), jnp.float32)

    assert scores(counting(), policy, length=3)["reached"] == 0
    jax.effects_barrier()
    assert sorted(seen) == list(range(21))


def test_a_new_goal_begins_a_new_action_chunk():
    """The action is the achieved goal: one step is enough, unless it is left over from the last goal's chunk."""
    chunks = lambda obs, key: jnp.tile(obs.goal, (1, 3))
    assert scores(echo(ENVS), chunks, chunk=3, steps=1)["reached_all"] == 1


def towards(obs, key):
    """Drive the point along the corridor of the U maze: y first where the way is round the wall."""
    x, y = obs.state[:, 0], obs.state[:, 1]
    gx, gy = obs.goal[:, 0], obs.goal[:, 1]
    other_side = jnp.abs(gx - x) > 2.0
    column = jnp.where(other_side, 12.0, gy)
    row = jnp.where(other_side & (y < 11.0), jnp.where(x < 8.0, 4.0, 12.0), gx)
    force = jnp.stack([row - x, column - y], axis=-1) * 1.0 - 1.0 * obs.state[:, 2:]
    return jnp.clip(force, -1, 1)


@pytest.fixture(scope="module")
def maze():
    return homing.make("point_u_maze_anywhere", num_envs=8, episode_length=300)


def test_a_scripted_policy_reaches_chains_of_goals_in_the_maze(maze):
    assert scores(maze, towards, length=3)["reached_all"] == 1
    stay = lambda obs, key: jnp.zeros((8, 2), jnp.float32)
    assert scores(maze, stay, length=2, steps=20)["reached"] == 0


def test_chains_are_an_evaluation_of_the_api():
    found = homing.evaluate("point_u_maze", episodes=8, chain=3, chain_steps=120, env="point_u_maze_anywhere")
    assert (found["chain"], found["chain_steps"], found["episodes"]) == (3, 120, 8)
    assert set(found["summary"]) == {"reached", "reached_all", "fell", "reached_1", "reached_2", "reached_3"}
    by_position = [found["summary"][f"reached_{k}"]["iqm"] for k in (1, 2, 3)]
    assert found["summary"]["reached"]["iqm"] == pytest.approx(np.mean(by_position), abs=1e-6)
    with pytest.raises(ConfigError, match="give chain"):
        homing.evaluate("point_u_maze", chain_steps=10)
    with pytest.raises(ConfigError, match="chain must be at least 1"):
        homing.evaluate("point_u_maze", chain=0)
