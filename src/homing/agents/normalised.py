"""Observation normalisation for any agent: running mean and standard deviation of states and goals."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from homing.agents.base import OffPolicyAgent, OnPolicyAgent, ReplayView
from homing.types import Array, Key, Metrics, Obs, Rollout, TransitionIndex, UpdateContext

MIN_STD = 1e-3  # an entry that never changes is shifted, not blown up
LIMIT = 10.0  # standard deviations
MAX_COUNT = 2**30  # samples; later ones weigh as if there were so many


class Moments(struct.PyTreeNode):
    """Running mean and variance of each entry."""

    mean: Array  # [D]
    variance: Array  # [D]
    count: Array  # [] int32: an exact count, which a float32 is not beyond 16.8 million; at most MAX_COUNT


class NormalisedLearner(struct.PyTreeNode):
    """An agent's learner, and the moments of its observations."""

    learner: Any
    state: Moments
    goal: Moments


def no_moments(size: int) -> Moments:
    """Moments of no data: they change nothing."""
    return Moments(
        mean=jnp.zeros((size,), jnp.float32),
        variance=jnp.ones((size,), jnp.float32),
        count=jnp.zeros((), jnp.int32),
    )


def with_samples(moments: Moments, x: Array) -> Moments:
    """The moments after more samples [..., D]: exact for the union, in one pass, up to MAX_COUNT of them."""
    x = x.reshape(-1, x.shape[-1])
    mean, variance = jnp.mean(x, axis=0), jnp.var(x, axis=0)
    count = jnp.minimum(moments.count, MAX_COUNT - len(x)) + len(x)
    share = len(x) / count.astype(jnp.float32)  # of the new samples
    apart = mean - moments.mean
    return Moments(
        mean=moments.mean + share * apart,
        variance=(1 - share) * moments.variance + share * variance + share * (1 - share) * jnp.square(apart),
        count=count,
    )


def scaled(moments: Moments, x: Array) -> Array:
    """(x − mean) / std, clipped to ±10."""
    std = jnp.maximum(jnp.sqrt(moments.variance), MIN_STD)
    return jnp.clip((x - moments.mean) / std, -LIMIT, LIMIT)


class _Normalising:
    """What both wrappers share; `agent` is the agent inside."""

    agent: Any

    def _wrap(self, agent: Any) -> None:
        self.agent, self.config, self.spec, self.chunk = agent, agent.config, agent.spec, agent.chunk

    def init(self, key: Key) -> NormalisedLearner:
        return NormalisedLearner(
            learner=self.agent.init(key),
            state=no_moments(self.spec.state_dim),
            goal=no_moments(self.spec.goal_dim),
        )

    def act(self, learner: NormalisedLearner, obs: Obs, key: Key, *, explore: bool) -> Array:
        return self.agent.act(learner.learner, self._seen(learner, obs), key, explore=explore)

    def value(self, learner: NormalisedLearner, obs: Obs, action: Array) -> Array | None:
        return self.agent.value(learner.learner, self._seen(learner, obs), action)

    def observe(self, learner: NormalisedLearner, obs: Obs, achieved_goal: Array) -> NormalisedLearner:
        return learner.replace(
            learner=self.agent.observe(learner.learner, obs, achieved_goal),
            state=with_samples(learner.state, obs.state),
            # Goals are measured together with achieved ones, since relabelled goals come from there.
            goal=with_samples(learner.goal, jnp.stack([obs.goal, achieved_goal])),
        )

    def _seen(self, learner: NormalisedLearner, tree: Any) -> Any:
        """A pytree with every observation in it normalised."""

        def seen(x: Any) -> Any:
            if not isinstance(x, Obs):
                return x
            return Obs(state=scaled(learner.state, x.state), goal=scaled(learner.goal, x.goal))

        return jax.tree.map(seen, tree, is_leaf=lambda x: isinstance(x, Obs))


class Normalised(_Normalising, OffPolicyAgent[NormalisedLearner, Any]):
    """An off-policy agent that sees normalised states and goals; replay and rewards are as they were."""

    def __init__(self, agent: OffPolicyAgent):
        self._wrap(agent)
        self.relabel = agent.relabel

    def sample(self, replay: ReplayView, index: TransitionIndex, key: Key) -> Any:
        return self.agent.sample(replay, index, key)

    def draw(self, key: Key, batch_size: int) -> Any:
        return self.agent.draw(key, batch_size)

    def update(
        self, learner: NormalisedLearner, batch: Any, draws: Any, context: UpdateContext
    ) -> tuple[NormalisedLearner, Metrics]:
        inner, metrics = self.agent.update(learner.learner, self._seen(learner, batch), draws, context)
        return learner.replace(learner=inner), metrics


class NormalisedOnPolicy(_Normalising, OnPolicyAgent[NormalisedLearner]):
    """An on-policy agent that sees normalised states and goals."""

    def __init__(self, agent: OnPolicyAgent):
        self._wrap(agent)

    def choose(self, learner: NormalisedLearner, obs: Obs, key: Key) -> Array:
        return self.agent.choose(learner.learner, self._seen(learner, obs), key)

    def action_of(self, choice: Array) -> Array:
        return self.agent.action_of(choice)

    def updates_per_rollout(self, num_envs: int) -> int:
        return self.agent.updates_per_rollout(num_envs)

    def learn(
        self, learner: NormalisedLearner, rollout: Rollout, key: Key, lr_scale: Array | float = 1.0
    ) -> tuple[NormalisedLearner, Metrics]:
        inner, metrics = self.agent.learn(learner.learner, self._seen(learner, rollout), key, lr_scale)
        return learner.replace(learner=inner), metrics


def normalised(agent: OffPolicyAgent | OnPolicyAgent) -> OffPolicyAgent | OnPolicyAgent:
    """The agent with normalised observations."""
    return NormalisedOnPolicy(agent) if isinstance(agent, OnPolicyAgent) else Normalised(agent)
