"""kill -9 at random moments: runs and studies that are resumed until they finish end with the same bits.

HOMING_KILLS is the number of kills over all cases together, HOMING_KILLS_SEED that of their moments.
"""

import os
import random
import signal
import subprocess
import time

import pytest
from fault_helpers import COMMON, CRITIC, REPLAY, TESTS, TRAIN, start, undisturbed
from run_helpers import assert_same_results

KILLS = int(os.environ.get("HOMING_KILLS", "7"))
SEED = int(os.environ.get("HOMING_KILLS_SEED", "0"))

CASES = {
    "crl": TRAIN,
    "crl-chunk-2": ["train", "crl", "walk", *COMMON, *REPLAY, *CRITIC, "--chunk", "2"],
    "sac": ["train", "sac", "walk", *COMMON, *REPLAY, *CRITIC],
    "td3": ["train", "td3", "walk", *COMMON, *REPLAY, *CRITIC],
    "srl": ["train", "srl", "walk", *COMMON, *REPLAY, "--encoder-net.width", "16", "--head-net.width", "16"],
    "ppo": ["train", "ppo", "walk", *COMMON, "--minibatches", "2", "--value-net.width", "16"],
    "study": ["study", "run", "{tests}/attacks/tiny.toml", "--workers", "0", "--cpu"],
}
QUICK = ("crl",)
WARM = 0.25  # length of a run with kept programs, as a fraction of the first one's


def started(args, cache):
    return start(cache, *(arg.format(tests=TESTS) for arg in args))


def finish(process):
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    return said


def killed(process, seconds):
    """Kill a process after so long; whether it still ran."""
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    said, _ = process.communicate(timeout=300)
    assert process.returncode in (0, -signal.SIGKILL), said
    return process.returncode != 0


def go_on(args, out):
    """The command that resumes what is there."""
    if args[0] == "train" and (out / "config.json").exists():
        return ["resume", str(out)]
    return [*args, "--out", str(out)]


def runs_of(out):
    return sorted(path.parent.relative_to(out) for path in out.rglob("config.json"))


@pytest.mark.timeout(600 + 120 * KILLS)
@pytest.mark.parametrize(
    "case", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_a_run_that_is_killed_at_random_ends_with_the_same_bits(case, tmp_path, tmp_path_factory):
    args, place = CASES[case], list(CASES).index(case)
    kills = KILLS // len(CASES) + (place < KILLS % len(CASES))
    if not kills:
        pytest.skip("as many kills as HOMING_KILLS says are done by the other cases")
    whole, cache, seconds = undisturbed(tmp_path_factory.getbasetemp())
    if args != TRAIN:
        whole, begun = tmp_path / "whole", time.monotonic()
        finish(started(go_on(args, whole), cache))
        seconds = time.monotonic() - begun
    out = tmp_path / "run"
    # The next ones find what this one has traced and compiled.
    length, moments = WARM * seconds, random.Random(f"{SEED} {case}")
    done = 0
    while done < kills:
        done += killed(started(go_on(args, out), cache), moments.uniform(0, length))
        if all((out / run / "summary.json").exists() for run in runs_of(out)) and runs_of(out):
            finish(started(go_on(args, out), cache))
            compare(out, whole)
            out = tmp_path / f"run-{done}"
    finish(started(go_on(args, out), cache))
    compare(out, whole)


def compare(out, whole):
    assert runs_of(out) == runs_of(whole) != []
    for run in runs_of(whole):
        assert_same_results(out / run, whole / run)
    assert not list(out.rglob("checkpoints/*tmp*"))
