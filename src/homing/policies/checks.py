"""Checks of what a policy file says of its arrays, before anything is traced or allocated for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from homing.agents import agent_types
from homing.errors import HomingError, UnknownNameError
from homing.networks import nets_of
from homing.runs.tensors import Tensor
from homing.runs.validation import SEED

MAX_EVAL_ENVS, MAX_EPISODE_LENGTH = 2**20, 10**7  # that a policy file may ask for


def settings_type(agent: str, card: Mapping[str, Any]) -> type:
    """The type of an agent's settings; modules that a file names are never imported for it."""
    try:
        return agent_types(agent)[0]
    except UnknownNameError as error:
        modules = " ".join(f"--import {name}" for name in card.get("config", {}).get("imports", ()))
        if not modules:
            raise
        raise HomingError(
            f"{error}; if you trust the code that it was trained with, pass {modules}"
        ) from error


def seeds_of(content: Any) -> tuple[int, ...]:
    if not isinstance(content, list) or not all(SEED.holds(seed) for seed in content):
        raise HomingError("its seeds are not a list of seeds")
    if not content or len(set(content)) < len(content):
        raise HomingError("it has no seed, or one twice")
    return tuple(content)


def check_sizes(path: Path, settings: Any, spec: Any, tensors: Mapping[str, Tensor]) -> None:
    """Refuse networks that are larger than the file before they are traced, which would take forever."""
    entries = sum(math.prod(tensor.shape) for tensor in tensors.values())
    sizes = {"state_dim": spec.state_dim, "action_dim": spec.action_dim, "goal_dim": spec.goal_dim}
    for name, net in nets_of(settings).items():
        sizes[f"{name}.width"] = net.width
        sizes[f"{name}.depth"] = net.depth
        if net.residual == "none" and net.depth > len(tensors):  # every layer is traced
            raise HomingError(f"{name}.depth is {net.depth} layers, and {path} only {len(tensors)} arrays")
    for name, size in sizes.items():
        if not 0 < size <= entries:
            raise HomingError(f"{name} is {size}, and {path} has {entries} parameters")


def check_choice(choice: Any) -> None:
    limits = {"episode_length": MAX_EPISODE_LENGTH, "eval_envs": MAX_EVAL_ENVS}
    for name, largest in limits.items():
        if not 1 <= getattr(choice, name) <= largest:
            raise HomingError(f"{name} is {getattr(choice, name)}; it must lie between 1 and {largest}")
