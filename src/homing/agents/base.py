"""What a training loop needs of an agent."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from homing.types import Array, Batch, Key, Metrics, Moment, Obs, Rollout

L = TypeVar("L")


class SpaceSpec(Protocol):
    """The part of an environment's description that networks are built from."""

    @property
    def state_dim(self) -> int: ...
    @property
    def action_dim(self) -> int: ...
    @property
    def goal_dim(self) -> int: ...


class OffPolicyAgent(Protocol[L]):
    """A static object; all that it learns is in its learner, a pytree of arrays.

    One that also has `goal_others` lets that share of the rows take another row's goal.
    """

    @property
    def goal_sampler(self) -> str:
        """Which of `homing.data.relabel.GOAL_SAMPLERS` its batches are relabelled by."""
        ...

    @property
    def goal_share(self) -> float:
        """Share of the rows whose goal is the sampler's; the others keep the goal that was commanded."""
        ...

    @property
    def gamma(self) -> float:
        """Discount, for samplers of future goals."""
        ...

    def init(self, key: Key) -> L:
        """A learner that has seen nothing."""
        ...

    def act(self, learner: L, obs: Obs, key: Key, *, explore: bool) -> Array:
        """Actions in [−1, 1] for observations [...]; without `explore` the key has no influence."""
        ...

    def update(self, learner: L, batch: Batch, key: Any, moment: Moment) -> tuple[L, Metrics]:
        """One gradient step; `moment` says how many were made before, and the pace of learning rates.

        An agent that also has `draw(key, rows)` gets its result in place of a key: the loop then draws the
        random numbers of many updates at once, which is quicker.
        """
        ...


class OnPolicyAgent(Protocol[L]):
    """An agent that learns only from what its present policy did."""

    def init(self, key: Key) -> L:
        """A learner that has seen nothing."""
        ...

    def act(self, learner: L, obs: Obs, key: Key, *, explore: bool) -> Array:
        """Actions in [−1, 1] for observations [...]; without `explore` the key has no influence."""
        ...

    def choose(self, learner: L, obs: Obs, key: Key) -> Array:
        """What the exploring policy draws, and later needs to know of its choice."""
        ...

    def action_of(self, choice: Array) -> Array:
        """The action in [−1, 1] that follows from a choice."""
        ...

    def updates_per_rollout(self, num_envs: int) -> int:
        """Gradient steps that `learn` makes; a ConfigError where so many lanes cannot be divided."""
        ...

    def learn(self, learner: L, rollout: Rollout, key: Key) -> tuple[L, Metrics]:
        """All updates of one iteration."""
        ...
