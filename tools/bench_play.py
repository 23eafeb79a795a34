"""Measure how soon a page is ready, and what a frame costs beside drawing: the browser, the server, the traffic.

    python tools/bench_play.py             into results/play_cpu.json
    python tools/bench_play.py --starts    how soon pages are ready, and nothing else; best while nothing else runs

Chromium draws in software on machines without a GPU, which says nothing about one that has. Here the calls that draw
(draw and clear of WebGL) are left out. The rest is counted in CPU time of the page's main thread, so that other
programs on the machine matter little. A browser with a GPU does this work and drawing side by side.
"""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection

from homing.play.server import Player, free_port, running
from homing.play.session import Choice, Session
from homing.policies import shipped_names
from homing.training.device import choose_device

ROOT = Path(__file__).parent.parent
OUT = ROOT / "results" / "play_cpu.json"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
SECONDS = 10.0
WITHOUT_DRAWING = """(() => {
  const nothing = function () {}, calls = ["clear", "drawArrays", "drawElements", "drawRangeElements"];
  calls.push("drawArraysInstanced", "drawElementsInstanced", "finish");
  for (const name of calls) WebGL2RenderingContext.prototype[name] = nothing;
  window.framesShown = 0;
  const count = () => { window.framesShown++; requestAnimationFrame(count); };
  requestAnimationFrame(count);
})();"""


class Tab:
    """A page without drawing calls, whose main thread is timed."""

    def __init__(self, browser: Any):
        self.page = browser.new_page(viewport={"width": 1280, "height": 800})
        self.page.add_init_script(WITHOUT_DRAWING)
        self._tools = self.page.context.new_cdp_session(self.page)
        self._tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def _counts(self) -> dict[str, float]:
        metrics = {m["name"]: m["value"] for m in self._tools.send("Performance.getMetrics")["metrics"]}
        return {
            "frames": self.page.evaluate("window.framesShown"),
            "script": metrics["ScriptDuration"],
            "task": metrics["TaskDuration"],
        }

    def measured(self, seconds: float) -> dict[str, float]:
        """Over some seconds: frames, and CPU milliseconds of each on the page's main thread."""
        before = self._counts()
        self.page.wait_for_timeout(1000 * seconds)
        after = self._counts()
        spent = {name: after[name] - before[name] for name in before}
        return {
            "frames": spent["frames"],
            "script_ms": 1000 * spent["script"] / spent["frames"],
            "main_thread_ms": 1000 * spent["task"] / spent["frames"],
        }


@contextmanager
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


class Timed:
    """What the server does: CPU milliseconds of its thread for each iteration of its loop, and bytes it sends."""

    def __init__(self, player: Player):
        self.restart()
        self._wrap(player.session, "advance")
        self._wrap(player.page, "show", counts=True)

    def _wrap(self, owner: Any, name: str, counts: bool = False) -> None:
        original = getattr(owner, name)

        def timed(*args: Any) -> Any:
            begin = time.thread_time()
            result = original(*args)
            self.spent += time.thread_time() - begin
            self.iterations += counts
            return result

        setattr(owner, name, timed)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what is sent to browsers meanwhile."""
        send = ServerConnection.send

        async def counted(connection: Any, message: Any, *args: Any) -> None:
            self.bytes += len(message)
            await send(connection, message, *args)

        ServerConnection.send = counted
        try:
            yield
        finally:
            ServerConnection.send = send

    def restart(self) -> None:
        self.spent, self.iterations, self.bytes, self.begin = 0.0, 0, 0, time.monotonic()

    @property
    def figures(self) -> dict[str, float]:
        return {
            "server_ms": 1000 * self.spent / max(1, self.iterations),
            "sent_kB_per_second": self.bytes / (time.monotonic() - self.begin) / 1000,
        }


def played(browser: Any, name: str, seconds: float) -> dict[str, float]:
    """`homing play NAME` while the robot goes from goal to goal."""
    session = Session(Choice(name), shipped_names())
    session.auto_goal = True
    player = Player(session, free_port(None)[0], name)
    timed = Timed(player)
    with running(player), timed.counting():
        tab = Tab(browser)
        tab.page.goto(player.address)
        tab.page.wait_for_selector("text=distance", timeout=180_000)
        tab.page.wait_for_timeout(3000)  # the scene is built
        timed.restart()
        found = tab.measured(seconds) | timed.figures
        tab.page.close()
    return found


def shared(browser: Any, path: Path, seconds: float) -> dict[str, float]:
    """A page of `homing share`, which computes physics and policy itself."""
    tab = Tab(browser)
    tab.page.goto(path.as_uri())
    tab.page.wait_for_timeout(3000)
    found = tab.measured(seconds)
    assert tab.page.evaluate("Boolean(window.homing)"), f"{path} is not ready"
    tab.page.close()
    return found


def seconds_until_ready(name: str, cache: str) -> float:
    """Of `homing play NAME` in a process of its own, as it says itself."""
    port, _ = free_port(None)
    command = (sys.executable, "-m", "homing", "play", name, "--port", str(port))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
    )
    assert process.stdout is not None
    found = next((m for m in (re.match(r"ready: ([\d.]+) s", line) for line in process.stdout) if m), None)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert found is not None, f"{name} was never ready"
    return float(found[1])


def starts(name: str) -> dict[str, float]:
    """Seconds until the page is ready, first with an empty cache of programs and then with a warm one."""
    with tempfile.TemporaryDirectory() as cache:
        return {when: seconds_until_ready(name, cache) for when in ("cold_seconds", "warm_seconds")}


def main() -> None:
    known = json.loads(OUT.read_text())
    about = {"date": time.strftime("%Y-%m-%d"), "cpu": cpu(), "cores": os.cpu_count()}
    known["starts"] = about | {"pages": {name: starts(name) for name in shipped_names()}}
    if "--starts" not in sys.argv[1:]:
        known |= measured_frames()
    OUT.write_text(json.dumps(known, indent=1) + "\n")
    for name, row in (known["starts"]["pages"] | known["pages"]).items():
        print(name, row)


def measured_frames() -> dict[str, Any]:
    """What a frame costs on every page."""
    choose_device(cpu=True)
    with chromium() as browser:
        found = {f"play {name}": played(browser, name, SECONDS) for name in shipped_names()}
        pages = sorted((ROOT / "docs" / "live").glob("*.html"))
        found |= {f"share {path.stem}": shared(browser, path, SECONDS) for path in pages}
        about = {"browser": f"Chromium {browser.version}", "date": time.strftime("%Y-%m-%d"), "cpu": cpu()}
    rows = {name: {k: round(v, 3) for k, v in row.items()} for name, row in found.items()}
    return about | {"seconds": SECONDS, "pages": rows}


def cpu() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), platform.machine())


if __name__ == "__main__":
    main()
