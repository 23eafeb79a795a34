"""The live pages of the site in a real browser: they step as Python does, and goals of clicks are reached."""

from pathlib import Path

import jax
import numpy as np
import pytest
from browser_helpers import CHROMIUM
from share_browser import CLOSE, SPEED, STEPS_TO_GOAL, click_floor, opened, page_track
from share_reference import track

from homing.share.simulator import Traced
from homing.share.sources import make_actor

LIVE = Path(__file__).parent.parent.parent / "docs" / "live"
NAMES = sorted(path.stem for path in LIVE.glob("*.html") if '"kind":"live"' in path.read_text())
STEPS = 100
CLICKS, REACHED = 4, 3


@pytest.mark.slow
@pytest.mark.timeout(2400)  # the arithmetic in NumPy takes minutes in mazes
@pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium on this machine")
@pytest.mark.parametrize("name", NAMES)
def test_a_live_page_goes_python_s_way_and_reaches_the_goals_of_clicks(browser, name):
    actor, path = make_actor(name), LIVE / f"{name}.html"
    traced = Traced(actor)
    with opened(browser, path) as (tab, asked, wrong):
        states, goal, places = page_track(tab, traced, STEPS)
        speed = tab.evaluate(SPEED)
        steps = [goal_steps(tab, place) for place in clicked_places(tab, traced)]
        assert asked == [path.as_uri()] and not wrong
    step = jax.jit(traced.step)
    single = np.array([np.asarray(step(goal, *state)[1][0]).reshape(-1) for state in states])
    same, _ = track(traced, goal, states[0], STEPS)
    print(
        f"{name}: a step of XLA {np.abs(single - places).max():.1e} m, {STEPS} steps in the page's arithmetic",
        end=" ",
    )
    print(f"{np.abs(same - places).max():.1e} m, {speed:.0f} steps/s, clicks reached after {steps}")
    assert np.abs(single - places).max() < 1e-5, "from each state, one step is XLA's"
    assert np.abs(same - places).max() < CLOSE, "the closed loop is that of the same arithmetic"
    assert speed > 1 / actor.env.spec.dt, "slower than real time"
    assert sum(k is not None for k in steps) >= REACHED, steps


def clicked_places(tab, traced):
    """Random free places [CLICKS, 2] that no wall hides."""
    free = traced.space.free_points(float(traced.env.task.within))
    drawn = free[np.random.default_rng(0).permutation(len(free))[: 10 * CLICKS]].tolist()
    seen = tab.evaluate(
        "(all) => all.map(([x, y]) => homing.view.floorAt(...homing.view.pixelOf(x, y)))", drawn
    )
    return [place for place, at in zip(drawn, seen, strict=True) if np.allclose(place, at, atol=0.01)][
        :CLICKS
    ]


def goal_steps(tab, place):
    """Steps after which the place of a click is reached, from where the robot is; None if it is not."""
    tab.evaluate("homing.pause(true); homing.sync()")
    click_floor(tab, *place)
    aimed = tab.evaluate("Array.from(window.homing.source.goal)")
    np.testing.assert_allclose(aimed[:2], place, atol=0.15)  # a pixel is some centimetres of floor
    return tab.evaluate(STEPS_TO_GOAL, 1500)
