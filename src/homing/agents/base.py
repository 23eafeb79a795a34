"""What a training loop knows of an agent: one base class for off-policy agents, one for on-policy agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from homing.types import (
    Array,
    Batch,
    FirstReach,
    Key,
    Metrics,
    Obs,
    Relabel,
    Rollout,
    TransitionIndex,
    UpdateContext,
)

L = TypeVar("L")  # the learner: a pytree of arrays
B = TypeVar("B")  # the batch: a pytree of arrays [B, ...]


class SpaceSpec(Protocol):
    """The part of an environment's description that networks are built from."""

    @property
    def state_dim(self) -> int: ...
    @property
    def action_dim(self) -> int: ...
    @property
    def goal_dim(self) -> int: ...
    @property
    def threshold(self) -> float: ...


class ReplayView(Protocol):
    """What an agent may read of replay; `homing.data.view` implements it. All results are [B, ...]."""

    def goals(self, relabel: Relabel, index: TransitionIndex, key: Key) -> Array:
        """Goals drawn as `relabel` says, commanded ones mixed in."""
        ...

    def sampled_goals(self, sampler: str, index: TransitionIndex, key: Key, gamma: float = 0.99) -> Array:
        """Goals by one law: future, uniform_future, episode, final, random, current or commanded."""
        ...

    def mixed_goals(
        self,
        ratios: Mapping[str, float],
        rest: str,
        index: TransitionIndex,
        key: Key,
        gamma: float = 0.99,
        path: Sequence[int] = (0,),
    ) -> Array:
        """Goals by several laws, each for its fraction of the batch, and by `rest` for what they leave.

        With a `path` of several steps sequences [B, len(path), ...] of what is achieved at these steps.
        """
        ...

    def waypoints(
        self, index: TransitionIndex, key: Key, gamma: float, radius: float
    ) -> tuple[Array, Array, Array]:
        """A goal of the own future, one on the way there, and whether there is such a way, of more than `radius`."""
        ...

    def states(self, index: TransitionIndex, offset: Array | int = 0) -> Array:
        """States `offset` steps later in the same episode; past its end, the last stored."""
        ...

    def achieved_now(self, index: TransitionIndex) -> Array:
        """Achieved goals of the states themselves."""
        ...

    def actions(self, index: TransitionIndex, count: int = 1) -> Array:
        """`count` consecutive actions, side by side."""
        ...

    def whole(self, index: TransitionIndex, count: int) -> Array:
        """bool: so many transitions of the episode are stored from here on."""
        ...

    def with_whole_chunks(self, index: TransitionIndex, count: int) -> TransitionIndex:
        """The transitions, those near the end of their episode moved back until it has `count` of them left."""
        ...

    def terminates(self, index: TransitionIndex) -> Array:
        """bool: the stored episode ends by termination (a fall)."""
        ...

    def steps_to_termination(self, index: TransitionIndex) -> Array:
        """Steps to the episode's termination, this one included; infinite where none is stored."""
        ...

    def goal_distances(self, index: TransitionIndex, goal: Array, horizon: int) -> Array:
        """[B, horizon + 1] distances to the goal, 0, 1, … steps ahead; infinite past what is stored."""
        ...

    def nearness(self, index: TransitionIndex, goal: Array, radii: Sequence[float], horizon: int) -> Array:
        """[B, ≥ horizon + 1] int8: how many of the radii contain the episode, 0, 1, … steps ahead; else 0."""
        ...

    def first_near(self, index: TransitionIndex, near: Array, horizon: int, dwell: int = 1) -> FirstReach:
        """When `nearness` is first positive (for `dwell` steps), or that it never is."""
        ...

    def first_match(
        self, index: TransitionIndex, goal: Array, path: Sequence[int], radius: float, horizon: int
    ) -> FirstReach:
        """When a sequence of goals [B, len(path), goal_dim] is first followed at these steps, or that it is not."""
        ...

    def first_reach(
        self, index: TransitionIndex, goal: Array, radius: float, horizon: int, dwell: int = 1
    ) -> FirstReach:
        """When the goal is first reached within `radius` (and held for `dwell` steps), or that it is not."""
        ...

    def batch(self, index: TransitionIndex, goal: Array, chunk: int = 1, gamma: float = 1.0) -> Batch:
        """Transitions (s, a, r, s′) for other goals; with a chunk, over that many steps."""
        ...


class Agent(Generic[L]):
    """A static object; all that it learns is in its learner, a pytree of arrays."""

    spec: SpaceSpec
    chunk: int = 1
    """Actions that the policy plans at once and executes open-loop."""

    def init(self, key: Key) -> L:
        """A learner that has seen nothing."""
        raise NotImplementedError

    def act(self, learner: L, obs: Obs, key: Key, *, explore: bool) -> Array:
        """Actions [..., chunk · action_dim] in [−1, 1]; without `explore` the key has no influence."""
        raise NotImplementedError

    def observe(self, learner: L, obs: Obs, achieved_goal: Array) -> L:
        """The learner after new transitions [T, N, ...] were collected; for statistics of observations."""
        del obs, achieved_goal
        return learner

    def value(self, learner: L, obs: Obs, action: Array) -> Array | None:
        """The critic's value [...] of actions for goals, larger is better; None for an agent without one."""
        del learner, obs, action
        return None

    @property
    def has_critic(self) -> bool:
        """Whether `value` gives values; only shapes are traced."""
        spec = self.spec
        obs = Obs(jnp.zeros((1, spec.state_dim), jnp.float32), jnp.zeros((1, spec.goal_dim), jnp.float32))
        action = jnp.zeros((1, self.chunk * spec.action_dim), jnp.float32)
        value = jax.eval_shape(lambda key: self.value(self.init(key), obs, action), jax.random.key(0))
        return value is not None


class OffPolicyAgent(Agent[L], Generic[L, B]):
    """An agent that learns from replay.

    `sample` makes its batches, of a type of its own, from whatever it reads of replay. By default a batch is a
    `homing.types.Batch` with goals drawn as `relabel` says.
    """

    relabel: Relabel = Relabel()
    min_batch_size: ClassVar[int] = 1
    """Transitions that a batch needs at least; 2 where pairs of a batch are contrasted."""
    needs_data: ClassVar[bool] = False
    """Learns from a dataset only: its policy does not explore."""
    uses_rewards: ClassVar[bool] = True
    """Its batches have rewards; False for agents that learn from goals alone."""

    def sample(self, replay: ReplayView, index: TransitionIndex, key: Key) -> B:
        """The batch of one update, from transitions that were drawn uniformly."""
        goal = self.goals(replay, index, key)
        batch: Any = replay.batch(index, goal, self.chunk, self.relabel.gamma)
        return batch

    def goals(self, replay: ReplayView, index: TransitionIndex, key: Key) -> Array:
        """Goals of a batch [B, goal_dim], as `relabel` says."""
        return replay.goals(self.relabel, index, key)

    def draw(self, key: Key, batch_size: int) -> Any:
        """The random numbers of one update, which the loop draws for many updates at once; here the key."""
        del batch_size
        return key

    def update(self, learner: L, batch: B, draws: Any, context: UpdateContext) -> tuple[L, Metrics]:
        """One gradient step; `draws` is what `draw` returned."""
        raise NotImplementedError

    def updates(self, learner: L, batches: B, draws: Any, contexts: UpdateContext, unroll: int = 1) -> L:
        """The learner after one update for each of the batches [U, ...], in order."""
        step = lambda learner, given: (self.update(learner, *given)[0], None)
        return lax.scan(step, learner, (batches, draws, contexts), unroll=unroll)[0]


class OnPolicyAgent(Agent[L]):
    """An agent that learns from the transitions of its current policy only."""

    def choose(self, learner: L, obs: Obs, key: Key) -> Array:
        """A sample of the exploring policy, from which its action and its probability follow."""
        raise NotImplementedError

    def action_of(self, choice: Array) -> Array:
        """The action in [−1, 1] that follows from a choice."""
        raise NotImplementedError

    def updates_per_rollout(self, num_envs: int) -> int:
        """Gradient steps that `learn` makes; a ConfigError where `num_envs` cannot be split evenly."""
        raise NotImplementedError

    def learn(
        self, learner: L, rollout: Rollout, key: Key, lr_scale: Array | float = 1.0
    ) -> tuple[L, Metrics]:
        """All updates of one iteration, with learning rates times `lr_scale`."""
        raise NotImplementedError


class AgentConfig(Protocol):
    """A frozen dataclass of settings, with a default for every field."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
