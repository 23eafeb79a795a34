"""Both servers for a long time under 20 clients: alive, serving, and with flat memory.

`HOMING_SOAK_MINUTES` sets how long, for instance 120, and `HOMING_SOAK_OUT` a JSON file for what was measured.
All traffic stays on this machine.
"""

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from play_helpers import CLICK, client, play_process
from policy_helpers import maze_policy  # noqa: F401
from report_helpers import rows_of, write_run

from homing.system import hardware

MINUTES = float(os.environ.get("HOMING_SOAK_MINUTES", "1"))
CLIENTS = 20  # half of them on each server
SAMPLES = 24
GROWTH = 1.08  # that memory of the last third may have over that of the second

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 * MINUTES + 600)]


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def clicking(play, stop: threading.Event, served: list[int], index: int) -> None:
    """Connect, click about, leave, and come again."""
    rng = np.random.default_rng(index)
    while not stop.is_set():
        with contextlib.suppress(Exception), client(play) as page:
            for _ in range(40):
                x, y = rng.uniform(-4, 12, 2)
                page.send(
                    CLICK | {"ray_origin": [float(x), float(y), 10.0], "ray_direction": [0.0, 0.0, -1.0]}
                )
                if stop.wait(0.25):
                    return
            served[index] += len(page.seen) > 0


def reading(port: int, stop: threading.Event, served: list[int], index: int) -> None:
    """Ask for the page and for news, as browsers do."""
    while not stop.wait(0.5):
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/" if index % 5 == 0 else "/data.json")
            served[index] += connection.getresponse().status == 200
            connection.close()


@contextlib.contextmanager
def watch_process(folder: Path):
    """`homing watch` on a run that keeps growing."""
    run = write_run(folder / "runs" / "a", seeds=(0,), finished=False)
    log = (folder / "watch.log").open("wb")
    command = [sys.executable, "-m", "homing", "watch", str(folder / "runs"), "--port", "0"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
    end, found = time.monotonic() + 120, None
    while found is None and time.monotonic() < end and process.poll() is None:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", (folder / "watch.log").read_text())
        time.sleep(0.1)
    assert found, (folder / "watch.log").read_text()
    try:
        yield process, int(found[1]), run
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def flat(samples: list[float]) -> bool:
    """Whether memory has stopped growing: the last third against the second."""
    thirds = np.array_split(np.asarray(samples), 3)
    return float(np.median(thirds[2])) < GROWTH * float(np.median(thirds[1]))


def test_both_servers_stay_up_with_flat_memory(maze_policy, tmp_path):  # noqa: F811
    stop, served = threading.Event(), [0] * CLIENTS
    with play_process(maze_policy, tmp_path) as play, watch_process(tmp_path) as (watch, port, run):
        half = CLIENTS // 2
        threads = [threading.Thread(target=clicking, args=(play, stop, served, i)) for i in range(half)]
        threads += [
            threading.Thread(target=reading, args=(port, stop, served, i)) for i in range(half, CLIENTS)
        ]
        for thread in threads:
            thread.start()
        memory: dict[str, list[float]] = {"play": [], "watch": []}
        rows = rows_of((0,))
        for sample in range(SAMPLES):
            time.sleep(60 * MINUTES / SAMPLES)
            assert play.alive and watch.poll() is None
            memory["play"].append(play.resident_mib)
            memory["watch"].append(resident_mib(watch.pid))
            with open(run / "metrics.jsonl", "a") as file:
                file.write(json.dumps(rows[-1] | {"iteration": 1000 + sample, "step": 10**6 + sample}) + "\n")
        stop.set()
        for thread in threads:
            thread.join(60)
        with client(play) as last:
            assert last.is_served()
        report = {"minutes": MINUTES, "clients": CLIENTS, "served": served}
        report |= {f"{name}_mib": [round(x) for x in values] for name, values in memory.items()}
        print(report)
        if os.environ.get("HOMING_SOAK_OUT"):
            Path(os.environ["HOMING_SOAK_OUT"]).write_text(json.dumps(report | hardware.describe()) + "\n")
        assert all(count > 0 for count in served), served
        assert all(flat(values) for values in memory.values()), memory
        assert "Traceback" not in play.log + (tmp_path / "watch.log").read_text()
