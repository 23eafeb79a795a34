"""Many seeds in one program: the only place that vmaps over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from homing.evaluation import evaluate
from homing.training.offpolicy import OffPolicy, TrainState
from homing.types import Key, Metrics


def seed_keys(seeds: Sequence[int]) -> Key:
    """One key for each seed [S]; it depends on that seed alone."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def over_seeds(fn: Callable[..., Any], in_axes: Any, out_axes: Any = 0) -> Callable[..., Any]:
    """`fn` for all seeds at once. Arguments with axis None (counters) are shared and stay unbatched."""
    return jax.vmap(fn, in_axes=in_axes, out_axes=out_axes)


def train_axes(env: Any) -> TrainState:
    """Where the seed axis of a TrainState is; its environments' clock has none."""
    fields: dict[str, Any] = {"ring": 0, "learner": 0, "key": 0}
    return TrainState(env=env.seed_axes(), **fields)


class Programs(NamedTuple):
    """The compiled programs of a run, for all seeds; counts are Python ints."""

    init: Callable[..., TrainState]
    """(keys [S]) -> TrainState"""
    epoch: Callable[..., Any]
    """(train, start, stop) -> (TrainState, metrics [S]); the argument is donated"""
    evaluate: Callable[..., Any]
    """(train, iteration) -> metrics [S]"""


def programs(loop: OffPolicy, eval_env: Any) -> Programs:
    """Each traced and compiled once, at its first call."""
    axes = train_axes(loop.env)
    epoch = over_seeds(loop.epoch, (axes, None, None), (axes, 0))
    score = over_seeds(lambda train, iteration: loop.evaluate(train, iteration, eval_env), (axes, None))
    return Programs(
        init=jax.jit(over_seeds(loop.init, (0,), axes)),
        epoch=_counted(jax.jit(epoch, donate_argnums=0)),
        evaluate=_counted(jax.jit(score)),
    )


def _counted(fn: Callable[..., Any]) -> Callable[..., Any]:
    # A Python int would enter as a weak type, and mixing both kinds of caller would compile twice.
    def call(train: TrainState, *counts: Any) -> Any:
        return fn(train, *(jnp.asarray(count, jnp.int32) for count in counts))

    call.jitted = fn
    return call


def evaluate_learners(env: Any, agent: Any, learner: Any, key: Key) -> Metrics:
    """Greedy policies of many seeds [S, ...] on the same fresh starts and goals; metrics [S]."""

    def one(learner: Any, key: Key) -> Metrics:
        return evaluate(env, lambda obs, k_act: agent.act(learner, obs, k_act, explore=False), key)

    return jax.jit(over_seeds(one, (0, None)))(learner, key)
