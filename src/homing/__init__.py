"""Homing: goal-conditioned reinforcement learning in JAX."""

from homing.api import Policy, Trained, evaluate, export, load, resume, train
from homing.envs import env_ids, make, register
from homing.version import __version__

__all__ = [
    "Policy",
    "Trained",
    "__version__",
    "env_ids",
    "evaluate",
    "export",
    "load",
    "make",
    "register",
    "resume",
    "train",
]
