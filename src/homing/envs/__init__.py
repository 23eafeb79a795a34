"""Goal-conditioned environments: a registry of body × task × arena, batched with auto-reset."""

from homing.envs.base import GoalEnv
from homing.envs.info import EnvInfo
from homing.envs.registry import ALIASES, env_ids, get_spec, make, register
from homing.envs.scene import EnvSpec

__all__ = ["ALIASES", "EnvInfo", "EnvSpec", "GoalEnv", "env_ids", "get_spec", "make", "register"]
