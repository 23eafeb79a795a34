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

T = TypeVar("T")
Array = jax.Array

_always: ContextVar[Array | None] = ContextVar("always", default=None)
_wanted: ContextVar[bool] = ContextVar("wanted", default=True)


@contextlib.contextmanager
def stages_of(frame: Array) -> Iterator[None]:
    """What is traced inside is a loop's iteration `frame`; that it is never negative XLA does not know."""
    apart = _wanted.get() and jax.default_backend() == "cpu"
    before = _always.set(frame >= 0 if apart else None)
    try:
        yield
    finally:
        _always.reset(before)


@contextlib.contextmanager
def without_stages() -> Iterator[None]:
    """Physics traced inside has no stages: it is translated, not compiled, or compared."""
    before = _wanted.set(False)
    try:
        yield
    finally:
        _wanted.reset(before)


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
