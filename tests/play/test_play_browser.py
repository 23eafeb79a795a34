"""The page in a real browser: it loads, a click moves the goal, the robot's distance falls."""

import dataclasses
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jax
import numpy as np
import pytest

from homing.play.guard import PROTOCOL
from homing.play.server import Player, free_port, running
from homing.play.session import Session
from homing.play.shapes import FOV
from homing.play.sources import Choice
from homing.policies import find_policies, write_policies

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
]
PATIENCE = 90.0  # seconds: WebGL in software is slow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium on this machine"),
]


def until(fact, seconds=PATIENCE):
    """Wait for a state, not for a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def player(tmp_path_factory):
    """Plays the arm that comes with the package, as two seeds."""
    own = find_policies("reacher")
    twice = jax.tree.map(lambda x: np.concatenate([x[:1], x[:1]]), own.learner)
    path = tmp_path_factory.mktemp("play") / "two.safetensors"
    write_policies(path, dataclasses.replace(own, learner=twice, seeds=(2, 7)))
    session = Session(Choice(str(path)), (str(path),))
    with running(Player(session, free_port(None)[0], "reacher · Homing")) as player:
        yield player


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(params=[(1280, 800), (390, 800)], ids=["wide", "narrow"])
def page(request, browser, player, caplog):
    width, height = request.param
    refused = []
    player.guard.on_refused = lambda connection, reason: refused.append(reason)
    page = browser.new_page(viewport={"width": width, "height": height})
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(player.address)
    page.wait_for_selector("text=distance", timeout=1000 * PATIENCE)
    assert until(lambda: any(_is_set(client.camera) for client in player.server.get_clients().values()))
    yield page
    page.close()
    assert refused == []
    assert caplog.records == [], "all that our own page sends is taken"


def _is_set(camera):
    """Whether the browser has taken over the view that the page gave it."""
    return abs(camera.fov - FOV) < 1e-3


def on_screen(player, point):
    """Where a point of the world is in the window, by the camera that the browser tells."""
    camera = next(iter(player.server.get_clients().values())).camera
    position, target = np.asarray(camera.position), np.asarray(camera.look_at)
    ahead = (target - position) / np.linalg.norm(target - position)
    right = np.cross(ahead, [0.0, 0.0, 1.0])
    right /= np.linalg.norm(right)
    up = np.cross(right, ahead)
    away = np.asarray(point) - position
    depth = away @ ahead
    scale = 0.5 * camera.image_height / np.tan(0.5 * camera.fov) / depth
    return 0.5 * camera.image_width + scale * (away @ right), 0.5 * camera.image_height - scale * (away @ up)


def click(page, player, place):
    x, y = on_screen(player, (*place, player.page.height))
    page.mouse.click(x, y)


def test_a_click_moves_the_goal_and_the_robot_goes_there(page, player):
    session = player.session
    session.submit(lambda: session.set_goal((-0.1, 0.1)))
    session.submit(session.reset)
    assert until(lambda: np.allclose(session.sim.goal[:2], (-0.1, 0.1), atol=1e-3))
    session.paused = True  # else the arm may be there before it is asked how far it was
    wanted = (0.06, -0.13)
    click(page, player, wanted)
    assert until(lambda: np.allclose(session.sim.goal[:2], wanted, atol=0.03)), session.sim.goal
    far = np.linalg.norm(session.position() - session.sim.goal[:2])
    session.paused = False
    assert until(lambda: session.sim.snapshot.reached, 30)
    assert session.sim.snapshot.distance < min(far, 0.05)
    assert until(lambda: "reached" in page.inner_text("body"), 20), "the page tells it"


def frames(page, count):
    """Wait until the browser has drawn some frames, which is slow in software."""
    for _ in range(count):
        page.evaluate("() => new Promise(requestAnimationFrame)")


def drag(page, player, start, stop):
    """From one place [3] to another, as a hand does it; a slow browser may miss it."""
    page.mouse.move(*on_screen(player, start))
    frames(page, 5)  # what is under the mouse is found when a frame is drawn
    page.mouse.down()
    for fraction in np.linspace(0, 1, 12):
        page.mouse.move(*on_screen(player, (1 - fraction) * np.asarray(start) + fraction * np.asarray(stop)))
        frames(page, 2)
    page.mouse.up()


def test_a_robot_that_is_dragged_is_pushed(page, player, monkeypatch):
    session, pushes = player.session, []
    session.submit(lambda: session.set_goal((0.05, 0.14)))
    assert until(lambda: session.sim.snapshot.reached and session.sim.goal[1] > 0.1, 60)
    session.paused = True
    session.submit(lambda: session.set_goal((0.0, -0.15)))  # out of the way
    monkeypatch.setattr(session, "push", lambda direction, speed: pushes.append((direction, speed)))
    elbow = np.asarray(session.sim.snapshot.pos[1])
    time.sleep(1)
    frames(page, 5)
    top = 0.5 * elbow + (0, 0, 0.5 * elbow[2])
    assert any(drag(page, player, top, top + (0.08, 0, 0)) or until(lambda: pushes, 10) for _ in range(3))
    (across, along), speed = pushes[0]
    assert across > abs(along)
    assert speed == float(player.page.push_speed.value)
    session.paused = False


def test_the_goal_follows_the_mouse_that_drags_it(page, player):
    session = player.session
    before, wanted = (-0.05, -0.12), (0.11, 0.02)
    session.submit(lambda: session.set_goal((0.05, 0.14)))
    assert until(lambda: session.sim.snapshot.reached and session.sim.goal[1] > 0.1, 60)
    session.paused = True  # else the arm may reach the goal, and be what the mouse takes hold of
    session.submit(lambda: session.set_goal(before))
    assert until(lambda: np.allclose(session.sim.goal[:2], before, atol=1e-3))
    time.sleep(1)
    frames(page, 5)
    ends = [(*xy, player.page.height) for xy in (before, wanted)]
    moved = lambda: np.allclose(session.sim.goal[:2], wanted, atol=0.04)
    assert any(drag(page, player, *ends) or until(moved, 10) for _ in range(3)), session.sim.goal
    session.paused = False
    assert until(lambda: session.sim.snapshot.reached, 30)


def test_controls_do_what_they_say(page, player):
    session = player.session
    if page.viewport_size["width"] < 600:
        pytest.skip("the same controls")
    pause = page.get_by_role("checkbox").first
    pause.check(force=True)
    assert until(lambda: session.paused, 20)
    time.sleep(0.5)
    still = session.sim.steps
    time.sleep(1.0)
    assert session.sim.steps == still
    pause.uncheck(force=True)
    assert until(lambda: not session.paused, 20)
    goal = session.sim.goal.copy()
    page.get_by_role("button", name="New goal", exact=True).click()
    assert until(lambda: not np.array_equal(session.sim.goal, goal), 20)


def test_title_and_address_are_ours(page, player):
    assert page.title() == "reacher · Homing"
    assert page.url == player.address, "the client does not rewrite it"
    page.goto(player.origin)
    assert "has a token" in page.inner_text("body")


def test_a_page_of_another_origin_cannot_connect(browser, player):
    """Another port of this machine is another origin, which a browser lets open WebSockets to here."""
    other = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{other.server_address[1]}/")
    code = """([url, protocol]) => new Promise(done => {
        const socket = new WebSocket(url, [protocol]);
        socket.onopen = () => done("open");
        socket.onerror = () => done("refused");
    })"""
    address = player.address.replace("http", "ws").rstrip("/")
    assert page.evaluate(code, [address, PROTOCOL]) == "refused"
    page.goto(player.address)
    assert page.evaluate(code, [address, PROTOCOL]) == "open"
    page.close()
    other.shutdown()


def test_nothing_is_asked_of_another_machine(page, player):
    elsewhere = [url for url in page.asked if not url.startswith((player.origin, "data:", "blob:"))]
    assert elsewhere == []
    assert page.asked


def test_another_seed_is_played_when_chosen(page, player):
    session = player.session
    if page.viewport_size["width"] < 600:
        pytest.skip("the same controls")
    other, version = 7, session.version
    assert session.sim.actor.seed != other
    player.page.choose(dataclasses.replace(session.choice, seed=other))
    assert until(lambda: session.version > version)
    assert session.sim.actor.seed == other
    assert until(lambda: f"seed {other}" in page.inner_text("body"), 20)
