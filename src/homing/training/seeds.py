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

from homing import compiler
from homing.evaluation import evaluate
from homing.traces import Store
from homing.training.devices import SEEDS, Placement
from homing.training.offpolicy import TrainState
from homing.types import Array, Key, Metrics

# Stored programs are read by the versions and the card that wrote them: nothing has to stay as it is.
UNCHECKED = [jax.export.DisabledSafetyCheck.custom_call("__gpu$xla.gpu.triton")]


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
    fields: dict[str, Any] = {"ring": 0, "learner": 0, "key": 0}
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


class Programs(NamedTuple):
    """The compiled programs of a run, for all seeds; counts are Python ints."""

    init: Program
    """(keys [S]) -> TrainState"""
    epoch: Program
    """(train, start, stop) -> (TrainState, metrics [S]); the argument is donated"""
    evaluate: Program
    """(train, iteration) -> metrics [S]"""


class Program:
    """A jitted function of (state, values, *counts), called as one of (state, *counts)."""

    def __init__(self, fn: Callable[..., Any], values: Mapping[str, Any], **options: Any):
        self.fn, self.options, self.values = fn, options, dict(values)
        self.jitted = jax.jit(fn, **options)

    def __call__(self, state: Any, *counts: Any) -> Any:
        # A Python int would enter as a weak type, and mixing both kinds of caller would compile twice.
        return self.jitted(state, self.values, *(jnp.asarray(count, jnp.int32) for count in counts))

    def lower(self, state: Any, *counts: Any) -> Callable[[], Callable[..., Any]]:
        """Traced; call the result to compile it, which gives a function of (state, *counts)."""
        lowered = self.jitted.lower(state, self.values, *counts)

        def compile() -> Callable[..., Any]:
            compiled = compiler.build(lowered)
            return lambda state, *counts: compiled(state, self.values, *counts)

        return compile

    def lower_kept(
        self, kept: Store, name: str, results: Callable[[Any], Any], state: Any, *counts: Any
    ) -> Callable[[], Callable[..., Any]]:
        """The same by way of a store, without tracing what it holds.

        A program is kept as a function of flat lists. `results` gives the structure of what it returns, from
        the names of its metrics.
        """
        leaves, structure = jax.tree.flatten((state, self.values, *counts))

        def make() -> tuple[Any, list[str]]:
            told: list[str] = []

            def flat(*leaves: Any) -> list[Any]:
                out = self.fn(*jax.tree.unflatten(structure, leaves))
                told[:] = sorted(metrics_of(out))
                return jax.tree.leaves(out)

            return jax.export.export(jax.jit(flat), disabled_checks=UNCHECKED)(*leaves), told

        try:
            exported, names = kept.exported(name, make)
        except ValueError:  # it calls a library that exported programs may not rely on
            return self.lower(state, *counts)
        donated = range(len(jax.tree.leaves(state))) if "donate_argnums" in self.options else ()
        lowered = jax.jit(exported.call, donate_argnums=tuple(donated)).lower(*leaves)
        returned = jax.tree.structure(results(dict.fromkeys(names, 0)))

        def compile() -> Callable[..., Any]:
            compiled = compiler.build(lowered)

            def call(state: Any, *counts: Any) -> Any:
                return jax.tree.unflatten(returned, compiled(*jax.tree.leaves((state, self.values, *counts))))

            return call

        return compile


def metrics_of(result: Any) -> Mapping[str, Any]:
    """The metrics in what a program returns; `init` has none."""
    last = result[-1] if isinstance(result, tuple) else result
    return last if isinstance(last, dict) else {}


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
        together = [compiler.divided(program) for program in together]
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
        return evaluate(env, lambda obs, k_act: agent.act(learner, obs, k_act, explore=explore), key)

    return jitted(one, shared=1, arguments=2)(learner, key)


def jitted(fn: Callable[..., Any], shared: int = 0, arguments: int = 1) -> Any:
    """`fn` for all seeds, jitted; the last `shared` of its arguments are the same for all of them."""
    return jax.jit(over_seeds(fn, (0,) * (arguments - shared) + (None,) * shared))
