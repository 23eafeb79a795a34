"""Many seeds in one program: the only place that vmaps over them, or takes them one by one.

The settings of a population, where there is one, lie along the same axis.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from homing.agents import Agent
from homing.compile import xla
from homing.compile.jitted import Program, Programs
from homing.envs.base import GoalEnv
from homing.training.chains import evaluate_chain
from homing.training.evaluation import evaluate
from homing.training.loop import Loop, TrainState
from homing.training.sharding import SEEDS, Placement
from homing.types import Array, Key, Metrics

DATA = "data"  # among the values of a program: the dataset that its seeds learn from


def seed_keys(seeds: Sequence[int]) -> Key:
    """One key for each seed [S]; it depends on that seed alone.

    Made by the CPU: a GPU's first program, however small, is seconds of a start.
    """
    with jax.default_device(cpu_device()):
        data = np.asarray(jax.random.key_data(jnp.stack([jax.random.key(seed) for seed in seeds])))
    return jax.random.wrap_key_data(jnp.asarray(data))


def cpu_device() -> Any:
    """The CPU as a device of JAX; None where JAX_PLATFORMS leaves it out."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return None


def over_seeds(fn: Callable[..., Any], in_axes: Any, out_axes: Any = 0, mesh_axis: Any = None) -> Any:
    """`fn` for all seeds at once. Arguments with axis None (counters) are shared and stay unbatched."""
    mapped = jax.vmap(fn, in_axes=in_axes, out_axes=out_axes, spmd_axis_name=mesh_axis)

    def together(*args: Any) -> Any:
        with xla.side_by_side(_seeds_in(args, in_axes)):
            return mapped(*args)

    return together


def one_by_one(
    fn: Callable[..., Any], in_axes: Sequence[Any], out_axes: Any = 0, in_place: bool = False
) -> Any:
    """`fn` for one seed after another: each runs the same instructions, whichever seeds are beside it.

    A vmapped matrix product of S seeds is another kernel than that of one, and rounds differently.

    in_place: `fn` returns its first argument, changed, and a result; only one seed's copy of it is temporary
    """

    def mapped(*args: Any) -> Any:
        flags = tuple(_has_seed_axis(axes, arg) for axes, arg in zip(in_axes, args, strict=True))
        count = _seeds_in(args, in_axes)

        def body(state: Any, i: Array) -> tuple[Any, Any]:
            # The barriers keep XLA from merging a seed's instructions with those that select it.
            one = lax.optimization_barrier(_select((state, *args[1:]) if in_place else args, flags, i))
            out = lax.optimization_barrier(fn(*one))
            if not in_place:
                return state, out
            shared = jax.tree.map(lambda x, batched: () if batched else x, out[0], flags[0])
            return _insert(state, out[0], flags[0], i), (shared, out[1])

        state, outs = lax.scan(body, args[0] if in_place else (), jnp.arange(count))
        if not in_place:
            return jax.tree.map(
                lambda x, batched: x if batched else x[0], outs, _has_seed_axis(out_axes, outs)
            )
        shared, result = outs
        shared = iter(jax.tree.leaves(shared))
        return jax.tree.map(lambda x, batched: x if batched else next(shared)[0], state, flags[0]), result

    return mapped


def _seeds_in(args: Sequence[Any], in_axes: Sequence[Any]) -> int:
    """How many seeds the arguments of a mapped function are for."""
    flags = tuple(_has_seed_axis(axes, arg) for axes, arg in zip(in_axes, args, strict=True))
    leaves = zip(jax.tree.leaves(args), jax.tree.leaves(flags), strict=True)
    return next(len(leaf) for leaf, batched in leaves if batched)


def _has_seed_axis(axes: Any, tree: Any) -> Any:
    """For every array of a tree, whether it has one; `axes` is a prefix of the tree, as in `jax.vmap`."""
    return jax.tree.map(
        lambda axis, part: jax.tree.map(lambda _: axis is not None, part),
        axes,
        tree,
        is_leaf=lambda axis: axis is None,
    )


def _select(tree: Any, flags: Any, i: Array) -> Any:
    """Seed i of the arrays that have a seed axis, and the others as they are."""
    return jax.tree.map(lambda x, batched: x[i] if batched else x, tree, flags)


def _insert(tree: Any, one: Any, flags: Any, i: Array) -> Any:
    """A tree with seed i replaced."""
    return jax.tree.map(lambda x, new, batched: x.at[i].set(new) if batched else x, tree, one, flags)


def train_axes(env: GoalEnv, collects: bool = True) -> TrainState:
    """Where the seed axis of a TrainState is; its environments' clock has none."""
    fields: dict[str, Any] = {"replay": 0, "learner": 0, "average": 0, "key": 0}
    return TrainState(env=env.seed_axes() if collects else 0, **fields)


class Variants(NamedTuple):
    """A population: settings whose values differ from member to member."""

    values: Mapping[str, Any]
    """By the name of the setting, [S] float32."""
    loop_of: Callable[[Mapping[str, Array]], Loop]
    """The training loop of one member, given its values []."""


def with_values(config: Any, values: Mapping[str, Any]) -> Any:
    """A config with other values, which may be traced: its own checks ran before, on plain numbers."""
    clone = copy.copy(config)
    for name, value in values.items():
        object.__setattr__(clone, name, value)
    return clone


def programs(
    loop: Loop, eval_env: GoalEnv, variants: Variants | None = None, placement: Placement | None = None
) -> Programs:
    """Each traced and compiled once, at its first call.

    `placement` spreads seeds and environments over devices.
    """
    axes = train_axes(loop.env, loop.plan.collects)
    values, loop_of = variants or ({}, lambda _: loop)
    values = {name: jnp.asarray(value, jnp.float32) for name, value in values.items()}
    if placement is not None:
        loop_of, eval_env = placement.of_loop(loop_of), placement.of_env(eval_env)
        values = placement.put(values)
    value_axes: dict[str, int | None] = dict.fromkeys(values, 0)
    if loop.data is not None:
        # An argument that seeds share: as a constant it would be compiled into each program.
        values = {**values, DATA: jax.device_put(loop.data, jax.devices()[0])}
        value_axes = {**value_axes, DATA: None}
    init, epoch, score = _functions(loop_of, eval_env)
    if loop.plan.config.exact_seeds:
        together = [
            one_by_one(init, (0, value_axes), axes),
            one_by_one(epoch, (axes, value_axes, None, None), in_place=True),
            one_by_one(score, (axes, value_axes, None)),
        ]
    else:
        mesh_axis = None if placement is None else SEEDS
        together = [
            over_seeds(init, (0, value_axes), axes, mesh_axis),
            over_seeds(epoch, (axes, value_axes, None, None), (axes, 0), mesh_axis),
            over_seeds(score, (axes, value_axes, None), 0, mesh_axis),
        ]
    if placement is not None:
        together = [xla.divided(program) for program in together]
    where = _shardings(together[0], values, placement)
    return Programs(
        init=Program(together[0], values, **where[0]),
        epoch=Program(together[1], values, donate_argnums=0, **where[1]),
        evaluate=Program(together[2], values, **where[2]),
    )


def _functions(loop_of: Callable[[Any], Loop], eval_env: GoalEnv) -> tuple[Callable[..., Any], ...]:
    """`init`, `epoch` and `evaluate` of one seed, as functions of the values of its program too."""

    def made(values: Mapping[str, Any]) -> Any:
        loop: Any = loop_of({name: value for name, value in values.items() if name != DATA})
        return dataclasses.replace(loop, data=values[DATA]) if DATA in values else loop

    def init(key: Key, values: Any) -> TrainState:
        return made(values).init(key)

    def epoch(train: TrainState, values: Any, start: Array, stop: Array) -> Any:
        return made(values).epoch(train, start, stop)

    def score(train: TrainState, values: Any, iteration: Array) -> Metrics:
        return made(values).evaluate(train, iteration, eval_env)

    return init, epoch, score


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


def evaluate_learners(
    env: GoalEnv,
    agent: Agent,
    learner: Any,
    key: Key,
    explore: bool = False,
    chain: int | None = None,
    chain_steps: int | None = None,
) -> Metrics:
    """Policies of many seeds [S, ...] on the same fresh starts and goals; metrics [S].

    chain: goals one after the other in each episode, of `chain_steps` each; see `evaluate_chain`
    """

    def one(learner: Any, key: Key) -> Metrics:
        policy = lambda obs, k_act: agent.act(learner, obs, k_act, explore=explore)
        if chain is None:
            return evaluate(env, policy, key, agent.chunk)
        return evaluate_chain(env, policy, key, chain, chain_steps, agent.chunk)

    return jitted(one, shared=1, arguments=2)(learner, key)


def jitted(fn: Callable[..., Any], shared: int = 0, arguments: int = 1) -> Any:
    """`fn` for all seeds, jitted; the last `shared` of its arguments are the same for all of them."""
    return jax.jit(over_seeds(fn, (0,) * (arguments - shared) + (None,) * shared))
