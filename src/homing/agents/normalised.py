"""Observation normalisation for any agent: what it sees has mean 0 and deviation 1."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from homing.types import Array, Key, Metrics, Moment, Obs, Rollout

MIN_STD = 1e-3  # an entry that never changes is shifted, not blown up
LIMIT = 10.0  # deviations


class Moments(struct.PyTreeNode):
    """Mean and variance of each entry over all rows so far."""

    mean: Array  # [D]
    variance: Array  # [D]
    count: Array  # [] int32: an exact count, which a float32 is not beyond 16.8 million


class NormalisedLearner(struct.PyTreeNode):
    """An agent's learner, and what its observations were like."""

    learner: Any
    state: Moments
    goal: Moments


def no_moments(size: int) -> Moments:
    """Of nothing: they change nothing."""
    return Moments(
        mean=jnp.zeros((size,), jnp.float32),
        variance=jnp.ones((size,), jnp.float32),
        count=jnp.zeros((), jnp.int32),
    )


def with_rows(moments: Moments, rows: Array) -> Moments:
    """The moments with more rows [..., D]: exact for the union, in one pass."""
    rows = rows.reshape(-1, rows.shape[-1])
    mean, variance = jnp.mean(rows, axis=0), jnp.var(rows, axis=0)
    count = moments.count + len(rows)
    share = len(rows) / count.astype(jnp.float32)  # of the new rows
    apart = mean - moments.mean
    return Moments(
        mean=moments.mean + share * apart,
        variance=(1 - share) * moments.variance + share * variance + share * (1 - share) * jnp.square(apart),
        count=count,
    )


def scaled(moments: Moments, x: Array) -> Array:
    """(x − mean) / deviation, within ±10."""
    deviation = jnp.maximum(jnp.sqrt(moments.variance), MIN_STD)
    return jnp.clip((x - moments.mean) / deviation, -LIMIT, LIMIT)


class Normalised:
    """An agent that sees normalised states and goals; its own learner, replay and rewards are as they were.

    Goals are measured together with what was achieved, since relabelled goals come from there.
    """

    def __init__(self, agent: Any):
        self.agent = agent

    def __getattr__(self, name: str) -> Any:
        # All that has nothing to do with observations is the agent's: its sampler, its draws, its sizes.
        if name == "agent":  # while it is being copied or unpickled
            raise AttributeError(name)
        return getattr(self.agent, name)

    def init(self, key: Key) -> NormalisedLearner:
        spec = self.agent.spec
        return NormalisedLearner(
            learner=self.agent.init(key), state=no_moments(spec.state_dim), goal=no_moments(spec.goal_dim)
        )

    def watch(self, learner: NormalisedLearner, obs: Obs, reached: Array) -> NormalisedLearner:
        """The learner after it has seen what was collected, [T, N, ...]."""
        return learner.replace(
            state=with_rows(learner.state, obs.state),
            goal=with_rows(learner.goal, jnp.stack([obs.goal, reached])),
        )

    def _seen(self, learner: NormalisedLearner, tree: Any) -> Any:
        """A pytree with every observation in it normalised."""

        def seen(x: Any) -> Any:
            if not isinstance(x, Obs):
                return x
            return Obs(state=scaled(learner.state, x.state), goal=scaled(learner.goal, x.goal))

        return jax.tree.map(seen, tree, is_leaf=lambda x: isinstance(x, Obs))

    def act(self, learner: NormalisedLearner, obs: Obs, key: Key, *, explore: bool) -> Array:
        return self.agent.act(learner.learner, self._seen(learner, obs), key, explore=explore)

    def value(self, learner: NormalisedLearner, obs: Obs, action: Array) -> Array:
        return self.agent.value(learner.learner, self._seen(learner, obs), action)

    def update(
        self, learner: NormalisedLearner, batch: Any, draws: Any, moment: Moment
    ) -> tuple[NormalisedLearner, Metrics]:
        inner, metrics = self.agent.update(learner.learner, self._seen(learner, batch), draws, moment)
        return learner.replace(learner=inner), metrics

    def choose(self, learner: NormalisedLearner, obs: Obs, key: Key) -> Array:
        return self.agent.choose(learner.learner, self._seen(learner, obs), key)

    def learn(
        self, learner: NormalisedLearner, rollout: Rollout, key: Key
    ) -> tuple[NormalisedLearner, Metrics]:
        inner, metrics = self.agent.learn(learner.learner, self._seen(learner, rollout), key)
        return learner.replace(learner=inner), metrics
