"""Small runs on a probe, and what to compare of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from probes import Probe, walk
from safetensors.numpy import load_file

from homing.compile.jitted import Programs
from homing.compile.programs import Compiled
from homing.config import run as run_settings
from homing.config.offpolicy import TrainConfig
from homing.config.presets import preset
from homing.config.run import RunConfig, SaveConfig
from homing.networks import NetConfig
from homing.runs.folder import RunFolder
from homing.runs.progress import Lines
from homing.training import build as run_build
from homing.training import run as run_module
from homing.training import runner
from homing.training.seeds import programs

NET = NetConfig(width=16)
TRAIN = TrainConfig(
    total_steps=1_920,
    num_envs=8,
    unroll_length=10,
    batch_size=32,
    updates_per_step=1 / 30,
    replay_size=50,
    prefill_steps=20,
    evaluations=4,
    eval_envs=8,
)
SAVE = SaveConfig(checkpoint_minutes=0, tensorboard="off")


def probe_config(**changes: Any) -> RunConfig:
    """A run of two seeds in 24 iterations and four evaluations."""
    agent = preset("crl", "quickstart").agent
    agent = dataclasses.replace(agent, critic_net=NET, actor_net=NET, representation_dim=8)
    config = RunConfig(agent="crl", env="walk", train=TRAIN, settings=agent, seeds=(3, 4), save=SAVE)
    return dataclasses.replace(config, **changes)


def patch_envs(patch: pytest.MonkeyPatch) -> None:
    """Every environment is the walk."""
    patch.setattr(run_settings, "resolve", lambda id: id)
    patch.setattr(run_build, "make", lambda id, num_envs=1, **_: walk(num_envs))


@pytest.fixture
def probe_envs(monkeypatch):
    """Every environment is the walk."""
    patch_envs(monkeypatch)


@functools.cache
def _programs_of(kind: Any, env: Probe, eval_env: Probe, agent: type, settings: Any, plan: Any) -> Programs:
    """The programs that follow from these, the same objects at every call: traced once in this process."""
    return programs(kind(env, agent(settings, env.spec), plan), eval_env)


def patch_programs(patch: pytest.MonkeyPatch) -> None:
    """Runs with the same settings share their programs; for tests of what happens around these."""

    def shared(loop, eval_env, variants=None, placement=None):
        if variants or placement or getattr(loop, "data", None) is not None:
            return programs(loop, eval_env, variants, placement)
        agent = loop.agent
        return _programs_of(type(loop), loop.env, eval_env, type(agent), agent.config, loop.plan)

    patch.setattr(run_module, "programs", shared)


@pytest.fixture
def shared_programs(monkeypatch):
    """Runs with the same settings share their programs."""
    patch_programs(monkeypatch)


@contextlib.contextmanager
def on_probes():
    """Both, for fixtures that outlive a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch_envs(patch)
        patch_programs(patch)
        yield


@pytest.fixture
def nothing_compiled(monkeypatch):
    """Programs of runs are neither traced nor compiled; for what is refused before the first is called."""
    monkeypatch.setattr(Compiled, "_lower", lambda *_: lambda *_: lambda: None)


@pytest.fixture(autouse=True, scope="module")
def no_key_check():
    """The check takes a vmapped scan over split keys for reuse; off in all threads, for some compile."""
    jax.config.update("jax_debug_key_reuse", False)
    yield
    jax.config.update("jax_debug_key_reuse", True)


class Watch(Lines):
    """A display that remembers, and calls `hook(iteration)` after each piece."""

    def __init__(self, hook=None):
        super().__init__()
        self.said, self.warned, self.pieces = [], [], []
        self._hook = hook

    def say(self, text):
        self.said.append(text)

    def warn(self, text):
        self.warned.append(text)

    def advanced(self, iteration):
        super().advanced(iteration)
        self.pieces.append(iteration)
        if self._hook is not None:
            self._hook(iteration)


def run(path: Path, hook=None, **changes: Any) -> tuple[runner.Outcome, Watch]:
    show = Watch(hook)
    return runner.start(probe_config(**changes), path, show), show


def results(path: Path) -> tuple[list[dict], dict[str, np.ndarray]]:
    """Rows without what a clock measured, and the policies."""
    rows = [
        {name: v for name, v in row.items() if not name.startswith(("time/", "speed/"))}
        for row in RunFolder(path).rows()
    ]
    return rows, load_file(Path(path) / "policies" / "last.safetensors")


def assert_same_results(path: Path, other: Path) -> None:
    (rows, policy), (other_rows, other_policy) = results(path), results(other)
    assert rows == other_rows
    assert policy.keys() == other_policy.keys()
    for name in policy:
        np.testing.assert_array_equal(policy[name], other_policy[name])
