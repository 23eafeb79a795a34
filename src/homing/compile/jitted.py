"""A run's programs: jitted functions of (state, *counts), lowered through the export cache where there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from homing.compile import cuda, xla
from homing.compile.export_cache import Store

# Stored programs are read by the versions and the card that wrote them: nothing has to stay as it is.
UNCHECKED = [
    jax.export.DisabledSafetyCheck.custom_call(name) for name in ("__gpu$xla.gpu.triton", cuda.TARGET)
]


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
            compiled = xla.build(lowered)
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
            names: list[str] = []

            def flat(*leaves: Any) -> list[Any]:
                out = self.fn(*jax.tree.unflatten(structure, leaves))
                names[:] = sorted(metrics_of(out))
                return jax.tree.leaves(out)

            return jax.export.export(jax.jit(flat), disabled_checks=UNCHECKED)(*leaves), names

        try:
            exported, names = kept.exported(name, make)
        except ValueError:  # it calls a library that exported programs may not rely on
            return self.lower(state, *counts)
        donated = range(len(jax.tree.leaves(state))) if "donate_argnums" in self.options else ()
        lowered = jax.jit(exported.call, donate_argnums=tuple(donated)).lower(*leaves)
        returned = jax.tree.structure(results(dict.fromkeys(names, 0)))

        def compile() -> Callable[..., Any]:
            compiled = xla.build(lowered)

            def call(state: Any, *counts: Any) -> Any:
                return jax.tree.unflatten(returned, compiled(*jax.tree.leaves((state, self.values, *counts))))

            return call

        return compile


def lower_arrays(
    fn: Callable[..., Any], args: Callable[[], tuple[Any, ...]], kept: Store | None, name: str
) -> Any:
    """A function of pytrees, lowered as one of their leaves that returns leaves.

    args: its arguments or their shapes; neither they nor the program are traced where the store has it already
    """

    def flat() -> tuple[Any, list[Any]]:
        leaves, structure = jax.tree.flatten(args())
        return jax.jit(lambda *leaves: jax.tree.leaves(fn(*jax.tree.unflatten(structure, leaves)))), leaves

    def make() -> tuple[Any, None]:
        jitted, leaves = flat()
        return jax.export.export(jitted, disabled_checks=UNCHECKED)(*leaves), None

    if kept is not None:
        with contextlib.suppress(ValueError):  # it calls a library that exported programs may not rely on
            exported, _ = kept.exported(name, make)
            shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in exported.in_avals]
            return jax.jit(exported.call).lower(*shapes)
    jitted, leaves = flat()
    return jitted.lower(*leaves)


def metrics_of(result: Any) -> Mapping[str, Any]:
    """The metrics in what a program returns; `init` has none."""
    last = result[-1] if isinstance(result, tuple) else result
    return last if isinstance(last, dict) else {}
