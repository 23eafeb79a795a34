"""The page in a real browser: it loads, a click moves the goal, the robot's distance falls."""

import time
from pathlib import Path

import numpy as np
import pytest

from homing.play.server import Player, free_port, running
from homing.play.session import Choice, Session
from homing.play.shapes import FOV

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
def player():
    session = Session(Choice("reacher"), ("reacher",))
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
def page(request, browser, player):
    width, height = request.param
    page = browser.new_page(viewport={"width": width, "height": height})
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto(player.address)
    page.wait_for_selector("text=distance", timeout=1000 * PATIENCE)
    assert until(lambda: any(_is_set(client.camera) for client in player.server.get_clients().values()))
    yield page
    page.close()


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
    session.ask(lambda: session.aim((-0.1, 0.1)))
    session.ask(session.restart)
    assert until(lambda: np.allclose(session.sim.goal[:2], (-0.1, 0.1), atol=1e-3))
    wanted = (0.06, -0.13)
    click(page, player, wanted)
    assert until(lambda: np.allclose(session.sim.goal[:2], wanted, atol=0.03)), session.sim.goal
    far = session.sim.moment.distance
    assert until(lambda: session.sim.moment.reached, 30)
    assert session.sim.moment.distance < min(far, 0.05)
    assert until(lambda: "reached" in page.inner_text("body"), 20), "the page tells it"


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


def test_nothing_is_asked_of_another_machine(page, player):
    elsewhere = [url for url in page.asked if not url.startswith((player.address, "data:", "blob:"))]
    assert elsewhere == []
    assert page.asked


def test_another_seed_is_played_when_chosen(page, player):
    session = player.session
    if page.viewport_size["width"] < 600 or len(session.sim.actor.policies.seeds) < 2:
        pytest.skip("one seed, or the same controls")
    other = session.sim.actor.policies.seeds[1]
    version = session.version
    player.page._choose(Choice("reacher", other))
    assert until(lambda: session.version > version)
    assert session.sim.actor.seed == other
    assert until(lambda: f"seed {other}" in page.inner_text("body"), 20)
