"""The page in a real browser: no request leaves it, it steps as Python does, and a click's goal is reached."""

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from browser_helpers import CHROMIUM
from cli_helpers import command
from share_browser import CLOSE, SPEED, click_floor, opened, page_track

from homing.errors import ConfigError, HomingError
from homing.share import page as pages
from homing.share.page import check_out, live_page, write_page
from homing.share.simulator import Traced, sampled_resets
from homing.share.sources import check_source, make_actor

needs_browser = pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium on this machine")


@pytest.fixture(scope="module")
def actor():
    return make_actor("point_u_maze")


@pytest.fixture(scope="module")
def maze(actor, tmp_path_factory):
    return write_page(actor, tmp_path_factory.mktemp("share") / "maze.html").path


def python_track(actor, steps):
    traced = Traced(actor)
    names = tuple(map(str, range(len(traced.leaves))))
    resets = sampled_resets(traced, names, 0)
    goal, leaves, track = jnp.asarray(resets["goal"][0]), [jnp.asarray(resets[n][:1]) for n in names], []
    step = jax.jit(traced.step)
    for _ in range(steps):
        carry, shown = step(goal, *leaves)
        leaves = jax.tree.leaves(carry)
        track.append(np.asarray(shown[0]).reshape(-1))
    return np.array(track)


@needs_browser
def test_the_page_computes_what_python_does_and_a_click_s_goal_is_reached(browser, actor, maze):
    with opened(browser, maze) as (tab, asked, wrong):
        _, _, found = page_track(tab, Traced(actor), 100)
        assert np.abs(found - python_track(actor, 100)).max() < CLOSE
        assert tab.evaluate(SPEED) > 1 / actor.env.spec.dt, "slower than real time"
        click_floor(tab, 12.0, 12.0)
        goal = tab.evaluate("Array.from(window.homing.source.goal)")
        np.testing.assert_allclose(goal, (12.0, 12.0), atol=0.05)
        tab.evaluate(
            "() => { for (let k = 0; k < 800 && !homing.source.reached; k++) homing.step(); homing.show(1); }"
        )
        assert tab.evaluate("window.homing.source.reached")
        click_floor(tab, 8.0, 8.0)  # in the wall that the maze goes around
        assert "wall" in tab.locator("#message").text_content()
        assert tab.evaluate("!window.homing.source.space.blocked(...window.homing.source.goal)"), (
            "on free floor"
        )
        tab.keyboard.press("c")
        assert tab.evaluate("window.homing.view.map.visible")
        tab.evaluate("() => { while (!homing.map.complete) homing.map.refresh(50); }")
        assert tab.evaluate("window.homing.map.high > window.homing.map.low")
        assert asked == [maze.as_uri()], "no request leaves the page"
        assert not wrong


@needs_browser
def test_a_phone_sets_goals_by_touch_and_shows_every_button(browser, maze):
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
    with opened(browser, maze, **phone) as (tab, _, wrong):
        click_floor(tab, 12.0, 12.0, tap=True)
        goal = tab.evaluate("Array.from(window.homing.source.goal)")
        np.testing.assert_allclose(goal, (12.0, 12.0), atol=0.1)
        for button in tab.locator("#controls button").all():
            box = button.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 360 and box["height"] >= 44
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        assert not wrong


@needs_browser
def test_a_recording_has_a_scrubber(browser, actor, tmp_path, monkeypatch):
    monkeypatch.setattr(pages.film, "EPISODES", 2)
    monkeypatch.setattr(pages.film, "RUN_STEPS", 40)
    written = write_page(actor, tmp_path / "film.html", recorded=True)
    assert written.note == "", "as asked for"
    with opened(browser, written.path) as (tab, asked, wrong):
        assert tab.evaluate("window.homing.source.films.length") == 2
        bar = tab.locator("#time")
        bar.evaluate("(bar) => { bar.value = 17; bar.dispatchEvent(new Event('input')); }")
        assert tab.evaluate("[window.homing.source.at, window.homing.paused]") == [17, True]
        before = tab.evaluate("window.homing.source.current")
        tab.locator("#do-goal").click()
        assert tab.evaluate("window.homing.source.current") != before
        click_floor(tab, 8.0, 8.0)
        assert "recordings" in tab.locator("#message").text_content()
        assert asked == [written.path.as_uri()]
        assert not wrong


# The file.


def test_a_page_is_small_and_names_no_address(maze):
    text = maze.read_text()
    assert len(text) < pages.LARGEST
    assert "default-src 'none'" in text and "MIT License" in text
    assert "% of goals reached in homing play, in chains of 5" in text, "as its card says it"
    markup = text[: text.index('id="blob-')] + text[text.index("/* Runs a translated program") :]
    loads = [
        word for word in ("src=", "@import", "url(", "fetch(", "XMLHttpRequest", "http:") if word in markup
    ]
    assert loads in ([], ["http:"]), loads
    assert markup.count("http:") == 1, "the name of SVG in the icon"


def test_the_same_policy_gives_the_same_page(actor, maze):
    assert live_page(actor) == maze.read_text()


def test_too_large_a_page_is_refused(actor, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "live_page", lambda actor, seed: "x" * (pages.LARGEST + 1))
    with pytest.raises(HomingError, match="--recorded"):
        write_page(actor, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_a_page_is_written_whole_or_not_at_all(actor, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pages, "live_page", lambda actor, seed: "page")
    path = write_page(actor, tmp_path / "new" / "page.html").path
    monkeypatch.setattr(pages, "live_page", lambda actor, seed: "another")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(HomingError, match="No space left on device; make room or choose another --out"):
        write_page(actor, path)
    assert path.read_text() == "page"
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]


def test_what_is_no_page_or_policy_is_refused():
    with pytest.raises(ConfigError, match="html"):
        check_out(Path("page.mp4"))
    with pytest.raises(ConfigError, match="no policy for humanoid_big_maze"):
        check_source("humanoid_big_maze")
    with pytest.raises(HomingError):
        check_source("no_such_thing")


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        (("point_u_maze", "--out", "page.mp4"), "a page ends in .html"),
        (("humanoid_hardest_maze", "--out", "page.html"), "name a run's folder or a policy file"),
        (("point_u_maze", "--out", "page.html", "--env", "nowhere"), "nowhere"),
        (("point_u_maze", "--out", "page.html", "--seed", "9"), "no seed 9"),
        (("point_u_maze", "--out", "page.html", "--env", "ant"), "ant"),
    ],
)
def test_the_command_refuses_before_it_computes(capsys, tmp_path, monkeypatch, args, fault):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(capsys, "share", *args)
    assert code and fault in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_the_page_of_other_physics_replays(actor, tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "why_recorded", lambda env: "these physics cannot run in a browser")
    monkeypatch.setattr(pages, "recorded_page", lambda actor, seed: "recorded")
    written = write_page(actor, tmp_path / "page.html")
    assert written.note and written.path.read_text() == "recorded"
