"""Networks by kernels of our own to compare, and their arrays in plain order."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.networks.fused_passes import FusedShape, Weights


def distance(a, b) -> float:
    """‖a − b‖ / ‖b‖."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def normal(*size: int) -> np.ndarray:
    """Random numbers, the same for the same size."""
    return np.random.default_rng(size).normal(size=size).astype(np.float32)


def example(shape: FusedShape, networks: int, batch: int):
    """Input, weights, vectors, bias of the head and the output's gradient, for whole networks."""
    rng = np.random.default_rng(sum(shape))
    normal = lambda *size: rng.normal(size=(networks, *size)).astype(np.float32)
    width, count = shape.width, shape.layers // shape.leaves
    x = np.pad(normal(batch, shape.input), [(0, 0), (0, 0), (0, shape.inputs - shape.input)])
    scaled = lambda *size: normal(*size) / np.float32(np.sqrt(size[-2]))
    others = tuple(scaled(count, width, width) for _ in range(shape.leaves))
    weights = Weights(scaled(shape.input, width), others, scaled(width, shape.output))
    vectors = 0.3 * normal(1 + shape.layers, 3, width) + np.array([0, 0.5, 0], np.float32)[:, None]
    made = x.astype(jnp.bfloat16), weights, vectors, normal(shape.output), normal(batch, shape.output)
    return jax.tree.map(jnp.asarray, made)


def exactly(run: Callable[..., Any], *static: Any) -> Callable[..., Any]:
    """A reference as one program that rounds to bfloat16 wherever it says so."""
    options = {"xla_allow_excess_precision": False}
    return jax.jit(functools.partial(run, *static), compiler_options=options)


def plain_order(blocks) -> np.ndarray:
    """Rows and columns of a matrix that is kept in blocks of 8 × 8."""
    *leading, rows, columns = blocks.shape
    apart = np.asarray(blocks, np.float32).reshape(*leading, rows // 8, columns // 8, 8, 8)
    return apart.swapaxes(-3, -2).reshape(blocks.shape)


def from_registers(kept) -> np.ndarray:
    """Rows and columns of a matrix that is kept as a warp's registers hold it."""
    rows, columns = kept.shape[-2:]
    # 16 rows, 16 columns, row of 8, pair of columns of 8, block across, block below, column of the pair
    apart = np.asarray(kept, np.float32).reshape(-1, rows // 16, columns // 16, 8, 4, 2, 2, 2)
    return apart.transpose(0, 1, 6, 3, 2, 5, 4, 7).reshape(kept.shape)
