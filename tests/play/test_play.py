"""Playing without a browser: the session, the clock, the page's geometry, the port."""

import contextlib
import dataclasses
import socket
import threading
import urllib.request
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from play_helpers import until
from policy_helpers import maze_policy  # noqa: F401

from homing.cli import main
from homing.envs.goal_space import GoalSpace
from homing.errors import ConfigError, HomingError
from homing.play import server, shapes
from homing.play.following import Newer, follower
from homing.play.page import TRAJECTORY_RGB
from homing.play.session import FALL_SECONDS, MAX_COMMANDS, TRAJECTORY, Session
from homing.play.simulation import Simulation
from homing.play.sources import Choice, compatible_environments, make_actor
from homing.play.status import status
from homing.policies.store import EnvChoice, Policies, Spaces
from homing.runs.policy_files import save_policy
from homing.types import Obs

DT = 0.05


def towards(learner, obs, key):
    """Straight to the goal, braking on the way."""
    return jnp.clip(obs.goal - obs.state[..., :2] - obs.state[..., 2:], -1, 1)


@pytest.fixture(scope="module")
def made(maze_policy):  # noqa: F811
    """A session whose point heads straight for its goal; compiled once for all tests."""
    actor = dataclasses.replace(make_actor(Choice(maze_policy, 4)), act=towards)
    sim = Simulation(actor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("homing.play.session.Simulation", lambda _: sim)
        patch.setattr("homing.play.session.make_actor", lambda choice: actor)
        session = Session(Choice(maze_policy, 4), ("other",))
    return session, sim


@pytest.fixture
def session(made):
    session, _ = made
    session.paused, session.speed, session.auto_goal, session.message = False, 1.0, False, ""
    session._fallen = None
    session.sim.goal = np.array([4.0, 8.0], np.float32)
    session.reset()
    session._pending_seconds = 0.0
    return session


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


class FakeFollower:
    """A run that has written a policy since."""

    def __init__(self, newer, step):
        self.newer, self.step, self.has_newer = newer, step, True

    def read(self):
        self.has_newer = False
        if isinstance(self.newer, Exception):
            raise self.newer
        return self.newer


def test_a_newer_policy_of_the_run_acts_from_the_next_goal_on(session, monkeypatch):
    before, actor = session.sim.learner, session.sim.actor
    newer = Newer(jax.tree.map(lambda x: 2 * x, before), actor.policies)
    monkeypatch.setattr(session, "_follower", FakeFollower(newer, 123_456))
    monkeypatch.setattr(session.sim, "learner", before)
    monkeypatch.setattr(session.sim, "actor", actor)
    session.set_goal((4.0, 12.0))
    session._follower.has_newer, session.sim.learner = True, before
    session.advance(2 * DT)
    assert session.sim.learner is before, "not on the way"
    said = status(session, False)
    assert "step 123,456" in said
    assert "a newer one acts from the next goal on" in said
    session.set_goal((4.0, 8.0))
    assert session.sim.learner is newer.learner
    assert session.advance(2 * DT) == 2, "by the same program"
    assert "newer" not in status(session, False)


@pytest.mark.parametrize("broken", [HomingError("half a file"), None], ids=["unreadable", "diverged"])
def test_a_newer_policy_that_cannot_act_is_told(session, monkeypatch, broken):
    before = session.sim.learner
    monkeypatch.setattr(session, "_follower", FakeFollower(broken, 5))
    session.reset()
    assert session.sim.learner is before
    assert "newer policy" in session.message


def test_a_follower_reads_what_a_run_has_written_since(tmp_path, monkeypatch):
    agent = SimpleNamespace(init=lambda key: {"w": jnp.zeros(3)})
    run = SimpleNamespace(path=tmp_path, config=lambda: None)
    monkeypatch.setattr("homing.play.following.RunFolder.existing", lambda path: run)
    monkeypatch.setattr("homing.play.following.run_card", lambda *args: {"step": 640 * args[-1]})
    policies = Policies(
        "here", "crl", agent, None, None, (3, 4), Spaces("walk", 2, 2, 2), EnvChoice("walk"), 1, {"step": 640}
    )
    path = tmp_path / "policies" / "last.safetensors"
    save_policy(path, {"w": np.zeros((2, 3), np.float32)}, 1)
    follow = follower(str(tmp_path), "last", policies, 4)
    assert follow.step == 640
    assert not follow.has_newer
    assert follow.read() is None
    save_policy(path, {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, 7)
    assert follow.has_newer
    newer = follow.read()
    np.testing.assert_array_equal(newer.learner["w"], [3, 4, 5])
    assert follow.step == 640 * 7
    assert not follow.has_newer
    save_policy(path, {"w": np.full((2, 3), np.nan, np.float32)}, 9)
    assert follow.read() is None
    assert follow.step == 640 * 7
    assert follower("reacher", "last", policies, 3) is None, "a file is not followed"


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


# The page and its port.


@pytest.fixture
def player(made, session):
    port, _ = server.free_port(None)
    player = server.Player(session, port, "a test")
    player.page.show()
    yield player
    player.stop()


def click(origin, direction):
    return SimpleNamespace(ray_origin=origin, ray_direction=direction)


def test_a_click_on_the_floor_moves_the_goal_there(player, session):
    player.page.pointer.clicked(click((4.0, 0.0, 10.0), (0.0, 0.9, -1.0)))
    session.advance(0.0)
    np.testing.assert_allclose(session.sim.goal, [4.0, 9.0], atol=1e-4)
    for away in ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)):
        player.page.pointer.clicked(click((4.0, 0.0, 10.0), away))
    session.advance(0.0)
    np.testing.assert_allclose(session.sim.goal, [4.0, 9.0], atol=1e-4)


def test_a_path_fades_into_the_ground(player, session):
    for _ in range(30):
        session.advance(2 * DT)
    player.page._draw_trajectory()
    line = player.page._line_segments
    assert line.points.shape == line.colors.shape == (len(session.trajectory) - 1, 2, 3)
    np.testing.assert_array_equal(line.colors[-1, 1], TRAJECTORY_RGB)
    age = (len(session.trajectory) - 1) * DT / TRAJECTORY
    expected = np.asarray(TRAJECTORY_RGB) * (1 - age) + age * np.asarray(shapes.GROUND_RGB)
    np.testing.assert_allclose(line.colors[0, 0], expected, atol=1.0)
    player.page.trajectory.value = False
    player.page._draw_trajectory()
    assert not line.visible


def test_the_page_is_served_while_it_loads(session, monkeypatch):
    gate = threading.Event()

    def slow(choice, sources, actor):
        assert gate.wait(30)
        return session

    monkeypatch.setattr(server, "Session", slow)
    player = server.Player(None, server.free_port(None)[0], "a test")
    ready = []
    with pytest.raises(HomingError, match="nothing is played yet"):
        _ = player.session
    thread = threading.Thread(target=lambda: player.run(ready.append), daemon=True)
    player.open(session.choice)
    thread.start()
    assert "Loading" in player._waiting.content
    assert b"<title>a test" in urllib.request.urlopen(player.address, timeout=20).read()
    assert not ready
    gate.set()
    assert until(lambda: ready == [session])
    assert until(lambda: "distance" in player.page.status.content)
    player.stop()
    thread.join(10)


def test_a_choice_of_the_gallery_that_fails_leaves_it_open(session, monkeypatch):
    tries = [HomingError("it is damaged"), session]

    def load(choice, sources, actor):
        found = tries.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(server, "Session", load)
    player = server.Player(None, server.free_port(None)[0], "Homing", has_gallery=True)
    with server.running(player):
        urllib.request.urlopen(f"{player.address}?play=reacher", timeout=20).read()
        assert until(lambda: "it is damaged" in player._waiting.content)
        urllib.request.urlopen(f"{player.address}?play=reacher", timeout=20).read()
        assert until(lambda: player._session is session)


def test_the_scene_follows_the_simulation(player, session):
    session.set_goal((4.0, 10.0))
    for _ in range(20):
        session.advance(2 * DT)
    player.page._draw()
    player.page._update_status()
    np.testing.assert_allclose(player.page.links[0].position, session.sim.snapshot.pos[0], atol=1e-5)
    np.testing.assert_allclose(player.page._goals[0][1].position[:2], [4.0, 10.0], atol=1e-5)
    assert f"{session.sim.snapshot.distance:.2f} m" in player.page.status.content
    assert len(player.page.plot.data[0]) == len(session.history)


def test_only_this_machine_reaches_the_page(player):
    assert player.server.get_host() == "127.0.0.1"
    assert player.is_local
    page = urllib.request.urlopen(player.address, timeout=20).read()
    assert b"<html" in page.lower()
    outside = socket.gethostbyname(socket.gethostname())
    if not outside.startswith("127."):
        with pytest.raises(OSError, match="refused"):
            socket.create_connection((outside, player.server.get_port()), timeout=5)


def test_a_click_that_is_not_finite_moves_nothing(player, session):
    before = session.sim.goal.copy()
    for bad in (np.nan, np.inf, -np.inf):
        player.page.pointer.clicked(click((bad, 0.0, 10.0), (0.0, 0.9, -1.0)))
        player.page.pointer.clicked(click((4.0, 0.0, 10.0), (0.0, bad, -1.0)))
        player.page.pointer.clicked(click((4.0, 0.0, 10.0), (0.0, 0.9, bad)))
    session.advance(0.0)
    np.testing.assert_array_equal(session.sim.goal, before)
    player.page._update_status()
    assert "nan" not in player.page.status.content


def test_a_page_that_cannot_be_drawn_is_told_once_and_stays_up(player, session, caplog):
    def fail():
        raise ValueError("no scene")

    for _ in range(3):
        player._contained(fail)
    assert [record.getMessage() for record in caplog.records] == ["homing play: ValueError: no scene"]
    assert session.message == "ValueError: no scene"


def test_errors_and_names_are_shown_as_they_are(player, session):
    session.message = "<img src=x onerror=alert(1)> [a](javascript:b)"
    player.page._update_status()
    assert "<img" not in player.page.status.content
    assert "](" not in player.page.status.content


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_host_that_is_every_name_is_refused(host):
    with pytest.raises(ConfigError, match="any name"):
        server.check_host(host)


def test_a_host_of_another_machine_is_refused():
    with pytest.raises(ConfigError, match=r"cannot listen on --host 192\.0\.2\.1"):
        server.check_host("192.0.2.1")
    server.check_host("127.0.0.1")
    server.check_host("localhost")


@pytest.mark.parametrize("local", [True, False])
def test_the_command_says_who_can_open_the_page(session, monkeypatch, capsys, local):
    def fake(nothing, port, label, host, sources, has_gallery):
        noop = lambda *args: None
        return SimpleNamespace(
            is_local=local,
            host=host,
            address="http://x/token/",
            open=noop,
            run=lambda say: say(session),
            stop=noop,
        )

    monkeypatch.setattr(server, "Player", fake)
    monkeypatch.setattr("homing.play.sources.make_actor", lambda choice: session.sim.actor)
    main.main(["play", session.choice.source, "--host", "localhost"])
    said = capsys.readouterr().out
    assert "open http://x/token/" in said
    assert ("only this machine can" in said) == local
    assert ("not encrypted" in said) != local
    assert "× real time on this machine" in said


def test_a_viser_that_starts_without_the_guard_is_not_used(session, monkeypatch):
    monkeypatch.setattr(server, "guarded", lambda guard: contextlib.nullcontext())
    with pytest.raises(HomingError, match="cannot be guarded"):
        server.Player(session, server.free_port(None)[0], "a test")


def test_a_port_that_is_taken_is_told(capsys, maze_policy):  # noqa: F811
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(SystemExit) as end:
            main.main(["play", maze_policy, "--port", str(taken)])
        assert end.value.code == 2
        assert (
            f"port {taken} is taken by another program; choose another with --port" in capsys.readouterr().err
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "PORT", taken)
            port, said = server.free_port(None)
        assert port != taken
        assert f"port {taken} is taken" in said
    with pytest.raises(HomingError, match="from 1 to 65535"):
        server.free_port(0)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("reachr",), "did you mean 'reacher'"),
        (("nowhere/run",), "does not exist"),
        (("{policy}", "--env", "ant_maze"), "unknown environment"),
        (("{policy}", "--env", "ant"), "cannot act in ant"),
        (("{policy}", "--seed", "9"), "no seed 9; it has 3, 4"),
    ],
)
def test_what_cannot_be_played_is_one_message(args, words, maze_policy, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(server, "Player", None)  # none of these may get as far as serving
    with pytest.raises(SystemExit) as end:
        main.main(["play", *(arg.format(policy=maze_policy) for arg in args)])
    assert end.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
