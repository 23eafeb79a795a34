"""The pytrees that cross module borders.

Axis letters: T time, N environments (lanes), B batch rows, U updates, S seeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from flax import struct

Array = jax.Array
Key = jax.Array
Metrics = dict[str, Array]


def is_just(setting: Any, value: float) -> bool:
    """Whether a setting is this number; in a population it is traced, and this one value among others."""
    return isinstance(setting, (int, float)) and setting == value


class Obs(struct.PyTreeNode):
    """What a policy sees; state and goal stay apart, a network joins them.

    state: [..., state_dim]
    goal:  [..., goal_dim]
    """

    state: Array
    goal: Array


class EnvState(struct.PyTreeNode):
    """A batch of running environments.

    `obs` is what the next action answers to. Where an episode has just ended it is already the first
    observation of the new episode; `next_obs` and `achieved_goal` always tell where the last action led.

    Shapes: every field has the lane axis [N, ...] first, except `pool` and `key`, which a batch has once,
    and `clock`, which all batches that step together share (see `homing.envs.base.seed_axes`).
    """

    physics: Any
    obs: Obs
    next_obs: Obs
    achieved_goal: Array  # [N, goal_dim]
    reward: Array  # [N] float32
    terminated: Array  # [N] bool: the episode ended by its own rules (a fall)
    truncated: Array  # [N] bool: the time limit ended it
    metrics: Metrics  # each [N] float32
    steps: Array  # [N] int32: steps taken in the running episode
    pool: Array  # [P, D]: ready starts, packed; see homing.envs.reset_pool
    used: Array  # [N] int32: starts taken since the pool was filled
    key: Key
    clock: Array  # [] int32: steps since reset, the same in every batch

    @property
    def ended(self) -> Array:
        """[N] bool: the last step ended an episode, for either reason."""
        return self.terminated | self.truncated


class Segment(struct.PyTreeNode):
    """A stretch of experience: from an unroll, into replay.

    `reached` is the goal achieved by the action, also where the next row belongs to another episode.
    """

    obs: Obs  # [T, N, ...]  what the action answered to
    action: Array  # [T, N, action_dim]
    reached: Array  # [T, N, goal_dim]
    reward: Array  # [T, N]
    discount: Array  # [T, N]  0 where the episode terminated
    last: Array  # [T, N]  bool: the next row is another episode


class Moment(NamedTuple):
    """When an update is made; the same for all seeds."""

    updates: Array | int = 0
    """[] int32: updates made before."""
    pace: Array | float = 1.0
    """[] float32: what learning rates are to be multiplied by now."""


class Batch(struct.PyTreeNode):
    """Relabelled rows: from relabel, into an agent's update.

    `weight` is 0 where a target would need `next_obs` and the row has none of its own episode (the time limit
    cut it off, or it is the newest row). A terminated row keeps weight 1: its discount hides `next_obs`.
    `left` counts rows to the end of an episode that terminates, the row itself included; where it was cut off
    or still runs, it is infinite.
    """

    obs: Obs  # [B, ...]  with the relabelled goal
    action: Array
    next_obs: Obs  # the same goal
    reward: Array  # of reaching, with this action, this goal
    discount: Array
    weight: Array  # [B]
    left: Array  # [B]


class Rollout(struct.PyTreeNode):
    """A stretch of experience that is learned from once: from an unroll, into an on-policy agent.

    Unlike a Segment it keeps where every action led, also where the time limit cut the episode off.
    """

    obs: Obs  # [T, N, ...]  what the action answered to
    choice: Array  # [T, N, ...]  what the policy drew; the action follows from it
    next_obs: Obs  # [T, N, ...]  of the same episode
    reached: Array  # [T, N, goal_dim]
    reward: Array  # [T, N]
    discount: Array  # [T, N]  0 where the episode terminated
    last: Array  # [T, N]  bool: the next row is another episode


def bytes_of(tree: Any) -> int:
    """Of all leaves together, arrays or their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
