"""A real browser in front of a player: how to start it, and where things are on its screen."""

import time
from pathlib import Path

import numpy as np
import pytest

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
PATIENCE = 180.0  # seconds: WebGL in software is slow


def until(fact, seconds=PATIENCE):
    """Wait for a state, not for a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


def opened(page, player):
    """The page once it shows the scene from the view that it was given."""
    page.goto(player.address)
    page.wait_for_selector("text=distance", timeout=1000 * PATIENCE)
    newest = lambda: list(player.server.get_clients().values())[-1:]
    assert until(lambda: any(abs(client.camera.fov - FOV) < 1e-3 for client in newest()))
    # A browser that draws in software says so, over the scene.
    page.add_style_tag(content=".mantine-Notification-root { display: none }")
    return page


def on_screen(player, point):
    """Where a point of the world is in the window, by the camera that the browser tells."""
    camera = list(player.server.get_clients().values())[-1].camera  # an earlier page may be about to leave
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
