"""Many seeds in one program: the only place that vmaps over them.

The settings of a population, where there is one, lie along the same axis.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile import xla
from homing.compile.jitted import Program, Programs
from homing.training.evaluation import evaluate
from homing.training.loop import TrainState
from homing.training.sharding import SEEDS, Placement
from homing.types import Array, Key, Metrics


def seed_keys(seeds: Sequence[int]) -> Key:
    """One key for each seed [S]; it depends on that seed alone.

    Made by the CPU: a GPU's first program, however small, is seconds of a start.
    """
    with jax.default_device(_cpu()):
        data = np.asarray(jax.random.key_data(jnp.stack([jax.random.key(seed) for seed in seeds])))
    return jax.random.wrap_key_data(jnp.asarray(data))


def _cpu() -> Any:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX_PLATFORMS leaves it out
        return None


def over_seeds(fn: Callable[..., Any], in_axes: Any, out_axes: Any = 0, mesh_axis: Any = None) -> Any:
    """`fn` for all seeds at once. Arguments with axis None (counters) are shared and stay unbatched."""
    return jax.vmap(fn, in_axes=in_axes, out_axes=out_axes, spmd_axis_name=mesh_axis)


def train_axes(env: Any) -> TrainState:
    """Where the seed axis of a TrainState is; its environments' clock has none."""
    fields: dict[str, Any] = {"replay": 0, "learner": 0, "average": 0, "key": 0}
    return TrainState(env=env.seed_axes(), **fields)


class Variants(NamedTuple):
    """A population: settings whose values differ from member to member."""

    values: Mapping[str, Any]
    """By the name of the setting, [S] float32."""
    loop_of: Callable[[Mapping[str, Array]], Any]
    """The training loop of one member, given its values []."""


def with_values(config: Any, values: Mapping[str, Any]) -> Any:
    """A config with other values, which may be traced: its own checks ran before, on plain numbers."""
    clone = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(clone, name, value)
    return clone


def programs(
    loop: Any, eval_env: Any, variants: Variants | None = None, placement: Placement | None = None
) -> Programs:
    """Each traced and compiled once, at its first call.

    `placement` spreads seeds and environments over devices.
    """
    axes = train_axes(loop.env)
    values, loop_of = variants or ({}, lambda _: loop)
    values = {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    if placement is not None:
        loop_of, eval_env = placement.of_loop(loop_of), placement.of_env(eval_env)
        values = placement.put(values)

    def init(key: Key, values: Any) -> TrainState:
        return loop_of(values).init(key)

    def epoch(train: TrainState, values: Any, start: Array, stop: Array) -> Any:
        return loop_of(values).epoch(train, start, stop)

    def score(train: TrainState, values: Any, iteration: Array) -> Metrics:
        return loop_of(values).evaluate(train, iteration, eval_env)

    mesh_axis = None if placement is None else SEEDS
    together = [
        over_seeds(init, (0, 0), axes, mesh_axis),
        over_seeds(epoch, (axes, 0, None, None), (axes, 0), mesh_axis),
        over_seeds(score, (axes, 0, None), 0, mesh_axis),
    ]
    if placement is not None:
        together = [xla.divided(program) for program in together]
    where = _shardings(together[0], values, placement)
    return Programs(
        init=Program(together[0], values, **where[0]),
        epoch=Program(together[1], values, donate_argnums=0, **where[1]),
        evaluate=Program(together[2], values, **where[2]),
    )


def _shardings(init: Callable[..., Any], values: Any, placement: Placement | None) -> list[dict[str, Any]]:
    """Options of `jax.jit` for `init`, `epoch` and `evaluate`: where arguments and results lie."""
    if placement is None:
        return [{}, {}, {}]
    keys = seed_keys([0] * placement.seeds)
    state = placement.state(jax.eval_shape(init, keys, values))
    members, whole = placement.members, placement.whole
    return [
        {"in_shardings": (members, members), "out_shardings": state},
        {"in_shardings": (state, members, whole, whole), "out_shardings": (state, whole)},
        {"in_shardings": (state, members, whole), "out_shardings": whole},
    ]


def evaluate_learners(env: Any, agent: Any, learner: Any, key: Key, explore: bool = False) -> Metrics:
    """Policies of many seeds [S, ...] on the same fresh starts and goals; metrics [S]."""

    def one(learner: Any, key: Key) -> Metrics:
        return evaluate(
            env, lambda obs, k_act: agent.act(learner, obs, k_act, explore=explore), key, agent.chunk
        )

    return jitted(one, shared=1, arguments=2)(learner, key)


def jitted(fn: Callable[..., Any], shared: int = 0, arguments: int = 1) -> Any:
    """`fn` for all seeds, jitted; the last `shared` of its arguments are the same for all of them."""
    return jax.jit(over_seeds(fn, (0,) * (arguments - shared) + (None,) * shared))
