"""What this machine can do at most, measured: products and memory."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.types import Array

ROUNDS = 5
# Of the square matrices, and bytes of the array that is read and written: beyond every cache.
SIZES = {"cpu": (1024, 64 * 2**20)}
LARGE = (8192, 512 * 2**20)


def timed(run: Callable[[int], Any], seconds: float) -> tuple[float, list[float]]:
    """Median seconds for one, and all rounds, of a compiled `run(count)` that takes time for each of `count`.

    One call warms up, one says how many fill a round.
    """

    def clock(count: int) -> float:
        begin = time.perf_counter()
        jax.block_until_ready(run(count))
        return time.perf_counter() - begin

    clock(1)
    count = max(1, round(seconds / ROUNDS / max(clock(1), 1e-6)))
    rounds = [clock(count) / count for _ in range(ROUNDS)]
    return median(rounds), rounds


@functools.cache
def ceilings(seconds: float = 0.5) -> dict[str, float]:
    """TFLOP/s of a large product in each precision, and bytes/s of reading and writing a large array.

    float32 products have the precision that JAX gives them by default, as those of networks have: TF32 on
    recent NVIDIA cards.
    """
    size, room = SIZES.get(jax.default_backend(), LARGE)
    told = {}
    for name in ("float32", "bfloat16"):
        told[f"{name}_tflops_per_second"] = 2e-12 * size**3 / _product_seconds(size, name, seconds)
    told["bytes_per_second"] = 2.0 * room / _pass_seconds(room // 4, seconds)
    return told


def _product_seconds(size: int, dtype: str, seconds: float) -> float:
    # Entries of deviation 1/√size keep products from growing: a card is quicker at zeros and infinities.
    key = jax.random.key(0)
    right = (jax.random.normal(key, (size, size), jnp.float32) / size**0.5).astype(dtype)

    @jax.jit
    def run(right: Array, count: Array) -> Array:
        return lax.fori_loop(0, count, lambda _, left: left @ right, right)

    return timed(lambda count: run(right, jnp.int32(count)), seconds)[0]


def _pass_seconds(entries: int, seconds: float) -> float:
    """One pass over a float32 array, each entry read and written."""
    array = jnp.zeros((entries,), jnp.float32)

    @jax.jit
    def run(array: Array, count: Array) -> Array:
        return lax.fori_loop(0, count, lambda _, x: x + 1, array)

    return timed(lambda count: run(array, jnp.int32(count)), seconds)[0]


def shares(tflops: float, bandwidth: float, dtype: str) -> dict[str, Any]:
    """The ceilings, and what a program reaches of them with so many TFLOP/s and bytes/s."""
    most = ceilings()
    return {
        "ceilings": most,
        "flops_share": tflops / most[f"{dtype}_tflops_per_second"],
        "bytes_share": bandwidth / most["bytes_per_second"],
    }
