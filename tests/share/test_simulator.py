"""Translated environments and policies, run by Node and compared with Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from share_helpers import needs_node, run_aims, run_goals, run_program
from share_reference import as_page, track

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
    points = np.concatenate([points, [(x0, y0), (x1 + 1, y1 + 1)]])
    found = run_goals(_goals(space), points)
    # Equally near points of the search grid may be chosen in another order.
    for point, (x, y, fault) in zip(points, found, strict=True):
        gap = np.linalg.norm(np.subtract(space.nearest_free(point), point))
        assert np.hypot(x - point[0], y - point[1]) == pytest.approx(gap, abs=1e-4)
        assert bool(fault) == bool(space.fault(point))


@needs_node
@pytest.mark.parametrize("id", ["ant_anywhere", "point_u_maze_anywhere"])
def test_far_goals_are_approached_in_stages_as_in_python(id):
    from homing.share.scene import _goals

    space = goal_space(make(id))
    pairs = np.random.default_rng(0).uniform(-20, 20, (40, 2, 2)).astype(np.float32)
    expected = [space.aim(here, goal) for here, goal in pairs]
    np.testing.assert_allclose(run_aims(_goals(space), pairs), expected, rtol=1e-5, atol=1e-5)
    moved = [not np.array_equal(aim, goal) for aim, (_, goal) in zip(expected, pairs, strict=True)]
    assert any(moved) == (id == "ant_anywhere") and not all(moved)


def test_resets_are_different_starts_and_goals(made):
    assert len(np.unique(made.resets["goal"], axis=0)) > 1
    assert all(np.isfinite(x).all() for x in made.resets.values())


def test_what_a_page_cannot_compute_is_said():
    why = why_recorded(make("half_cheetah"))
    assert "mjx" in why and "record" in why
    assert why_recorded(make("point_u_maze")) == ""


def moved(step, made, actions):
    """States before each action, and places of all links after it, by `step(goal, action, *leaves) -> leaves`."""
    goal, leaves = made.resets["goal"][0], [made.resets[n][:1] for n in made.carry]
    states, places = [], []
    for action in actions:
        states.append(leaves)
        found = [np.asarray(x) for x in jax.tree.leaves(step(goal, action, *leaves))]
        leaves = found[: len(leaves)]
        places.append(found[len(leaves)].reshape(-1))
    return states, places


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("id", ["ant", "ant_big_maze", "humanoid", "ant_soccer", "reacher"])
def test_every_step_is_python_s(id):
    """From each state of a trajectory, one step leads to the same place, and so do 100 steps in a row.

    Between walls contacts amplify rounding: there XLA without optimisation is 2 mm from XLA with it after 100 steps,
    and many steps are those of the same operations in the same order.
    """
    actor = environment_actor(id, "zero", None, {})
    made, traced = simulator(actor, given_actions=True), Traced(actor)
    actions = np.random.default_rng(0).uniform(-1, 1, (100, actor.env.spec.action_dim)).astype(np.float32)
    states, places = moved(jax.jit(traced.move), made, actions)
    rounds = [
        dict(zip(made.carry, s, strict=True)) | {"action": a} for s, a in zip(states, actions, strict=True)
    ]
    given = {"goal": made.resets["goal"][0]} | rounds[0]
    single = run_program(made.program, given, ["move"], ["pos"], times=100, each=rounds)
    assert max(np.abs(f["pos"] - p).max() for f, p in zip(single, places, strict=True)) < 1e-4
    if id == "ant_big_maze":
        _, places = moved(as_page(traced.move, given["goal"], actions[0], *states[0]), made, actions)
    each = [{"action": a} for a in actions]
    free = run_program(made.program, given, ["move"], ["pos"], times=100, each=each)
    assert max(np.abs(f["pos"] - p).max() for f, p in zip(free, places, strict=True)) < CLOSE
