"""Rough durations on an NVIDIA H200, from the table of speeds that ships with the package (tools/make_speeds.py)."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from homing.config.plan import Schedule
from homing.config.run import RunConfig
from homing.envs.registry import get_spec, is_env

Row = dict[str, Any]


@functools.cache
def table() -> dict[str, Any]:
    """`device`, `files` (where the measurements are) and `rows`."""
    return json.loads(resources.files("homing.studies").joinpath("reference_speeds.json").read_text())


def seconds(config: RunConfig, plan: Schedule, seeds: int) -> float | None:
    """Time of training `seeds` seeds as one program, without compilation and evaluations; None if unknown.

    Steps cost what they do in the environment, or in one with the same body and physics; updates cost what they
    do for the agent, in proportion to batch size and number of weights where those exceed the measured ones.
    """
    rows = table()["rows"]
    is_off_policy = hasattr(config.train, "batch_size")
    own = [row for row in rows if row["agent"] == config.agent]
    stepping = _like(rows if is_off_policy else own, config)
    stepping = [row for row in stepping if is_off_policy == bool(row["batch_size"])]
    if not own or not stepping:
        return None
    total = plan.total_steps * _at(stepping, "seconds_per_step", seeds)
    if is_off_policy:
        learning = [row for row in own if row["env"] == stepping[0]["env"]] or _of_one_env(own)
        total += plan.total_updates * _at(learning, "seconds_per_update", seeds) * _growth(plan, learning[0])
    return total


def _like(rows: Sequence[Row], config: RunConfig) -> list[Row]:
    """Rows of the environment; else of the first with the same body and physics, best with the same kind of arena."""
    if not is_env(config.env):
        return []
    spec = get_spec(config.env)
    physics = config.physics or spec.pipelines()[0]
    rows = [row for row in rows if row["physics"] == physics]
    if same := [row for row in rows if row["env"] == config.env]:
        return same
    kin = [row for row in rows if type(get_spec(row["env"]).body) is type(spec.body)]
    alike = [row for row in kin if type(get_spec(row["env"]).arena) is type(spec.arena)]
    return _of_one_env(alike or kin)


def _of_one_env(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["env"] == rows[0]["env"]]


def _growth(plan: Schedule, row: Row) -> float:
    size = plan.sizes.learner_bytes / row["learner_bytes"] * plan.config.batch_size / row["batch_size"]
    return max(size, 1.0)


def _at(rows: Sequence[Row], name: str, seeds: int) -> float:
    """The value for a number of seeds: between measurements on a line, beyond the last one in proportion."""
    known = sorted({row["seeds"]: row[name] for row in rows}.items())
    for (a, low), (b, high) in itertools.pairwise(known):
        if a <= seeds <= b:
            return low + (high - low) * (seeds - a) / (b - a)
    count, value = known[-1] if seeds > known[-1][0] else known[0]
    return value * max(seeds / count, 1.0)
