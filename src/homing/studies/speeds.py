"""Record of measured speeds on this machine, used to estimate the duration of studies."""

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
    """The file of records."""
    return cache_folder().parent / "speeds.jsonl"


def shape_id(config: RunConfig) -> str:
    """Identifier of runs whose programs have equal step times; ignores lengths and dynamic values."""
    fields = to_json(shape_of(config))
    for name in ("total_steps", "evaluations"):
        fields["train"].pop(name)
    for name in ("save", "preset", "seeds"):
        fields.pop(name)
    return _digest(fields)


def similarity_id(config: RunConfig) -> str:
    """Identifier of runs with similar work per step, for instance with different objectives."""
    train = {k: v for k, v in to_json(config)["train"].items() if k not in ("total_steps", "evaluations")}
    nets = {k: v for k, v in to_json(config)["settings"].items() if isinstance(v, dict)}
    fields = [config.env, config.agent, config.physics, config.episode_length, train, nets]
    return _digest(fields)


def note(study: StudyFolder, program: ProgramFolder) -> None:
    """Record the speed of a finished program; failures to write are ignored."""
    configs = [study.config(name) for name in program.runs]
    rows = [row for name in program.runs for row in study.run(name).rows()]
    sessions = study.run(program.runs[0]).sessions()
    rows = [row for row in rows if all(name in row for name in FIELDS)]  # there is no speed at step 0
    if not rows or not sessions:
        return
    # Medians, since the first evaluation includes late compilation.
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
    """Append a record."""
    entry = {
        "device": device,
        "shape": shape_id(config),
        "like": similarity_id(config),
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
    """Records of a device, oldest first."""
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
    """The record closest to a program, and its kind: measured (same shapes) or estimated (similar)."""
    for kind, field, wanted in (
        ("measured", "shape", shape_id(config)),
        ("estimated", "like", similarity_id(config)),
    ):
        fitting = [entry for entry in entries if entry.get(field) == wanted]
        if fitting:
            # The latest of equally close ones.
            return min(reversed(fitting), key=lambda entry: abs(entry["seeds"] - seeds)), kind
    return None


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
