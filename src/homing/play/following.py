"""Newer policies of a run that is being trained, for the page that shows it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax

from homing.policies.card import run_card
from homing.policies.store import Policies, Which
from homing.runs.folder import RunFolder
from homing.runs.policy_files import finite_seeds, load_policy, policy_path

Stamp = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Newer:
    """A policy that a run has written since."""

    learner: Any
    policies: Policies


class Follower:
    """Watches the policy file of one seed of a run; `step` is the environment step of what was read last."""

    def __init__(self, run: Path, which: Which, policies: Policies, seed: int):
        self._run, self._which, self._seed = run, which, seed
        self._policies = policies
        self._stamp = _stamp(policy_path(run, which))

    @property
    def step(self) -> int | None:
        """Environment step of the policy that was read last; None before the run's first evaluation."""
        return self._policies.card.get("step")

    @property
    def has_newer(self) -> bool:
        """Whether the file was written again; looks at its entry in the folder alone."""
        stamp = _stamp(policy_path(self._run, self._which))
        return stamp is not None and stamp != self._stamp

    def read(self) -> Newer | None:
        """The newer policy, ready to act with the same compiled program; None if there is none or it diverged."""
        file = policy_path(self._run, self._which)
        stamp = _stamp(file)
        if stamp is None or stamp == self._stamp:
            return None
        self._stamp = stamp
        own = self._policies
        shapes = jax.eval_shape(own.agent.init, jax.random.key(0))
        learner, iteration = load_policy(file, shapes, len(own.seeds))
        place = own.place(self._seed)
        if not finite_seeds(learner)[place]:
            return None
        folder = RunFolder.existing(self._run)
        card = run_card(folder, folder.config(), self._which, iteration)
        self._policies = dataclasses.replace(own, learner=learner, iteration=iteration, card=card)
        return Newer(self._policies.one(self._seed), self._policies)


def follower(source: str, which: Which, policies: Policies | None, seed: int | None) -> Follower | None:
    """A follower of a run's folder; None for policy files, shipped policies and environments."""
    if policies is None or seed is None or not Path(source).is_dir():
        return None
    return Follower(Path(source), which, policies, seed)


def _stamp(path: Path) -> Stamp | None:
    """What changes when a file is replaced by another."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
