"""Environments: a table of body × task × arena."""

from homing.envs.base import EnvInfo, GoalEnv
from homing.envs.registry import ALIASES, env_ids, get_spec, make, register
from homing.envs.scene import EnvSpec

__all__ = ["ALIASES", "EnvInfo", "EnvSpec", "GoalEnv", "env_ids", "get_spec", "make", "register"]
