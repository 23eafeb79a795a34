"""The session behind the page: goals, clock, pushes, falls, commands."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import homing
from homing.envs.goal_space import GoalSpace, goal_space
from homing.errors import ConfigError, HomingError
from homing.play import shapes
from homing.play.session import FALL_SECONDS, MAX_COMMANDS
from homing.play.sources import Choice, compatible_environments
from homing.play.status import status
from homing.types import Obs

DT = 0.05


def test_the_robot_goes_where_the_goal_is_put(session):
    session.submit(lambda: session.set_goal((4.0, 10.0)))
    session.advance(0.0)
    far = np.linalg.norm(session.position() - [4.0, 10.0])
    for _ in range(60):
        session.advance(2 * DT)
    assert session.sim.snapshot.distance < 0.5 < far
    assert session.sim.snapshot.reached
    np.testing.assert_allclose(session.position(), [4.0, 10.0], atol=0.5)
    assert session.history[-1][1] == session.sim.snapshot.distance
    assert len(session.trajectory) > 50


def test_a_goal_put_into_a_wall_lands_on_the_ground_beside_it(session):
    session.set_goal((8.0, 4.0))
    assert not session.sim.space.in_wall(session.sim.goal)
    # Half a wall, the distance that goals keep from it, and half a cell of the grid.
    np.testing.assert_allclose(session.sim.goal, [8.0, 4.0], atol=2.0 + 0.5 + 0.05 + 1e-5)
    assert "(8, 4) is inside a wall" in session.message
    session.set_goal((4.0, 8.0))
    assert session.message == ""


def test_a_goal_beside_a_wall_is_moved_away_from_it_and_told(session):
    session.set_goal((4.0, 2.1))  # the wall ends at y = 2
    np.testing.assert_allclose(session.sim.goal, [4.0, 2.5], atol=0.1)
    assert "(4, 2.1) is too close to a wall; using the nearest good place, (" in session.message


def test_the_height_of_a_goal_counts_for_its_reach(session, monkeypatch):
    space = goal_space(homing.make("arm_reach"))
    high, near = np.float32([0.0, 0.6, 0.985]), np.float32([0.0, 0.525, 0.915])
    monkeypatch.setattr(session, "sim", SimpleNamespace(space=space, goal=near))
    assert "(0, 0.6, 0.985) is out of reach" in session._moved(high, 0)
    assert session._moved(near, 0) == ""


def test_free_points_are_computed_before_the_first_click(session, monkeypatch):
    monkeypatch.setattr(GoalSpace, "grid", None)  # done when the simulation was made
    session.set_goal((8.0, 4.0))
    assert not session.sim.space.in_wall(session.sim.goal)


# Numbers that no page of ours sends.

BAD = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("value", BAD)
def test_a_speed_is_finite(session, value):
    with pytest.raises(ConfigError, match=r"from 0.1 to 2"):
        session.speed = value
    assert session.speed == 1.0
    assert session.advance(2 * DT) == 2


@pytest.mark.parametrize(("value", "taken"), [(1e12, 2.0), (1e308, 2.0), (-3.0, 0.1), (0.0, 0.1), (1.5, 1.5)])
def test_a_speed_is_clamped(session, value, taken):
    session.speed = value
    assert session.speed == taken


@pytest.mark.parametrize("value", [*BAD, 1e7, -1e308, 10**400])
def test_a_goal_far_out_or_nowhere_is_refused(session, value):
    before = session.sim.goal.copy()
    for xy in ((value, 1.0), (1.0, value)):
        session.submit(lambda xy=xy: session.set_goal(xy))
        session.submit(lambda xy=xy: session.push(xy, 3.0))
    session.advance(2 * DT)
    np.testing.assert_array_equal(session.sim.goal, before)
    assert "finite" in session.message
    assert np.isfinite(session.sim.snapshot.distance)


def test_a_goal_beyond_the_arena_is_put_at_its_edge(session):
    session.set_goal((1e6, -1e6))
    x0, x1, y0, y1 = session.sim.env.scene.spec.arena.extent()
    assert x0 <= session.sim.goal[0] <= x1
    assert y0 <= session.sim.goal[1] <= y1
    with pytest.raises(ConfigError, match="none is number 7"):
        session.set_goal((4.0, 4.0), 7)


@pytest.mark.parametrize("value", BAD)
def test_a_push_speed_is_finite_and_clamped(session, value):
    with pytest.raises(ConfigError, match=r"from 0.5 to 10"):
        session.push((1.0, 0.0), value)
    session.push((1.0, 0.0), 1e12)
    assert np.isfinite(session.sim.step().state).all()


def test_a_simulation_that_diverges_is_reset(session, monkeypatch):
    broken = dataclasses.replace(session.sim.snapshot, state=np.full(4, np.nan))
    monkeypatch.setattr(session.sim, "step", lambda: broken)
    session._step()
    assert "diverged" in session.message
    assert session.sim.snapshot.is_finite
    assert np.isfinite(np.asarray(session.history)).all()


def test_a_command_that_fails_leaves_a_line_and_the_session_goes_on(session, caplog):
    def fail():
        raise ZeroDivisionError("a\nb\x1b[31m")

    session.submit(fail)
    assert session.advance(2 * DT) == 2
    assert session.message == "ZeroDivisionError: a b [31m"
    assert [record.getMessage() for record in caplog.records] == [f"homing play: {session.message}"]


def test_commands_that_come_too_fast_are_dropped(session, caplog):
    done = []
    for k in range(MAX_COMMANDS + 10):
        session.submit(lambda k=k: done.append(k))
    session.advance(0.0)
    assert done == list(range(MAX_COMMANDS))
    assert "dropped" in caplog.text


@pytest.mark.parametrize(
    "choice",
    [
        Choice("/etc/passwd"),
        Choice("missing.safetensors"),
        Choice("other", 3),
        Choice("{source}", 9),
        Choice("{source}", 3, "worst"),
        Choice("{source}", 3, "last", "ant"),
        Choice("{source}", 3, "last", "/etc/passwd"),
    ],
    ids=str,
)
def test_what_the_page_does_not_offer_is_not_even_looked_for(session, choice, monkeypatch):
    monkeypatch.setattr("homing.play.session.make_actor", None)
    choice = dataclasses.replace(choice, source=choice.source.format(source=session.choice.source))
    with pytest.raises(ConfigError):
        session.choose(choice)


def test_the_clock_is_followed_slowed_down_and_stopped(session):
    assert session.advance(3.5 * DT) == 3
    assert session.advance(0.6 * DT) == 1, "what is left over counts"
    session.speed = 0.5
    session._pending_seconds = 0.0
    assert session.advance(4 * DT) == 2
    session.paused = True
    assert session.advance(1.0) == 0
    session.paused = False
    assert session.advance(60.0) == round(0.25 / DT), "a pause of the machine is not made up for"
    assert session.advance(0.9 * DT) <= 1


def test_a_push_moves_the_robot_that_way(session):
    before = session.position()
    session.push((0.0, -1.0), 3.0)
    session.sim.step()
    after = session.position()
    assert after[1] < before[1] - 0.1
    assert abs(after[0] - before[0]) < 0.05
    assert session.sim.has_planar_root


def test_a_new_goal_comes_once_the_old_one_is_held(session):
    session.auto_goal = True
    session.set_goal(tuple(session.position()))
    first = session.sim.goal.copy()
    for _ in range(14):
        session.advance(2 * DT)
    assert not np.array_equal(session.sim.goal, first)


def test_a_termination_starts_a_new_trajectory(session, monkeypatch):
    for _ in range(5):
        session.advance(DT)
    assert len(session.trajectory) > 4
    step = session.sim.step
    monkeypatch.setattr(session.sim, "step", lambda: dataclasses.replace(step(), terminated=True))
    session._step()
    assert len(session.trajectory) == 2
    assert len(session.history) == 1


def test_a_fall_is_shown_for_a_moment_before_the_fresh_start(session, monkeypatch):
    session.advance(2 * DT)
    fallen, step = session.sim.snapshot, session.sim.step
    monkeypatch.setattr(session.sim, "step", lambda: dataclasses.replace(step(), terminated=True))
    falls = session.falls
    assert session.advance(0.25) == 5
    monkeypatch.setattr(session.sim, "step", step)
    assert session.has_fallen
    assert session.falls == falls + 1
    assert session.shown is fallen, "the pose before the environment started again"
    assert "It fell" in status(session, False)
    assert session.advance(FALL_SECONDS - 0.1) == 0
    assert session.advance(0.2) == 0
    assert not session.has_fallen
    assert session.shown is session.sim.snapshot
    assert session.advance(2 * DT) > 0, "it goes on by itself"
    assert f"falls {falls + 1}" in status(session, False)


def test_goals_that_are_reached_are_counted_once(session):
    count = session.goals_reached
    for _ in range(2):
        session.set_goal(tuple(session.position()))
        session.advance(5 * DT)
    assert session.goals_reached == count + 2
    assert f"goals reached **{count + 2}**" in status(session, False)


def test_new_goals_lie_at_distances_of_training(session, monkeypatch):
    assert 10 < session.sim.farthest < 15, "from the start of the U to the end of its other arm, and a little"
    monkeypatch.setattr(session.sim, "farthest", np.float32(6.0))
    place = session.position()
    for _ in range(12):
        session.sample_goal()
        assert 0.5 <= np.linalg.norm(session.sim.goal - place) <= 6.0
    monkeypatch.setattr(session.sim, "farthest", np.float32(0.1))
    session.sample_goal()
    assert np.linalg.norm(session.sim.goal - place) >= 0.5, "where none is near enough, the nearest"


def test_the_opening_goal_is_that_of_the_start(session):
    goal = session.sim.goal.copy()
    drawn = set()
    for _ in range(8):
        assert session.sim.restart().distance >= 0.5
        drawn.add(tuple(session.sim.goal))
    assert len(drawn) > 2
    session.sim.goal = goal


def test_what_cannot_be_played_is_told_and_changes_nothing(session, monkeypatch):
    def fail(choice):
        raise HomingError("it has no seed 9")

    monkeypatch.setattr("homing.play.session.make_actor", fail)
    version, sim = session.version, session.sim
    session.submit(lambda: session.choose(Choice("other")))
    session.advance(0.0)
    assert session.message == "it has no seed 9"
    assert (session.version, session.sim) == (version, sim)


def test_the_critic_is_asked_from_where_the_robot_is(session):
    values = session.sim.critic_values()
    places = session.sim.space.grid(max(values.shape))
    policies = session.sim.actor.policies
    obs = Obs(jnp.asarray(session.sim.snapshot.state), jnp.asarray(places[3, 5]))
    # The map asks about the agent's own action, whatever the actor does here.
    own = policies.agent.act(session.sim.learner, obs, jax.random.key(0), explore=False)
    expected = policies.agent.value(session.sim.learner, obs, own)
    np.testing.assert_allclose(values[3, 5], expected, rtol=1e-4)
    picture = shapes.heat(values, session.sim.space, 0.5)
    assert picture.shape == (*values.shape, 4)
    free = ~session.sim.space.in_wall(places)
    best = np.unravel_index(np.argmax(np.where(free, values, -np.inf)), values.shape)
    np.testing.assert_array_equal(picture[best][:3], [253, 231, 36])  # viridis' brightest
    assert (picture[..., 3] == 128).all()


def test_a_policy_may_go_where_its_body_and_goals_are_the_same():
    places = compatible_environments("ant")
    assert places[0] == "ant"
    assert {"ant_u_maze", "ant_big_maze", "ant_random_start"} <= set(places)
    assert not {"ant_soccer", "ant_push", "humanoid", "point_u_maze"} & set(places)
    assert compatible_environments("reacher") == ("reacher",)
