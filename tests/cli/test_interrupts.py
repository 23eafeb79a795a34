"""Ctrl-C and SIGTERM: one line and the signal's exit code, in every command and at any moment."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from homing.cli import interrupts

SOURCE = Path(__file__).parents[2] / "src"
COMMANDS = {
    "envs": ["envs", "--json"],
    "eval": ["eval", "point_u_maze", "--episodes", "4", "--cpu"],
    "doctor": ["doctor"],
    "bench": ["bench", "physics", "--env", "reacher"],
    "train": shlex.split(
        "train crl reacher --preset quickstart --steps 20M --evaluations 400 --cpu --tensorboard off --out {out}"
    ),
}


def started(args, tmp_path):
    """A command in a process of its own, once its handlers are in place."""
    command = [sys.executable, "-m", "homing", *(arg.format(out=tmp_path / "run") for arg in args)]
    env = os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(
        command, env=env, cwd=tmp_path, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not _catches(process.pid, signal.SIGTERM) and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return process


def _catches(pid, signum):
    """Python itself has a handler of SIGINT from the start; only the package has one of SIGTERM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (signum - 1) & 1)
    return False


def check_one_line(process, signum):
    code = process.poll()
    if code is None:
        process.send_signal(signum)
        _, err = process.communicate(timeout=120)
        code = process.returncode
    else:
        err = process.stderr.read()
    if code == 0:
        return False  # it was done before the signal
    lines = err.splitlines()
    assert code == 128 + signum, err
    assert "Traceback" not in err and len(lines) <= 1 + sum("warning" in line.lower() for line in lines), err
    assert lines[-1] == "homing: interrupted" or "continue with: homing resume" in lines[-1], err
    return True


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc")
@pytest.mark.parametrize(
    "delay", [0.0, 0.3, 1.0, *(pytest.param(d, marks=pytest.mark.slow) for d in (0.05, 2.0, 5.0))]
)
@pytest.mark.parametrize("name", ["envs", "eval", "train"])
def test_ctrl_c_is_one_line(name, delay, tmp_path):
    process = started(COMMANDS[name], tmp_path)
    time.sleep(delay)
    begun = time.monotonic()
    interrupted = check_one_line(process, signal.SIGINT)
    assert interrupted or delay > 1
    if not (tmp_path / "run" / "checkpoints").exists():  # a run that has something to save saves it first
        assert time.monotonic() - begun < 30


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks into /proc")
@pytest.mark.parametrize(("name", "delay"), [("doctor", 0.1), ("eval", 1.5), ("bench", 2.5), ("train", 1.5)])
def test_sigterm_is_one_line(name, delay, tmp_path):
    process = started(COMMANDS[name], tmp_path)
    time.sleep(delay)
    assert check_one_line(process, signal.SIGTERM)


SCRIPT = """
import sys, time, threading
sys.path.insert(0, {source!r})
from homing.cli import interrupts

def swallows():
    while True:
        try:
            print("ready", flush=True)
            time.sleep(100)
        except BaseException:
            pass

def drops():
    class Dropped:
        def __del__(self):
            print("ready", flush=True)
            time.sleep(100)
    Dropped()
    time.sleep(100)

def turns():
    try:
        print("ready", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        raise ImportError("a library could not be loaded")

def waits():
    threading.Thread(target=time.sleep, args=(100,)).start()
    print("ready", flush=True)
    time.sleep(100)

def ends_well():
    threading.Thread(target=time.sleep, args=(100,)).start()
    try:
        print("ready", flush=True)
        time.sleep(100)
    except KeyboardInterrupt:
        print("ended")

def stops_by_itself():
    threading.Thread(target=time.sleep, args=(100,)).start()
    print("ready", flush=True)
    raise SystemExit(143)

interrupts.install()
interrupts.guarded({name})
"""


def script(name):
    text = SCRIPT.format(source=str(SOURCE), name=name)
    return subprocess.Popen(
        [sys.executable, "-c", text], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize("name", ["swallows", "drops", "turns", "waits"])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_is_lost_on_its_way_up_ends_the_process_all_the_same(name, signum):
    process = script(name)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signum)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (128 + signum, "homing: interrupted\n")


def test_a_command_may_end_well_on_ctrl_c():
    process = script("ends_well")
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)  # threads that still compute are not waited for
    assert (process.returncode, out, err) == (0, "ended\n", "")


def test_a_command_that_was_stopped_does_not_wait_for_threads():
    begun = time.monotonic()
    process = script("stops_by_itself")
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert time.monotonic() - begun < 20


def test_other_handlers_are_left_in_charge():
    """A run that saves first has handlers of its own: the watching thread does nothing then."""
    ours = interrupts.Interrupts()
    before = signal.signal(signal.SIGTERM, ours.note)
    try:
        assert ours._is_ours(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *_: None)
        assert not ours._is_ours(signal.SIGTERM)
        assert not ours._is_ours(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert threading.current_thread() is threading.main_thread()


def test_a_package_that_is_imported_installs_no_handlers():
    code = "import signal, homing; homing.make; assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    env = os.environ | {"PYTHONPATH": str(SOURCE), "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
