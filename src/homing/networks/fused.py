"""A whole network as one operation, with a gradient of its own, by the matrix units of Hopper cards.

One kernel takes the batch through all layers and the head, a second goes back, a third makes the gradients of all
weights; a fourth rounds the weights to bfloat16. Networks of several members and seeds are more blocks of the same
launch. Gradients that nobody asks for are not made: through a critic to the policy, those of weights.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from homing.compile import cuda, xla
from homing.networks.fused_passes import (
    KERNELS,
    MAX_OUTPUTS,
    ROWS,
    WIDTHS,
    FusedShape,
    Packed,
    Passes,
    Saved,
    Weights,
)
from homing.types import Array

DEEP, VERY_DEEP = 3, 8  # layers after the first
# Rows from which they were seen to be faster than what is there otherwise: kernels of the hidden layers, and XLA's.
# Very deep networks gain with any number of them.
DEEP_ROWS, SHALLOW_ROWS = 2048, 4096
# Whose results were compared with the layers' on a GPU; others only on an emulated one.
SEEN_WIDTHS = (128, 256)


class Parameters(NamedTuple):
    """Parameters of a network in float32."""

    first: Array  # [input, W]
    others: tuple[Array, ...]  # each [layers / leaves, W, W]
    head: Array  # [W, output]
    vectors: Array  # [1 + layers, 3, W]: bias of each layer, scale and shift of its LayerNorm
    bias: Array  # [output]: of the head

    @property
    def weights(self) -> Weights:
        """What products need."""
        return Weights(self.first, self.others, self.head)


def passes(shape: FusedShape, rows: int) -> Passes | None:
    """The kernels for a network of this shape and so many rows of all seeds; None where there are none.

    For fewer rows than their depth is worth they must be asked for: a tile has 64 of them, and few tiles leave most
    of a card idle. So they must for networks whose kernels have not been seen on a GPU since they were last changed.
    """
    if shape.width not in WIDTHS or shape.layers == 0 or shape.outputs > MAX_OUTPUTS:
        return None
    few = shape.layers < VERY_DEEP and rows < (DEEP_ROWS if shape.layers >= DEEP else SHALLOW_ROWS)
    unseen = shape.width not in SEEN_WIDTHS or not shape.norm
    return KERNELS if xla.cuda_kernels(asked_for=few or unseen, newest=xla.HOPPER) else None


def apply(passes: Passes, shape: FusedShape, x: Array, params: Parameters) -> Array:
    """Outputs [..., output] in float32 of inputs x [..., input]."""
    leading, count = x.shape[:-1], math.prod(x.shape[:-1])
    out: Any = _network(passes, shape, x.reshape(count, shape.input), params)
    return out.reshape(*leading, shape.output)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _network(passes: Passes, shape: FusedShape, x: Array, params: Parameters) -> Array:
    run = functools.partial(passes.apply, shape)
    packed = _together(functools.partial(passes.pack, shape), params.weights)
    return _together(run, _padded(x, shape), packed, _halved(params.vectors), params.bias)[: len(x)]


def _together(call: Any, *args: Any) -> Any:
    """`call`, which takes and returns arrays with an axis of networks, for one of them."""
    merged = cuda.over_leading_axis(call)
    return jax.tree.map(lambda a: a[0], merged(*jax.tree.map(lambda a: a[None], args)))


def _padded(x: Array, shape: FusedShape) -> Array:
    """Rows and inputs as the kernels take them."""
    return jnp.pad(x.astype(jnp.bfloat16), [(0, -len(x) % ROWS), (0, shape.inputs - shape.input)])


def _halved(vectors: Array) -> Array:
    """Biases, and half of scales and shifts: swish is h (1 + tanh h) of half of its input."""
    return vectors * jnp.asarray([1.0, 0.5, 0.5], jnp.float32)[:, None]


class _Kept(NamedTuple):
    """What the backward pass needs. What is asked for is known while tracing only; the lists' lengths tell."""

    packed: Packed
    vectors: Array
    saved: Saved
    rows: Array  # [B, 0]
    input: list[None]  # one entry: the input's gradient is asked for
    weights: list[None]  # one entry: those of the parameters are


def _forward(passes: Passes, shape: FusedShape, x: Any, params: Any) -> tuple[Array, _Kept]:
    wants_input = x.perturbed
    wants_weights = any(leaf.perturbed for leaf in jax.tree.leaves(params, is_leaf=_is_primal))
    x, params = jax.tree.map(lambda leaf: leaf.value, (x, params), is_leaf=_is_primal)
    packed = _together(functools.partial(passes.pack, shape), params.weights)
    run = functools.partial(passes.forward, shape, wants_weights)
    vectors = _halved(params.vectors)
    out, saved = _together(run, _padded(x, shape), packed, vectors, params.bias)
    kept = _Kept(packed, vectors, saved, x[:, :0], [None] * wants_input, [None] * wants_weights)
    return out[: len(x)], kept


def _is_primal(node: Any) -> bool:
    return isinstance(node, CustomVJPPrimal)


def _backward(passes: Passes, shape: FusedShape, kept: _Kept, grad: Any) -> tuple[Any, Any]:
    count = len(kept.rows)
    if isinstance(grad, SymbolicZero):
        grad = jnp.zeros((count, shape.output), jnp.float32)
    run = functools.partial(passes.backward, shape, bool(kept.weights), bool(kept.input))
    padded = jnp.pad(grad, [(0, -count % ROWS), (0, 0)])
    dx, made = _together(run, padded, kept.packed, kept.vectors, kept.saved)
    dx = None if dx is None else dx[:count]
    if made is None:
        return dx, None
    first, others, head = made.weights
    return dx, Parameters(first, others, head, made.vectors, jnp.sum(grad, axis=0))


_network.defvjp(_forward, _backward, symbolic_zeros=True)
