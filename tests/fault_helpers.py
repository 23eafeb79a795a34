"""The command line on a probe, in processes that die or fail, and a run that nothing disturbed to compare with."""

from __future__ import annotations

import functools
import shlex
import time
from pathlib import Path
from typing import NamedTuple

from forked import Forked, Server

TESTS = Path(__file__).parent
# Twelve evaluations and as many checkpoints: most moments after the start are near a write.
COMMON = shlex.split(
    "--preset quickstart --seed-list 3,4 --steps 5760 --num-envs 8 --unroll-length 10 --evaluations 12 "
    "--eval-envs 8 --checkpoint-minutes 0 --tensorboard off --actor-net.width 16"
)
REPLAY = shlex.split("--batch-size 32 --updates-per-step 1/30 --replay-size 50 --prefill-steps 20")
CRITIC = ["--critic-net.width", "16"]
# A third of them, as many processes train so.
TRAIN = ["train", "crl", "walk", *COMMON, *REPLAY, *CRITIC, "--steps", "1920", "--evaluations", "4"]


@functools.cache
def _server(cache: Path) -> Server:
    """Of processes that have imported what the command line imports until it trains."""
    env = {
        "TRACES": "1",
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1",
        "XDG_CACHE_HOME": str(cache),
    }
    modules = "probe_cli", "homing.cli.train", "homing.training.runner", "orbax.checkpoint", "scipy.linalg"
    return Server(*modules, env=env)


def start(cache: Path, *args: object, fault: str = "") -> Forked:
    """The command line in a process of its own, with a fault if one is asked for.

    cache: folder of programs, traced and compiled, that are kept
    """
    return _server(cache).start(TESTS / "probe_cli.py", *args, cwd=TESTS, env={"FAULT": fault})


def command(cache: Path, *args: object, fault: str = "") -> tuple[int, str]:
    """Exit code of such a process, and what it printed."""
    process = start(cache, *args, fault=fault)
    said, _ = process.communicate(timeout=600)
    return process.returncode, said


class Undisturbed(NamedTuple):
    """A finished run of `TRAIN`, the cache that it has filled, and how long that took."""

    path: Path
    cache: Path
    seconds: float


@functools.cache
def undisturbed(folder: Path) -> Undisturbed:
    """One for all tests of this process, in its folder of temporary ones."""
    path, cache = folder / "undisturbed" / "run", folder / "undisturbed" / "cache"
    begun = time.monotonic()
    code, said = command(cache, *TRAIN, "--out", path)
    assert code == 0, said
    return Undisturbed(path, cache, time.monotonic() - begun)
