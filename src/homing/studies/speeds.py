"""Speeds that were measured on this machine, from which the time of the next study is told."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median_high
from typing import Any

from homing.compile.cache import cache_folder
from homing.config.run import RunConfig, to_json
from homing.studies.folder import ProgramFolder, StudyFolder
from homing.training.population import shape_of

FIELDS = ("speed/env_steps_per_second", "time/evaluation")


def ledger() -> Path:
    return cache_folder().parent / "speeds.jsonl"


def shape_id(config: RunConfig) -> str:
    """The same for runs whose programs take the same time a step: lengths and values are left out."""
    told = to_json(shape_of(config))
    for name in ("total_steps", "evaluations"):
        told["train"].pop(name)
    for name in ("save", "preset", "seeds"):
        told.pop(name)
    return _digest(told)


def likeness(config: RunConfig) -> str:
    """The same for runs that do as much work a step, though perhaps not the same work: another objective."""
    train = {k: v for k, v in to_json(config)["train"].items() if k not in ("total_steps", "evaluations")}
    nets = {k: v for k, v in to_json(config)["settings"].items() if isinstance(v, dict)}
    told = [config.env, config.agent, config.physics, config.episode_length, train, nets]
    return _digest(told)


def note(study: StudyFolder, program: ProgramFolder) -> None:
    """Remember how fast a finished program was; forgetting it costs an estimate, not a run."""
    configs = [study.config(name) for name in program.runs]
    rows = [row for name in program.runs for row in study.run(name).rows()]
    sessions = study.run(program.runs[0]).sessions()
    if not rows or not sessions:
        return
    # The first evaluation's time contains what was compiled late.
    add(
        device=sessions[-1]["device"],
        config=configs[0],
        seeds=sum(len(config.seeds) for config in configs),
        steps_per_second=median_high([row[FIELDS[0]] for row in rows]),
        evaluation_seconds=median_high([row[FIELDS[1]] for row in rows]),
    )


def add(
    device: str, config: RunConfig, seeds: int, steps_per_second: float, evaluation_seconds: float
) -> None:
    entry = {
        "device": device,
        "shape": shape_id(config),
        "like": likeness(config),
        "env": config.env,
        "agent": config.agent,
        "seeds": seeds,
        "steps_per_second": steps_per_second,
        "evaluation_seconds": evaluation_seconds,
    }
    with contextlib.suppress(OSError):
        ledger().parent.mkdir(parents=True, exist_ok=True)
        with open(ledger(), "a") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def known(device: str) -> list[dict[str, Any]]:
    """What was measured on such a device, oldest first."""
    try:
        lines = ledger().read_text().splitlines()
    except OSError:
        return []
    entries = []
    for line in lines:
        with contextlib.suppress(ValueError):
            entries.append(json.loads(line))
    return [entry for entry in entries if entry.get("device") == device]


def nearest(
    entries: Sequence[dict[str, Any]], config: RunConfig, seeds: int
) -> tuple[dict[str, Any], str] | None:
    """The measurement most like a program, and how like it is: measured, or estimated from another."""
    for kind, field, wanted in (
        ("measured", "shape", shape_id(config)),
        ("estimated", "like", likeness(config)),
    ):
        fitting = [entry for entry in entries if entry.get(field) == wanted]
        if fitting:
            # Of equally near ones the latest.
            return min(reversed(fitting), key=lambda entry: abs(entry["seeds"] - seeds)), kind
    return None


def _digest(told: Any) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
