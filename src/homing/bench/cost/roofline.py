"""Measured roofline of this machine: matrix-product throughput and memory bandwidth."""

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
# Side of the square matrices, and bytes of the array for the bandwidth: larger than any cache.
SIZES = {"cpu": (1024, 64 * 2**20)}
LARGE = (8192, 512 * 2**20)


def timed(run: Callable[[int], Any], seconds: float) -> tuple[float, list[float]]:
    """Median seconds per repetition, and those of all rounds, of a compiled `run(repetitions)`.

    One call warms up, one determines the repetitions of a round. Where a call takes longer than a round may,
    there are fewer rounds; where it takes all of the time, it is the only one.
    """

    def clock(count: int) -> float:
        begin = time.perf_counter()
        jax.block_until_ready(run(count))
        return time.perf_counter() - begin

    clock(1)
    first = max(clock(1), 1e-6)
    count = max(1, round(seconds / ROUNDS / first))
    repeats = min(ROUNDS, int(seconds / (count * first)))
    rounds = [clock(count) / count for _ in range(repeats)] or [first]
    return median(rounds), rounds


@functools.cache
def peaks(seconds: float = 0.5) -> dict[str, float]:
    """Peak TFLOP/s of large matrix products in each precision, and peak memory bandwidth in bytes/s.

    float32 products use JAX's default precision, as the networks do: TF32 on recent NVIDIA GPUs.
    """
    size, room = SIZES.get(jax.default_backend(), LARGE)
    results = {}
    for name in ("float32", "bfloat16"):
        results[f"{name}_tflops_per_second"] = 2e-12 * size**3 / _product_seconds(size, name, seconds)
    results["bytes_per_second"] = 2.0 * room / _pass_seconds(room // 4, seconds)
    return results


def _product_seconds(size: int, dtype: str, seconds: float) -> float:
    # Entries of standard deviation 1/√size keep products bounded: GPUs are faster on zeros and infinities.
    key = jax.random.key(0)
    right = (jax.random.normal(key, (size, size), jnp.float32) / size**0.5).astype(dtype)

    @jax.jit
    def run(right: Array, count: Array) -> Array:
        return lax.fori_loop(0, count, lambda _, left: left @ right, right)

    return timed(lambda count: run(right, jnp.int32(count)), seconds)[0]


def _pass_seconds(entries: int, seconds: float) -> float:
    """Seconds of one pass that reads and writes a float32 array."""
    array = jnp.zeros((entries,), jnp.float32)

    @jax.jit
    def run(array: Array, count: Array) -> Array:
        return lax.fori_loop(0, count, lambda _, x: x + 1, array)

    return timed(lambda count: run(array, jnp.int32(count)), seconds)[0]


def against_roofline(tflops: float, bandwidth: float, dtype: str) -> dict[str, Any]:
    """The machine's peaks, and the fractions of them that TFLOP/s and bytes/s of a program reach."""
    peak = peaks()
    return {
        "roofline": peak,
        "flops_fraction": tflops / peak[f"{dtype}_tflops_per_second"],
        "bytes_fraction": bandwidth / peak["bytes_per_second"],
    }
