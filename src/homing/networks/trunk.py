"""A whole network as one operation, with a gradient of its own.

Compiled layer by layer, a network of a few hundred units is dozens of kernels of a few microseconds each. Here one
kernel takes a tile of the batch through all layers and the head, a second goes back through them, and a third makes
the gradients of all weights. Networks of several members and seeds are more blocks of the same launch.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from homing.compile import cuda, xla
from homing.networks.trunk_passes import (
    KERNELS,
    ROWS,
    UNITS,
    Passes,
    Saved,
    TrunkShape,
    Wanted,
    Weights,
    tiling,
)
from homing.types import Array

MIN_ROWS = 128  # of a batch; fewer leave most of a GPU idle either way
MIN_LAYERS = 3  # after the first; of fewer the kernels were seen to be no faster
MIN_WIDTH, MAX_WIDTH = 64, 1024
SEEN_WIDTH = 512  # wider networks do not pass their test on a card: they must be asked for


class Parameters(NamedTuple):
    """Parameters of a network in float32."""

    layers: Array  # [inputs + layers · W, W], those of the first layer padded with zeros
    vectors: Array  # [1 + layers, 3, W]: bias of each layer, scale and shift of its LayerNorm
    head: Array  # [W, ≤ outputs]
    bias: Array  # [≤ outputs]


def passes(shape: TrunkShape) -> Passes | None:
    """The kernels for a network of this shape; None where the layers are compiled by XLA."""
    step = 32 if shape.width <= 512 else 64
    fits = MIN_WIDTH <= shape.width <= MAX_WIDTH and shape.width % step == 0
    asked_for = shape.layers < MIN_LAYERS or shape.width > SEEN_WIDTH
    if not fits or shape.layers == 0 or not xla.cuda_kernels(asked_for=asked_for):
        return None
    return KERNELS if tiling(shape, MIN_ROWS) is not None else None


def apply(passes: Passes, shape: TrunkShape, x: Array, params: Parameters) -> Array:
    """Outputs [..., those of the head] in float32 of inputs x [..., ≤ shape.inputs]."""
    leading, count = x.shape[:-1], math.prod(x.shape[:-1])
    rows = x.reshape(count, x.shape[-1]).astype(jnp.bfloat16)
    rows = jnp.pad(rows, [(0, -count % ROWS), (0, shape.inputs - x.shape[-1])])
    outputs = params.head.shape[-1]
    more = shape.outputs - outputs
    head, bias = jnp.pad(params.head, [(0, 0), (0, more)]), jnp.pad(params.bias, [(0, more)])
    out: Any = _network(passes, shape, rows, params.layers, head, params.vectors, bias)
    return out[:count, :outputs].reshape(*leading, outputs)


def padded(units: int) -> int:
    """Inputs of the first layer, or outputs of the head, in the kernels."""
    return -(-units // UNITS) * UNITS


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _network(
    passes: Passes, shape: TrunkShape, x: Array, layers: Array, head: Array, vectors: Array, bias: Array
) -> Array:
    return _run_forward(passes, shape, Wanted(False, False), x, _weights(layers, head, vectors, bias))[0]


def _weights(layers: Array, head: Array, vectors: Array, bias: Array) -> Weights:
    # Two parts of the head in bfloat16 are as exact as float32 products by tensor cores.
    rounded = lax.reduce_precision(head, exponent_bits=8, mantissa_bits=7)
    both = jnp.stack([rounded, head - rounded]).astype(jnp.bfloat16)
    return Weights(layers.astype(jnp.bfloat16), both, jnp.concatenate([vectors.ravel(), bias]))


def _run_forward(passes: Passes, shape: TrunkShape, wanted: Wanted, x: Array, weights: Weights) -> Any:
    return cuda.over_batches(functools.partial(passes.forward, shape, wanted), x, weights)


def _forward(passes: Passes, shape: TrunkShape, *given: Any) -> tuple[Array, Any]:
    x, *params = (each.value for each in given)
    wanted = Wanted(given[0].perturbed, any(each.perturbed for each in given[1:]))
    weights = _weights(*params)
    out, saved = _run_forward(passes, shape, wanted, x, weights)
    # What is wanted is known while tracing only; its length tells.
    return out, (x, weights, saved, [None] * wanted.inputs, [None] * wanted.weights)


def _backward(passes: Passes, shape: TrunkShape, kept: Any, grad: Any) -> tuple[Any, ...]:
    x, weights, saved, *lists = kept
    wanted = Wanted(*(len(each) > 0 for each in lists))
    if isinstance(grad, SymbolicZero):
        grad = jnp.zeros((x.shape[0], shape.outputs), jnp.float32)
    dx, made = cuda.over_batches(
        functools.partial(_gradients, passes, shape, wanted), grad, x, weights, saved
    )
    if made is None:
        return dx, None, None, None, None
    d_layers, d_head, d_vectors = made
    of_layers = d_vectors[: -shape.outputs].reshape(1 + shape.layers, 3, shape.width)
    return dx, d_layers, d_head, of_layers, d_vectors[-shape.outputs :]


def _gradients(
    passes: Passes, shape: TrunkShape, wanted: Wanted, grad: Array, x: Array, weights: Weights, saved: Saved
) -> tuple[Any, Any]:
    # Both at once: how the sums over a batch are divided depends on the number of networks.
    dx, products = passes.backward(shape, wanted, grad, weights, saved)
    return dx, None if products is None else passes.weights(shape, x, saved, products)


_network.defvjp(_forward, _backward, symbolic_zeros=True)
