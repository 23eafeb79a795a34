"""Environments that keep one goal in an episode, as the interfaces of other libraries expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from homing.envs import GoalEnv, make
from homing.errors import ConfigError


def make_with_fixed_goals(
    env_id: str,
    num_envs: int,
    episode_length: int,
    physics: str | None,
    reward: str,
    env_options: Mapping[str, Any] | None,
) -> GoalEnv:
    """`homing.make` for an adapter; new goals inside of an episode are refused.

    A step there returns one desired goal, which its reward has to be for and which the next action responds to. Where
    the goal changes, these are two.
    """
    made = make(env_id, num_envs, episode_length, physics, reward, env_options)
    if made.scene.spec.goals.renew is not None:
        raise ConfigError(
            "an adapter keeps one goal in an episode: leave out goals.renew, or use a batch of homing.make, "
            "which has new goals inside of an episode"
        )
    return made
