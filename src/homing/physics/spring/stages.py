"""Stages of a physics step whose results are computed once, on a CPU.

There XLA fuses elementwise operations into one loop for each result, and what several results share is computed again
in each of them; optimisation barriers are gone by then. What a branch of a conditional returns stays in memory. On
GPUs a few large kernels are faster than many small ones, and stages do nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from homing.compile import xla

T = TypeVar("T")
Array = jax.Array

_always: ContextVar[Array | None] = ContextVar("always", default=None)


@contextlib.contextmanager
def stages_of(frame: Array) -> Iterator[None]:
    """Traces iteration `frame` of a loop, of which XLA does not know that it is never negative."""
    before = _always.set(frame >= 0 if xla.stages() else None)
    try:
        yield
    finally:
        _always.reset(before)


def stage(results: T) -> T:
    """The same results, computed once. Floats and NumPy arrays among them are constants."""
    always = _always.get()
    if always is None:
        return results
    leaves, tree = jax.tree.flatten(results)
    arrays = {k: leaf for k, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)}
    kept = jax.lax.cond(always, lambda given: given, _zeros, list(arrays.values()))
    placed = dict(zip(arrays, kept, strict=True))
    return jax.tree.unflatten(tree, [placed.get(k, leaf) for k, leaf in enumerate(leaves)])


def _zeros(given: list[Any]) -> list[Any]:
    return [jnp.zeros_like(x) for x in given]
