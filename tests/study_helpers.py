"""A study in seconds, on a probe, also in processes that a pool or a cluster starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from probes import walk

from homing.config import run as run_settings
from homing.studies.cluster import Task
from homing.training import build as run_build

TESTS = Path(__file__).parent

# Two programs: learning rates go together, energies do not.
TEXT = """
title = "Two energies and two learning rates"
claims = ["Learning rates matter."]

[run]
agent = "crl"
env = "walk"
preset = "quickstart"
seeds = 2
total_steps = "1920"
num_envs = 8
unroll_length = 10
batch_size = 32
updates_per_step = "1/40"
replay_size = 50
prefill_steps = 20
evaluations = 4
eval_envs = 8
representation_dim = 8
"net.width" = 16
checkpoint_minutes = 0.0

[grid]
energy = ["l2", "dot"]
critic_lr = [1e-3, 3e-3]

[figure]
kind = "curves"
metric = "eval/success_any"
panels = "energy"
lines = "critic_lr"
"""


def use_probe() -> None:
    """Every environment is the walk, from here on in this process."""
    run_settings.resolve = lambda id: id
    run_build.make = lambda id, num_envs=1, **_: walk(num_envs)


class ProbeTask(Task):
    """A job of a cluster whose environments are probes."""

    def __call__(self) -> str:
        use_probe()
        return super().__call__()

    def checkpoint(self):
        from submitit.helpers import DelayedSubmission

        super().checkpoint()
        return DelayedSubmission(ProbeTask(self.study, self.id, self.cpu))


def probe_worker(study: Path, id: str) -> list[str]:
    """What a pool starts instead of `homing study work`."""
    return [sys.executable, str(TESTS / "probe_cli.py"), "study", "work", str(study), id]


@pytest.fixture(autouse=True)
def own_ledger(tmp_path, monkeypatch):
    """Speeds that are remembered belong to one test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
