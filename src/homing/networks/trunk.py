"""The hidden layers of a network as one operation, with a gradient of its own.

Compiled layer by layer, a deep network of a few hundred units is dozens of kernels of a few microseconds each. Here
one kernel takes a tile of the batch through all layers, a second goes back through them, and the weight gradients of
all layers are one batched product. Networks of several members and seeds are more blocks of the same launch.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from homing.compile import cuda, xla
from homing.networks.trunk_passes import INPUTS, KERNELS, ROWS, Passes, Saved, TrunkShape, tiling
from homing.types import Array

MIN_ROWS = 128  # of a batch; fewer leave most of a GPU idle either way
MIN_LAYERS = 3  # after the first; of fewer the kernels were seen to be no faster
MIN_WIDTH, MAX_WIDTH = 64, 1024
SEEN_WIDTH = 512  # the speed of wider networks has not been measured: they must be asked for


def passes(shape: TrunkShape) -> Passes | None:
    """The kernels for a network of this shape; None where the layers are compiled by XLA."""
    step = 32 if shape.width <= 512 else 64
    fits = MIN_WIDTH <= shape.width <= MAX_WIDTH and shape.width % step == 0
    asked_for = shape.layers < MIN_LAYERS or shape.width > SEEN_WIDTH
    if not fits or shape.layers == 0 or not xla.cuda_kernels(asked_for=asked_for):
        return None
    return KERNELS if tiling(shape, MIN_ROWS) is not None else None


def apply(passes: Passes, shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> Array:
    """Features [..., W] in bfloat16 of inputs x [..., ≤ shape.inputs].

    weights: [inputs + layers · W, W] float32, those of the first layer padded with zeros
    vectors: [1 + layers, 3, W] float32: bias of each layer, scale and shift of its LayerNorm
    """
    leading, count = x.shape[:-1], math.prod(x.shape[:-1])
    rows = x.reshape(count, x.shape[-1]).astype(jnp.bfloat16)
    rows = jnp.pad(rows, [(0, -count % ROWS), (0, shape.inputs - x.shape[-1])])
    features: Any = _trunk(passes, shape, rows, weights, vectors)
    return features[:count].reshape(*leading, shape.width)


def padded(inputs: int) -> int:
    """Width of the first layer's inputs in the kernels."""
    return -(-inputs // INPUTS) * INPUTS


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _trunk(passes: Passes, shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> Array:
    call = cuda.over_leading_axis(functools.partial(passes.apply, shape))
    return call(x[None], weights.astype(jnp.bfloat16)[None], vectors[None])[0]


def _forward(
    passes: Passes, shape: TrunkShape, x: Array, weights: Array, vectors: Array
) -> tuple[Array, tuple[Array, Array, Array, Saved]]:
    call = cuda.over_leading_axis(functools.partial(passes.forward, shape))
    weights = weights.astype(jnp.bfloat16)
    out, saved = jax.tree.map(lambda a: a[0], call(x[None], weights[None], vectors[None]))
    return out, (x, weights, vectors, saved)


def _backward(
    passes: Passes, shape: TrunkShape, kept: tuple[Array, Array, Array, Saved], grad: Array
) -> tuple[Array, Array, Array]:
    x, weights, vectors, saved = kept
    call = cuda.over_leading_axis(functools.partial(passes.backward, shape))
    given = jax.tree.map(lambda a: a[None], (grad, weights, vectors, saved))
    first, others, d_vectors = (a[0] for a in call(*given))
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    d_first = product("bi,bo->io", x, first)
    d_others = product("lbi,lbo->lio", saved.inputs, others).reshape(-1, shape.width)
    dx = jnp.dot(first, weights[: shape.inputs].T)
    return dx, jnp.concatenate([d_first, d_others]), d_vectors


_trunk.defvjp(_forward, _backward)
