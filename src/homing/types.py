"""The pytrees that cross module borders.

Axis letters: T time, N parallel environments, B batch, U updates, S seeds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from flax import struct

Array = jax.Array
Key = jax.Array
Metrics = dict[str, Array]


def is_static(setting: Any, value: float) -> bool:
    """Whether a setting is this plain number; in a population it is traced, and no branch may depend on it."""
    return isinstance(setting, (int, float)) and setting == value


class Obs(struct.PyTreeNode):
    """What a policy observes; state and goal stay apart, a network joins them.

    state: [..., state_dim]
    goal:  [..., goal_dim]
    """

    state: Array
    goal: Array


class EnvState(struct.PyTreeNode):
    """A batch of N parallel environments.

    `obs` is what the next action responds to. After an episode has ended it is already the first observation of
    the next episode; `next_obs` and `achieved_goal` always describe where the last action led.

    Shapes: every field has the environment axis [N, ...] first, except `pool` and `key`, of which a batch has
    one, and `clock`, which all batches that step together share (see `homing.envs.base.GoalEnv.seed_axes`).
    """

    physics: Any
    obs: Obs
    next_obs: Obs
    achieved_goal: Array  # [N, goal_dim]
    reward: Array  # [N] float32
    terminated: Array  # [N] bool: the episode ended by its own rules (a fall)
    truncated: Array  # [N] bool: the time limit ended it
    metrics: Metrics  # each [N] float32
    steps: Array  # [N] int32: steps taken in the current episode
    pool: Array  # [P, D]: the reset pool, packed; see homing.envs.reset_pool
    used: Array  # [N] int32: entries of the reset pool taken since it was filled
    key: Key
    clock: Array  # [] int32: steps since reset, the same in every batch

    @property
    def ended(self) -> Array:
        """[N] bool: the last step ended an episode, for either reason."""
        return self.terminated | self.truncated


class Segment(struct.PyTreeNode):
    """T consecutive transitions of N environments: from an unroll, into the replay buffer.

    `achieved_goal` is what the action achieved, also where the next transition belongs to another episode.
    """

    obs: Obs  # [T, N, ...]
    action: Array  # [T, N, action_dim]
    achieved_goal: Array  # [T, N, goal_dim]
    reward: Array  # [T, N]
    discount: Array  # [T, N]  0 where the episode terminated
    last: Array  # [T, N]  bool: the next transition belongs to another episode


class UpdateContext(NamedTuple):
    """Progress of the run at an update; the same for all seeds."""

    updates: Array | int = 0
    """[] int32: updates made before this one."""
    lr_scale: Array | float = 1.0
    """[] float32: factor on all learning rates (`--lr-final-scale`)."""


class TransitionIndex(struct.PyTreeNode):
    """Where sampled transitions lie in the replay buffer, all [...] int32."""

    position: Array  # in time order: 0 is the oldest stored transition of its environment
    env: Array
    remaining: Array  # transitions of the same episode from this one to the last stored, both counted; ≥ 1

    @property
    def last(self) -> Array:
        """Position of the last stored transition of the same episode."""
        return self.position + self.remaining - 1


class Relabel(NamedTuple):
    """How the goals of a batch are drawn."""

    sampler: str = "future"
    """One of homing.data.relabel.GOAL_SAMPLERS."""
    ratio: float = 1.0
    """Fraction of transitions that get the sampler's goal; the others keep the commanded one."""
    random_ratio: float = 0.0
    """Fraction of transitions that then take the goal of another transition of the batch."""
    gamma: float = 0.99
    """Discount of the sampler `future`: goals lie k steps ahead with probability ∝ γ^k."""


class FirstReach(NamedTuple):
    """When episodes first reach their goals, counted in steps from the state of a transition, all [B]."""

    steps: Array  # int32: first step within the radius, 0 if already there; where not reached, steps observed
    reached: Array  # bool
    terminated: Array  # bool: not reached, and the episode terminated (fell): it never will be


class Batch(struct.PyTreeNode):
    """Relabelled transitions: the batch of agents that learn from (s, a, r, s′, g).

    With action chunks of k steps, `action` is [B, k · action_dim], `next_obs` follows the whole chunk, `reward`
    is Σ γ^i r_i over it and `discount` is γ^(k−1), or 0 where the episode terminated in it.

    `weight` is 0 where a target would need `next_obs` and it is not stored: the time limit cut the episode, or
    the transition is the newest. A terminated transition keeps weight 1: its discount hides `next_obs`.
    """

    obs: Obs  # [B, ...]  with the relabelled goal
    action: Array
    next_obs: Obs  # the same goal
    reward: Array  # [B] of this action for this goal
    discount: Array  # [B]
    weight: Array  # [B]
    steps_to_termination: Array  # [B] float32, this step included; infinite where no termination is stored


class Rollout(struct.PyTreeNode):
    """T transitions of N environments that are learned from once: from an unroll, into an on-policy agent.

    Unlike a Segment it keeps every `next_obs`, also where the time limit cut the episode.
    """

    obs: Obs  # [T, N, ...]
    choice: Array  # [T, N, ...]  the policy's sample; the action is a function of it
    next_obs: Obs  # [T, N, ...]  of the same episode
    achieved_goal: Array  # [T, N, goal_dim]
    reward: Array  # [T, N]
    discount: Array  # [T, N]  0 where the episode terminated
    last: Array  # [T, N]  bool: the next transition belongs to another episode


def bytes_of(tree: Any) -> int:
    """Bytes of all leaves, arrays or their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
