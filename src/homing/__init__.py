"""Homing: goal-conditioned reinforcement learning in JAX.

What it offers is imported when it is first used: a process that only needs a part starts sooner.
"""

import importlib
from typing import TYPE_CHECKING, Any

from homing.version import __version__

if TYPE_CHECKING:
    from homing.api import Policy, Trained, evaluate, export, load, resume, train
    from homing.envs import env_ids, make, register
    from homing.policies.rollouts import export_data

_HOMES: dict[str, str] = {
    **dict.fromkeys(("Policy", "Trained", "evaluate", "export", "load", "resume", "train"), "homing.api"),
    **dict.fromkeys(("env_ids", "make", "register"), "homing.envs"),
    "export_data": "homing.policies.rollouts",
}

__all__ = [
    "Policy",
    "Trained",
    "__version__",
    "env_ids",
    "evaluate",
    "export",
    "export_data",
    "load",
    "make",
    "register",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'homing' has no attribute {name!r}")
    globals()[name] = value = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
