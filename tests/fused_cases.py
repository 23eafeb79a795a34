"""Fused networks to compare, and their arrays in plain order."""

import jax.numpy as jnp
import numpy as np

from homing.networks.fused_passes import FusedShape, Weights


def distance(a, b) -> float:
    """‖a − b‖ / ‖b‖."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def example(shape: FusedShape, networks: int, batch: int):
    rng = np.random.default_rng(sum(shape))
    normal = lambda *size: jnp.asarray(rng.normal(size=(networks, *size)), jnp.float32)
    width, count = shape.width, shape.layers // shape.leaves
    x = jnp.pad(normal(batch, shape.input), [(0, 0), (0, 0), (0, shape.inputs - shape.input)])
    others = tuple(normal(count, width, width) / np.sqrt(width) for _ in range(shape.leaves))
    first, head = normal(shape.input, width) / np.sqrt(shape.input), normal(width, shape.output)
    vectors = 0.3 * normal(1 + shape.layers, 3, width) + jnp.asarray([0, 0.5, 0], jnp.float32)[:, None]
    weights = Weights(first, others, head / np.sqrt(width))
    return x.astype(jnp.bfloat16), weights, vectors, normal(shape.output), normal(batch, shape.output)


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
