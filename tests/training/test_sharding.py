"""One run over several devices: the same curves as on one, checkpoints that go on with another number."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
from study_helpers import TESTS

from homing.errors import ConfigError
from homing.runs.folder import RunFolder
from homing.training import sharding

# Four virtual devices in one process: seeds and environments, environments alone, each against one device.
SCRIPT = """
import json, jax
jax.config.update("jax_num_cpu_devices", 4)
from study_helpers import use_probe
use_probe()
from run_helpers import probe_config
import numpy as np
from homing.training.build import build
from homing.training.sharding import placement
from homing.training.seeds import programs, seed_keys

def curves(seeds, count):
    parts = build(probe_config(seeds=seeds))
    spread = placement(count, parts.plan)
    made = programs(parts.loop, parts.eval_env, None, spread)
    keys = seed_keys(seeds)
    train = made.init(keys if spread is None else spread.put(keys))
    told = []
    for epoch in range(parts.plan.epochs):
        start, stop = parts.plan.epoch_bounds(epoch)
        train, metrics = made.epoch(train, start, stop)
        metrics |= made.evaluate(train, stop)
        told.append({name: np.asarray(value).tolist() for name, value in metrics.items()})
    where = sorted({str(d) for leaf in jax.tree.leaves(train.learner) for d in leaf.devices()})
    return {"curves": told, "mesh": spread and list(spread.mesh.devices.shape), "devices": len(where),
            "ring": str(train.replay.state.sharding.spec) if spread else ""}

print(json.dumps([curves((3, 4), None), curves((3, 4), 4), curves((3,), 4)]))
"""


@pytest.fixture
def surroundings(tmp_path):
    return {
        **os.environ,
        "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}",
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(TESTS.parent / ".cache" / "jax"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


@pytest.mark.slow
def test_four_devices_learn_what_one_does(surroundings):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=surroundings, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    one, both, environments = json.loads(done.stdout.splitlines()[-1])
    assert (one["mesh"], both["mesh"], environments["mesh"]) == (None, [2, 2], [1, 4])
    assert (one["devices"], both["devices"], environments["devices"]) == (1, 4, 4)
    assert "seeds" in both["ring"] and "envs" in both["ring"]
    for told in (both, environments):
        for ours, theirs in zip(told["curves"], one["curves"], strict=True):
            for name in theirs:
                np.testing.assert_allclose(
                    ours[name], theirs[name][: len(ours[name])], rtol=1e-3, atol=1e-4, err_msg=name
                )


class FewDevices:
    collects = True

    def __init__(self, seeds, num_envs):
        self.seeds = seeds
        self.config = type("Config", (), {"num_envs": num_envs, "eval_envs": 8, "exact_seeds": False})


def test_what_does_not_divide_is_told_with_what_would(monkeypatch):
    monkeypatch.setattr(sharding.jax, "devices", lambda: list("abcd"))
    with pytest.raises(ConfigError, match="JAX sees 4"):
        sharding.placement(8, FewDevices(8, 8))
    with pytest.raises(ConfigError, match="num_envs 12"):
        sharding.placement(4, FewDevices(1, 11))
    assert sharding.placement(None, FewDevices(1, 8)) is None
    assert sharding.placement(1, FewDevices(1, 8)) is None
    with pytest.raises(ConfigError, match="a number or all"):
        sharding.parse_devices("two")
    assert (sharding.parse_devices("all"), sharding.parse_devices("3"), sharding.parse_devices(None)) == (
        0,
        3,
        None,
    )


FLAGS = {
    "preset": "quickstart",
    "steps": "1920",
    "num-envs": "8",
    "unroll-length": "10",
    "batch-size": "32",
    "updates-per-step": "1/30",
    "replay-size": "50",
    "prefill-steps": "20",
    "evaluations": "4",
    "eval-envs": "8",
    "seed-list": "3,4",
    "critic-net.width": "16",
    "actor-net.width": "16",
    "representation-dim": "8",
    "tensorboard": "off",
    "checkpoint-minutes": "0",
    "keep-checkpoints": "4",
}
ARGUMENTS = ["crl", "walk", *(word for name, value in FLAGS.items() for word in (f"--{name}", value))]


def command(*args):
    return [sys.executable, str(TESTS / "probe_cli.py"), *args]


def numbers(path):
    rows = RunFolder(path).rows()
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))} for row in rows]


def assert_alike(path, other):
    ours, theirs = numbers(path), numbers(other)
    assert len(ours) == len(theirs) == 10
    for a, b in zip(ours, theirs, strict=True):
        assert jax.tree.structure(a) == jax.tree.structure(b)  # rates of goals by distance are nested
        for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4, err_msg=jax.tree_util.keystr(path))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("devices") / "alone"
    env = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}", "JAX_PLATFORMS": "cpu"}
    subprocess.run(command("train", *ARGUMENTS, "--out", str(path)), env=env, check=True, timeout=600)
    return path


@pytest.mark.slow
def test_a_run_on_four_devices_goes_on_with_two_or_one(tmp_path, alone, surroundings):
    run = lambda *args: subprocess.run(command(*args), env=surroundings, check=False, timeout=600)
    path = str(tmp_path / "run")
    surroundings["FAULT"] = "rows:3"
    assert run("train", *ARGUMENTS, "--out", path, "--devices", "4").returncode < 0
    surroundings["FAULT"] = "rows:3"
    assert run("resume", path, "--devices", "2").returncode < 0
    del surroundings["FAULT"]
    assert run("resume", path).returncode == 0
    assert [session["devices"] for session in RunFolder(path).sessions()] == [4, 2, 1]
    assert_alike(path, alone)


@pytest.mark.slow
def test_two_processes_share_a_run(tmp_path, alone, surroundings):
    """Two devices each, on loopback; then one process alone goes on with it to the end."""
    path = str(tmp_path / "run")
    shared = {**surroundings, "JAX_NUM_PROCESSES": "2", "JAX_NUM_CPU_DEVICES": "2"}
    shared["JAX_COORDINATOR_ADDRESS"] = f"127.0.0.1:{20_000 + os.getpid() % 20_000}"
    both = [
        subprocess.Popen(
            command("train", *ARGUMENTS, "--out", path, "--multi-host"),
            env={**shared, "JAX_PROCESS_ID": str(index)},
        )
        for index in range(2)
    ]
    assert [process.wait(timeout=900) for process in both] == [0, 0]
    (session,) = RunFolder(path).sessions()
    assert session["devices"] == 4
    assert_alike(path, alone)


@pytest.mark.slow
def test_a_run_of_several_processes_needs_a_folder_for_all(surroundings):
    done = subprocess.run(
        command("train", *ARGUMENTS, "--multi-host"),
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2 and "one --out for all" in done.stderr
