"""The page and its port, without a browser: clicks, geometry, texts, who may open it."""

import contextlib
import socket
import threading
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from play_helpers import until

from homing.cli import main
from homing.envs import make
from homing.errors import ConfigError, HomingError
from homing.play import server, shapes
from homing.play.page import TRAJECTORY_RGB

DT = 0.05


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
    assert line.points.shape == line.colors.shape == (shapes.PATH - 1, 2, 3)
    np.testing.assert_allclose(line.points[-1, 1, :2], session.trajectory[-1], atol=1e-5)
    np.testing.assert_allclose(line.points[0, 0, :2], session.trajectory[0], atol=1e-5)
    np.testing.assert_array_equal(line.points[0, 0], line.points[1, 1])  # it is shorter than it can get
    np.testing.assert_array_equal(line.colors[-1, 1], TRAJECTORY_RGB)
    np.testing.assert_array_equal(line.colors[0, 0], shapes.GROUND_RGB)
    assert (np.diff(line.colors[:, 1, 0].astype(int)) <= 0).all(), "the fainter the older"
    player.page.trajectory.value = False
    player.page._draw_trajectory()
    assert not line.visible


def test_a_path_is_told_by_the_same_number_of_points_at_the_same_ages():
    way = np.arange(800.0).reshape(400, 2)
    whole, short = shapes.path(way, 400), shapes.path(way[:200], 400)
    assert len(whole) == len(short) == shapes.PATH
    np.testing.assert_array_equal(whole[[0, -1]], way[[0, 399]])
    np.testing.assert_array_equal(short[[0, -1]], way[[0, 199]])
    np.testing.assert_array_equal(whole[-50:] - whole[-1], short[-50:] - short[-1])


def test_the_view_is_the_same_on_a_dense_screen():
    """Browsers tell pixels of the screen, of which a phone has two or three for each of the page's."""
    spec = make("point_u_maze").scene.spec
    for width, height in ((390, 844), (1280, 800)):
        plain = shapes.view(spec, width, height)
        for density in (2, 3):
            dense = shapes.view(spec, density * width, density * height)
            np.testing.assert_allclose([*dense.position, *dense.target], [*plain.position, *plain.target])
    assert shapes.free_part(3 * 390, 3 * 844) == pytest.approx((3 * 390, shapes.NARROW_FREE * 3 * 844))
    free, _ = shapes.free_part(2 * 1280, 2 * 800)
    assert free == 2 * (1280 - shapes.PANEL)


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


def test_what_a_signal_turned_into_is_no_error_of_the_page(player, session, monkeypatch, caplog):
    def fail():
        raise TypeError("an interrupt, as a library has it")

    monkeypatch.setattr(player, "_is_ending", lambda: True)
    with pytest.raises(TypeError):
        player._contained(fail)
    assert not caplog.records and not session.message


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
    def fake(nothing, port, label, host, sources, has_gallery, is_ending):
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


def test_a_port_that_is_taken_while_the_policy_is_read_is_not_used(session, monkeypatch, capsys):
    wanted, other = server.free_port(None)[0], socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

    def slow(choice):
        other.bind(("127.0.0.1", wanted))
        other.listen()
        return session.sim.actor

    monkeypatch.setattr(server, "PORT", wanted)
    monkeypatch.setattr("homing.play.sources.make_actor", slow)
    monkeypatch.setattr(server.Player, "run", lambda player, say: None)
    with other:
        main.main(["play", session.choice.source])
    said = capsys.readouterr().out
    assert f"port {wanted} is taken by another program" in said and "open http://127.0.0.1:" in said
    assert "viser" not in said


def test_a_viser_that_starts_without_the_guard_is_not_used(session, monkeypatch, capsys):
    monkeypatch.setattr(server, "guarded", lambda guard: contextlib.nullcontext())
    with pytest.raises(HomingError, match="cannot be guarded"):
        server.Player(session, server.free_port(None)[0], "a test")
    assert capsys.readouterr().out == ""


def test_a_port_that_is_taken_is_told(capsys, maze_policy):
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
def test_what_cannot_be_played_is_one_message(args, words, maze_policy, capsys, monkeypatch):
    monkeypatch.setattr(server, "Player", None)  # none of these may get as far as serving
    with pytest.raises(SystemExit) as end:
        main.main(["play", *(arg.format(policy=maze_policy) for arg in args)])
    assert end.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
