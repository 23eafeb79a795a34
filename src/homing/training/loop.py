"""What training loops share: their state, epochs of iterations, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.agents import Agent
from homing.agents.normalised import Moments
from homing.config.plan import Schedule, Sizes
from homing.envs.base import GoalEnv
from homing.networks import parameters
from homing.training.evaluation import evaluate
from homing.types import Array, EnvState, Key, Metrics, Obs, bytes_of

# Streams of random numbers that start from a seed's key.
COLLECT, EVALUATE, SPREAD, MEASURE = 0, 1, 2, 3


class TrainState(struct.PyTreeNode):
    """A run of one seed between two iterations: arrays only. Counters that seeds share are arguments."""

    env: Any  # the EnvState; () where nothing is collected
    replay: Any  # the replay buffer; () for on-policy training and with a dataset
    learner: Any
    average: Any  # moving average of the learner's parameters; () without `policy_ema`
    key: Key  # never changes: an iteration's key is folded from it

    @property
    def policy(self) -> Any:
        """The learner that is evaluated and exported: the averaged one where there is one."""
        return self.average if jax.tree.leaves(self.average) else self.learner


class Loop(Protocol):
    """Training of one seed: what `OffPolicy` and `OnPolicy` have in common."""

    @property
    def env(self) -> GoalEnv: ...
    @property
    def agent(self) -> Agent: ...
    @property
    def plan(self) -> Schedule: ...
    @property
    def data(self) -> Any: ...
    def init(self, key: Key) -> TrainState: ...
    def epoch(self, train: TrainState, start: Array, stop: Array) -> tuple[TrainState, Metrics]: ...
    def evaluate(self, train: TrainState, iteration: Array, env: GoalEnv) -> Metrics: ...


def first_state(
    env: GoalEnv | None, agent: Agent, replay: Any, key: Key, averaged: bool = False
) -> TrainState:
    """A seed before its first step; without an environment where nothing is collected."""
    k_env, k_learner, k_run = jax.random.split(key, 3)
    learner = agent.init(k_learner)
    state = () if env is None else env.reset(k_env)
    average = first_average(learner) if averaged else ()
    return TrainState(env=state, replay=replay, learner=learner, average=average, key=k_run)


def first_average(learner: Any) -> Any:
    """The moving average before the first iteration."""
    # Copies: what is donated to a program must not appear in it twice.
    return jax.tree.map(jnp.copy, parameters(learner))


def averaged(average: Any, learner: Any, decay: float) -> Any:
    """The moving average of parameters after an iteration; counts and moments of observations are the newest."""

    def node(old: Any, new: Any) -> Any:
        if isinstance(new, Moments) or not jnp.issubdtype(new.dtype, jnp.floating):
            return new
        return old + (1 - decay) * (new - old)

    return jax.tree.map(node, average, parameters(learner), is_leaf=lambda x: isinstance(x, Moments))


Iterate = Callable[[TrainState, Array], tuple[TrainState, Metrics]]


def run_epoch(
    iterate: Iterate, shapes: Any, train: TrainState, start: Array, stop: Array, plan: Schedule
) -> tuple[TrainState, Metrics]:
    """Iterations start..stop−1 and the means of their metrics over those past the prefill; NaN if none is.

    `shapes` are those of the metrics. The bounds are data: one program for all.
    """
    totals = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

    def body(iteration: Array, carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
        train, metrics = iterate(carry[0], iteration)
        learned = iteration >= plan.prefill_iterations
        return train, jax.tree.map(lambda total, x: total + jnp.where(learned, x, 0), carry[1], metrics)

    train, totals = lax.fori_loop(start, stop, body, (train, totals))
    iterations = jnp.maximum(stop - jnp.maximum(start, plan.prefill_iterations), 0).astype(jnp.float32)
    means = jax.tree.map(lambda total: total / iterations, totals)
    return train, means | {"finite": all_finite(train)}


def iteration_key(train: TrainState, iteration: Array, stream: int = COLLECT) -> Key:
    """The key of one iteration and stream; it does not depend on earlier iterations."""
    return jax.random.fold_in(jax.random.fold_in(train.key, stream), iteration)


def evaluate_greedy(
    agent: Agent, train: TrainState, plan: Schedule, iteration: Array, env: GoalEnv
) -> Metrics:
    """The deterministic policy on fresh starts and goals of `env`: one protocol for all agents.

    Starts and goals follow from the seed and the number of the evaluation alone, so that methods are compared on the
    same episodes. That of the untrained policy has those of the first.
    """
    stops = jnp.asarray([plan.epoch_bounds(epoch)[1] for epoch in range(plan.epochs)], jnp.int32)
    number = jnp.searchsorted(stops, iteration).astype(jnp.int32)

    def policy(obs: Obs, key: Key) -> Array:
        return agent.act(train.policy, obs, key, explore=False)

    return evaluate(env, policy, iteration_key(train, number, EVALUATE), agent.chunk, by_goal=True)


def sizes_of(env: GoalEnv, agent: Agent) -> Sizes:
    """Sizes that a plan follows from; shapes are traced, nothing is allocated."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    return Sizes(
        state_dim=env.spec.state_dim,
        action_dim=env.spec.action_dim,
        goal_dim=env.spec.goal_dim,
        learner_bytes=bytes_of(jax.eval_shape(agent.init, key)),
        env_bytes=bytes_of(jax.eval_shape(env.reset, key)),
    )


def all_finite(train: TrainState) -> Array:
    """[] bool: no NaN or infinity in what was learned or in what the policy sees."""
    seen = train.env.obs if isinstance(train.env, EnvState) else ()
    leaves = [x for x in jax.tree.leaves((train.learner, seen)) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves]).all()
