"""Translated environments and policies, run by Node and compared with Python."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from share_helpers import needs_node, run_goals, run_program
from share_reference import track

from homing.envs import make
from homing.envs.goal_space import goal_space
from homing.policies import find_policies
from homing.share.simulator import MAP_BATCH, Traced, simulator, why_recorded
from homing.share.sources import make_actor
from homing.types import Obs
from homing.viz.video import environment_actor

CLOSE = 1e-3  # metres


@pytest.fixture(scope="module")
def actor():
    return make_actor("point_u_maze")


@pytest.fixture(scope="module")
def made(actor):
    return simulator(actor)


def python_track(actor, made, steps):
    """Positions of all links and distances as Python steps them from the first reset."""
    traced, goal = Traced(actor), jnp.asarray(made.resets["goal"][0])
    step, leaves, track = jax.jit(traced.step), [jnp.asarray(made.resets[n][:1]) for n in made.carry], []
    for _ in range(steps):
        carry, (pos, _, _, distance, *_) = step(goal, *leaves)
        leaves = jax.tree.leaves(carry)
        track.append((np.asarray(pos).reshape(-1), float(distance[0])))
    return track


@needs_node
def test_a_policy_takes_the_same_way(actor, made):
    start = {name: made.resets[name][0] for name in (*made.carry, "goal")}
    found = run_program(made.program, start, ["step"], ["pos", "distance"], times=100)
    for own, (pos, distance) in zip(found, python_track(actor, made, 100), strict=True):
        np.testing.assert_allclose(own["pos"], pos, atol=CLOSE)
        np.testing.assert_allclose(own["distance"], distance, atol=CLOSE)


@needs_node
def test_in_the_same_order_of_operations_the_way_is_the_same_to_the_last_bit(actor, made):
    start = {name: made.resets[name][0] for name in (*made.carry, "goal")}
    found = run_program(made.program, start, ["step"], ["pos"], times=20)
    leaves = [made.resets[n][:1] for n in made.carry]
    places, _ = track(Traced(actor), start["goal"], leaves, 20)
    np.testing.assert_array_equal([one["pos"] for one in found], places)


def test_networks_compute_in_float32_whatever_they_were_trained_in():
    actor = make_actor("ant")
    assert find_policies("ant").settings.actor_net.dtype == "bfloat16"
    state = jnp.ones((1, actor.env.spec.state_dim)), jnp.ones((1, actor.env.spec.goal_dim))
    program = jax.make_jaxpr(lambda s, g: actor.act(actor.learner, Obs(s, g), jax.random.key(0)))(*state)
    assert "bf16" not in str(program)


@needs_node
def test_the_critic_gives_the_same_values(actor, made):
    places = np.random.default_rng(0).uniform(2, 10, (MAP_BATCH, 2)).astype(np.float32)
    start = {name: made.resets[name][0] for name in (*made.carry, "goal")}
    found = run_program(made.program, start | {"places": places}, ["value"], ["values"])[0]["values"]
    traced = Traced(actor)
    leaves = [jnp.asarray(made.resets[n][:1]) for n in made.carry]
    expected = jax.jit(traced.value)(jnp.asarray(start["goal"]), jnp.asarray(places), *leaves)
    np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4)


@needs_node
@pytest.mark.parametrize("id", ["point_u_maze", "reacher"])
def test_goals_are_moved_as_in_python(id):
    """In walls, outside and out of reach."""
    from homing.share.scene import _goals

    space = goal_space(make(id))
    x0, x1, y0, y1 = space.spec.arena.extent()
    size = x1 - x0
    points = np.random.default_rng(0).uniform((x0 - size / 4, y0), (x1, y1 + size / 4), (40, 2))
    found = run_goals(_goals(space), points)
    # Equally near points of the search grid may be chosen in another order.
    for point, (x, y, fault) in zip(points, found, strict=True):
        gap = np.linalg.norm(np.subtract(space.nearest_free(point), point))
        assert np.hypot(x - point[0], y - point[1]) == pytest.approx(gap, abs=1e-4)
        assert bool(fault) == bool(space.fault(point))


def test_resets_are_different_starts_and_goals(made):
    assert len(np.unique(made.resets["goal"], axis=0)) > 1
    assert all(np.isfinite(x).all() for x in made.resets.values())


def test_what_a_page_cannot_compute_is_said():
    why = why_recorded(make("half_cheetah"))
    assert "mjx" in why and "record" in why
    assert why_recorded(make("point_u_maze")) == ""


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize(
    ("id", "steps"),
    [("ant", 100), ("ant_big_maze", 80), ("humanoid", 100), ("ant_soccer", 100), ("reacher", 100)],
)
def test_every_step_is_python_s(id, steps):
    """From each state of a trajectory, one step leads to the same place, and so do many steps in a row.

    Contacts amplify differences of rounding; between walls, in the maze, most of all.
    """
    actor = environment_actor(id, "zero", None, {})
    made, traced = simulator(actor, given_actions=True), Traced(actor)
    rng, move = np.random.default_rng(0), jax.jit(traced.move)
    goal, leaves = jnp.asarray(made.resets["goal"][0]), [jnp.asarray(made.resets[n][:1]) for n in made.carry]
    states, places = [[np.asarray(x) for x in leaves]], []
    actions = rng.uniform(-1, 1, (100, actor.env.spec.action_dim)).astype(np.float32)
    for action in actions:
        carry, shown = move(goal, jnp.asarray(action), *leaves)
        leaves = jax.tree.leaves(carry)
        states.append([np.asarray(x) for x in leaves])
        places.append(np.asarray(shown[0]).reshape(-1))
    rounds = [
        dict(zip(made.carry, s, strict=True)) | {"action": a} for s, a in zip(states, actions, strict=False)
    ]
    given = {"goal": np.asarray(goal)} | rounds[0]
    single = run_program(made.program, given, ["move"], ["pos"], times=100, each=rounds)
    free = run_program(
        made.program, given, ["move"], ["pos"], times=100, each=[{"action": a} for a in actions]
    )
    alone = max(np.abs(f["pos"] - p).max() for f, p in zip(single, places, strict=True))
    in_a_row = [np.abs(f["pos"] - p).max() for f, p in zip(free, places, strict=True)]
    print(json.dumps({"env": id, "one_step": float(alone), "in_a_row": [float(x) for x in in_a_row[9::10]]}))
    assert alone < 1e-4
    assert max(in_a_row[:steps]) < CLOSE
