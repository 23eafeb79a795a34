"""The page in a real browser: it loads, a click moves the goal, the robot's distance falls."""

import dataclasses
import threading
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import jax
import numpy as np
import pytest
from browser_helpers import CHROMIUM, PATIENCE, browser, click, on_screen, opened, until  # noqa: F401

from homing.play.guard import PROTOCOL
from homing.play.server import Player, free_port, running
from homing.play.session import Session
from homing.play.sources import Choice
from homing.policies import find_policies, shipped_names, write_policies

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium on this machine"),
]


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


@pytest.fixture(params=[(1280, 800), (390, 800)], ids=["wide", "narrow"])
def page(request, browser, player, caplog):  # noqa: F811
    width, height = request.param
    refused = []
    player.guard.on_refused = lambda connection, reason: refused.append(reason)
    page = browser.new_page(viewport={"width": width, "height": height})
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    yield opened(page, player)
    page.close()
    assert refused == []
    assert caplog.records == [], "all that our own page sends is taken"


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


def test_a_click_beyond_the_arms_reach_is_moved_and_told(page, player):
    session = player.session
    session.submit(lambda: session.set_goal((0.1, 0.1)))
    click(page, player, (-0.33, 0.3))
    radius = session.sim.space.reachable.radius
    assert until(
        lambda: session.sim.goal[0] < 0 and np.linalg.norm(session.sim.goal[:2]) <= radius + 1e-6, 20
    )
    assert until(lambda: "out of reach" in page.inner_text("body"), 20)
    assert until(lambda: session.sim.snapshot.reached, 30)


def test_keys_do_what_the_page_says(page, player):
    session = player.session
    if page.viewport_size["width"] < 600:
        pytest.skip("no keyboard")
    assert "new goal" in page.inner_text("body")
    goal = session.sim.goal.copy()
    page.keyboard.press("n")
    assert until(lambda: not np.array_equal(session.sim.goal, goal), 20)
    page.get_by_role("checkbox").nth(2).click(force=True)  # which then has the keyboard's attention
    page.keyboard.press("p")
    assert until(lambda: session.paused, 20)
    page.keyboard.press("p")
    assert until(lambda: not session.paused, 20)


def test_a_finger_moves_the_goal(browser, player):  # noqa: F811
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    page = opened(context.new_page(), player)
    session, wanted = player.session, (-0.1, 0.08)
    session.submit(lambda: session.set_goal((0.1, -0.1)))
    assert until(lambda: session.sim.goal[0] > 0)
    page.touchscreen.tap(*on_screen(player, (*wanted, player.page.height)))
    assert until(lambda: np.allclose(session.sim.goal[:2], wanted, atol=0.03), 30), session.sim.goal
    context.close()


def test_a_card_of_the_gallery_starts_its_policy(browser):  # noqa: F811
    player = Player(None, free_port(None)[0], "Homing", sources=shipped_names(), has_gallery=True)
    with running(player):
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(player.address)
        assert page.title() == "Homing"
        assert page.locator("a.card").count() == len(shipped_names())
        page.click("a.card:has-text('reacher')")
        page.wait_for_selector("text=distance", timeout=1000 * PATIENCE)
        assert page.title() == "reacher · Homing"
        assert page.url == f"{player.address}?play=reacher", "a reload plays it again"
        assert player.session.choice.source == "reacher"
        page.close()


def test_title_and_address_are_ours(page, player):
    assert page.title() == "reacher · Homing"
    assert page.url == player.address, "the client does not rewrite it"
    page.goto(player.origin)
    assert "has a token" in page.inner_text("body")


def test_a_page_of_another_origin_cannot_connect(browser, player):  # noqa: F811
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
