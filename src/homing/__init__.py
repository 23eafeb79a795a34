"""Homing: goal-conditioned reinforcement learning in JAX."""

from homing.envs import env_ids, make, register
from homing.version import __version__

__all__ = ["__version__", "env_ids", "make", "register"]
