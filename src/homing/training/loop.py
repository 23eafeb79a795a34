"""What training loops share: their state, epochs of iterations, evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.config.plan import Schedule, Sizes
from homing.training.evaluation import evaluate
from homing.types import Array, EnvState, Key, Metrics, Obs, bytes_of

# Streams of random numbers that start from a seed's key.
COLLECT, EVALUATE, SPREAD, MEASURE = 0, 1, 2, 3


class TrainState(struct.PyTreeNode):
    """A run of one seed between two iterations: arrays only. Counters that seeds share are arguments."""

    env: EnvState
    ring: Any  # what is stored of the past; () where nothing is
    learner: Any
    key: Key  # never changes: an iteration's key is folded from it


def first_state(env: Any, agent: Any, ring: Any, key: Key) -> TrainState:
    """A seed that has done nothing yet."""
    k_env, k_learner, k_run = jax.random.split(key, 3)
    return TrainState(env=env.reset(k_env), ring=ring, learner=agent.init(k_learner), key=k_run)


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
    """Of one iteration, whatever came before it."""
    return jax.random.fold_in(jax.random.fold_in(train.key, stream), iteration)


def evaluate_greedy(agent: Any, train: TrainState, iteration: Array, env: Any) -> Metrics:
    """The deterministic policy on fresh starts and goals of `env`: one protocol for all agents."""

    def policy(obs: Obs, key: Key) -> Array:
        return agent.act(train.learner, obs, key, explore=False)

    return evaluate(env, policy, iteration_key(train, iteration, EVALUATE))


def watched(agent: Any, learner: Any, obs: Obs, reached: Array) -> Any:
    """The learner, told what was collected if it wants to know."""
    return agent.watch(learner, obs, reached) if hasattr(agent, "watch") else learner


def sizes_of(env: Any, agent: Any) -> Sizes:
    """Shapes are traced, nothing is allocated."""
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
    leaves = [
        x for x in jax.tree.leaves((train.learner, train.env.obs)) if jnp.issubdtype(x.dtype, jnp.floating)
    ]
    return jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves]).all()
