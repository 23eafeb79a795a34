"""A shared page in a real browser: how it is opened, clicked on and stepped."""

import time
from contextlib import contextmanager

import numpy as np

PATIENCE = 90  # seconds: WebGL in software is slow
CLOSE = 1e-3  # metres
# From the first reset, with its goal: the state before each step as words, and positions of all links after it.
TRACK = """(steps) => {
  const app = window.homing, source = app.source, states = [], places = [];
  app.pause(true);
  source.reset(0);
  source.setGoal(new Float32Array(source.resets.slice(source.width - source.goal.length, source.width).buffer));
  for (let k = 0; k < steps; k++) {
    states.push(source.words.map((words) => Array.from(words)));
    source.step();
    places.push(Array.from(source.pos));
  }
  return { states, places };
}"""
SPEED = """() => {
  const source = window.homing.source, begin = performance.now();
  for (let k = 0; k < 200; k++) { source.step(); if (source.terminated) source.reset(); }
  return 200 / ((performance.now() - begin) / 1000);
}"""
# The steps until the goal is reached; a robot that falls has a fresh start, as on the page.
STEPS_TO_GOAL = """(most) => {
  const source = window.homing.source;
  let k = 0;
  for (; k < most && !source.reached; k++) source.terminated ? source.reset() : source.step();
  window.homing.sync();
  return source.reached ? k : null;
}"""


def until(tab, fact):
    """Wait for a fact; the page's policy forbids the script with which playwright would wait."""
    end = time.monotonic() + PATIENCE
    while not tab.evaluate(fact):
        assert time.monotonic() < end, f"never came true: {fact}"
        tab.wait_for_timeout(100)


@contextmanager
def opened(browser, path, **options):
    """The page, ready, and all that it asked for or complained about."""
    context = browser.new_context(**options)
    tab = context.new_page()
    asked, wrong = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    tab.goto(path.as_uri())
    try:
        until(tab, "Boolean(window.homing)")
        yield tab, asked, wrong
    finally:
        context.close()  # it draws as long as it is open


def click_floor(tab, x, y, tap=False):
    px, py = tab.evaluate("([x, y]) => window.homing.view.pixelOf(x, y)", [x, y])
    tab.touchscreen.tap(px, py) if tap else tab.mouse.click(px, py)


def page_track(tab, traced, steps):
    """The page's own trajectory: carries before each step, the goal, and positions of all links [steps, 3 L]."""
    found = tab.evaluate(TRACK, steps)

    def array(words, like):
        bits = np.array(words, np.int32)
        values = bits != 0 if like.dtype == bool else bits.view(like.dtype)
        return values.reshape(like.shape)

    leaves = lambda state: [array(words, like) for words, like in zip(state[:-1], traced.leaves, strict=True)]
    goal = np.array(found["states"][0][-1], np.int32).view(np.float32)
    return [leaves(state) for state in found["states"]], goal, np.array(found["places"])
