"""The passes of a trunk, the hidden layers of a network: two CUDA kernels, and the same arithmetic in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.compile import cuda
from homing.types import Array

ROWS = 64  # batches are multiples of it
INPUTS = 64  # the first layer's inputs too
PADDING = 8  # elements after each row in shared memory, against bank conflicts
SIZES = (16, 32, 64)  # rows of a tile
SPAN = 32  # rows of a warp's part of it
PIPELINES = (
    (64, 3),
    (32, 4),
    (32, 3),
    (32, 2),
    (16, 3),
)  # depth and number of tiles of weights, the best first
MANY_BLOCKS = 132  # multiprocessors of a large GPU
EPSILON = 1e-6  # of the LayerNorm


class TrunkShape(NamedTuple):
    """Hidden layers of a network."""

    width: int
    inputs: int  # of the first layer, padded to a multiple of 64
    layers: int  # after the first
    norm: bool  # LayerNorm before the activation
    block: int  # layers that a skip connection goes around; 0: none


class Tiling(NamedTuple):
    """How a kernel divides its work."""

    shape: TrunkShape
    rows: int  # of the batch that a thread block takes through all layers
    span: int  # rows of them that one warp computes
    depth: int  # of the reduction in one tile of weights
    stages: int  # tiles of weights in flight

    @property
    def across(self) -> int:
        """Warps side by side: one for 32 columns, of wide layers for 64."""
        return self.shape.width // (32 if self.shape.width <= 512 else 64)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return 32 * self.across * self.rows // self.span

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: two tiles of activations, tiles of weights, sums over rows, scale and shift."""
        width = self.shape.width
        tile = max(self.depth * (width + PADDING), width * (self.depth + PADDING))
        activations = self.rows * (max(self.shape.inputs, width) + width + 2 * PADDING)
        numbers = 2 * self.rows * self.across + 2 * width + self.rows
        return 2 * (activations + self.stages * tile) + 4 * numbers + 8 * (self.stages + 1)

    def defines(self, entry: str, save: bool = True) -> dict[str, int]:
        """What trunk.cu is compiled with."""
        return {
            entry.upper(): 1,
            "W": self.shape.width,
            "INPUTS": self.shape.inputs,
            "LAYERS": self.shape.layers,
            "ROWS": self.rows,
            "SPAN": self.span,
            "DEPTH": self.depth,
            "STAGES": self.stages,
            "NORM": int(self.shape.norm),
            "BLOCK": self.shape.block,
            "SAVE": int(save),
        }


def tiling(shape: TrunkShape, rows: int) -> Tiling | None:
    """How a batch of `rows` rows, those of all networks together, is divided; None if a block does not fit."""
    most = 64 if shape.width <= 256 else 32 if shape.width <= 512 else 16
    enough = min((size for size in SIZES if rows <= size * MANY_BLOCKS), default=most)
    sizes = [size for size in reversed(SIZES) if size <= min(most, enough)]
    fitting = (
        tiles
        for size in sizes
        for depth, stages in PIPELINES
        if shape.width % depth == 0
        and (tiles := Tiling(shape, size, min(size, SPAN), depth, stages)).shared_bytes
        <= cuda.shared_memory()
    )
    return next(fitting, None)


class Saved(NamedTuple):
    """What the forward pass keeps for the backward pass, of N networks."""

    inputs: Array  # [N, layers, B, W] of the layers after the first
    normed: Array  # [N, 1 + layers, B, W or more] normalised products, before scale and shift
    inverse: Array  # [N, 1 + layers, B] one over the standard deviation


class Passes(NamedTuple):
    """The two passes of N networks; by kernels, or by their reference in JAX.

    x [N, B, inputs] and weights [N, inputs + layers · W, W] are bfloat16; vectors [N, 1 + layers, 3, W] are float32:
    bias, scale and shift of each layer. B is a multiple of 64.
    """

    apply: Callable[[TrunkShape, Array, Array, Array], Array]
    """Output [N, B, W]."""
    forward: Callable[[TrunkShape, Array, Array, Array], tuple[Array, Saved]]
    """Output, and what the backward pass needs."""
    backward: Callable[[TrunkShape, Array, Array, Array, Saved], tuple[Array, Array, Array]]
    """From the output's gradient: those of the products of the first layer [N, B, W] and of the others
    [N, layers, B, W], and those of the vectors [N, 1 + layers, 3, W]."""


# The kernels.


def _tiling(shape: TrunkShape, networks: int, batch: int) -> Tiling:
    tiles = tiling(shape, networks * batch)
    assert tiles is not None, shape  # `trunk.passes` has checked it
    return tiles


def _call(
    shape: TrunkShape,
    entry: str,
    outputs: Sequence[jax.ShapeDtypeStruct],
    inputs: Sequence[Array],
    save: bool = True,
) -> tuple[Array, ...]:
    networks, batch, _ = inputs[0].shape
    tiles = _tiling(shape, networks, batch)
    launch = cuda.Launch((batch // tiles.rows, networks, 1), tiles.threads, tiles.shared_bytes)
    kernel = cuda.kernel("homing.networks", "trunk.cu", entry, tiles.defines(entry, save))
    return cuda.call(kernel, launch, outputs, *inputs)


def _row_tiles(weights: Array) -> Array:
    """Weights [N, R, W] with padded rows: any number of them is a tile in the layout of shared memory."""
    return jnp.pad(weights, [(0, 0), (0, 0), (0, PADDING)])


def _column_tiles(weights: Array, shape: TrunkShape, depth: int) -> Array:
    """Weights [N, layers · W, W] as tiles of `depth` columns [N, layers, W / depth, W, depth + padding]."""
    width = shape.width
    apart = weights.reshape(-1, shape.layers, width, width // depth, depth).swapaxes(2, 3)
    return jnp.pad(apart, [(0, 0)] * 4 + [(0, PADDING)])


def _kernel_apply(shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> Array:
    networks, batch, _ = x.shape
    out = [jax.ShapeDtypeStruct((networks, batch, shape.width), jnp.bfloat16)]
    return _call(shape, "trunk_forward", out, (x, _row_tiles(weights), vectors), save=False)[0]


def _kernel_forward(shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> tuple[Array, Saved]:
    networks, batch, _ = x.shape
    outputs = [
        jax.ShapeDtypeStruct((networks, batch, shape.width), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, shape.layers, batch, shape.width), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, 1 + shape.layers, batch, shape.width + PADDING), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, 1 + shape.layers, batch), jnp.float32),
    ]
    out, *saved = _call(shape, "trunk_forward", outputs, (x, _row_tiles(weights), vectors))
    return out, Saved(*saved)


def _kernel_backward(
    shape: TrunkShape, gradient: Array, weights: Array, vectors: Array, saved: Saved
) -> tuple[Array, Array, Array]:
    networks, batch, width = gradient.shape
    tiles = _tiling(shape, networks, batch)
    outputs = [
        jax.ShapeDtypeStruct((networks, batch, width), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, shape.layers, batch, width), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, batch // tiles.span, 1 + shape.layers, 3, width), jnp.float32),
    ]
    columns = _column_tiles(weights[:, shape.inputs :], shape, tiles.depth)
    given = (gradient, columns, vectors, saved.normed, saved.inverse)
    first, others, sums = _call(shape, "trunk_backward", outputs, given)
    return first, others, jnp.sum(sums, axis=1)


KERNELS = Passes(_kernel_apply, _kernel_forward, _kernel_backward)


# The same arithmetic in JAX: what the kernels are tested against, and how the glue around them is tested on a CPU.


def _reference_forward(shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> tuple[Array, Saved]:
    inputs, normed, inverse = [], [], []
    skip = None
    for layer, kernel in enumerate(_kernels(shape, weights)):
        bias, scale, shift = (vectors[:, layer, i, None] for i in range(3))
        if layer > 0:
            inputs.append(x)
        z = _product("nbi,nio->nbo", x, kernel) + bias
        inv = jnp.ones(z.shape[:-1], jnp.float32)
        if shape.norm:
            inv = lax.rsqrt(jnp.var(z, axis=-1) + EPSILON)
            z = (z - jnp.mean(z, axis=-1, keepdims=True)) * inv[..., None]
        normed.append(z.astype(jnp.bfloat16))
        inverse.append(inv)
        y = jax.nn.swish(z * scale + shift if shape.norm else z)
        if shape.block and layer % shape.block == 0:
            x = skip = (y if skip is None else y + skip.astype(jnp.float32)).astype(jnp.bfloat16)
        else:
            x = y.astype(jnp.bfloat16)
    empty = jnp.zeros((x.shape[0], 0, *x.shape[1:]), jnp.bfloat16)
    stacked = jnp.stack(inputs, axis=1) if inputs else empty
    return x, Saved(stacked, jnp.stack(normed, axis=1), jnp.stack(inverse, axis=1))


def _reference_apply(shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> Array:
    return _reference_forward(shape, x, weights, vectors)[0]


def _reference_backward(
    shape: TrunkShape, gradient: Array, weights: Array, vectors: Array, saved: Saved
) -> tuple[Array, Array, Array]:
    kernels = _kernels(shape, weights)
    g = gradient.astype(jnp.float32)
    products, sums, skip = [], [], g
    for layer in range(shape.layers, -1, -1):
        _, scale, shift = (vectors[:, layer, i, None] for i in range(3))
        if shape.block and layer > 0 and layer % shape.block == 0:
            skip = g.astype(jnp.bfloat16).astype(jnp.float32)
        n = saved.normed[:, layer].astype(jnp.float32)
        u = n * scale + shift if shape.norm else n
        s = jax.nn.sigmoid(u)
        d = g * s * (1 + u * (1 - s))
        scaled = d * n, d
        if shape.norm:
            d = d * scale
            along = jnp.mean(d * n, axis=-1, keepdims=True)
            d = saved.inverse[:, layer, :, None] * (d - jnp.mean(d, axis=-1, keepdims=True) - n * along)
        else:
            scaled = jnp.zeros_like(d), jnp.zeros_like(d)
        sums.append(jnp.stack([jnp.sum(each, axis=1) for each in (d, *scaled)], axis=1))
        products.append(d.astype(jnp.bfloat16))
        if layer > 0:
            g = _product("nbo,nio->nbi", products[-1], kernels[layer])
            if shape.block and (layer - 1) % shape.block == 0:
                g = g + skip
    *others, first = products
    return first, jnp.stack(others[::-1], axis=1), jnp.stack(sums[::-1], axis=1)


def _kernels(shape: TrunkShape, weights: Array) -> list[Array]:
    """Weights of each layer [N, in, W]."""
    ends = [shape.inputs + layer * shape.width for layer in range(shape.layers)]
    return jnp.split(weights, ends, axis=1)


def _product(spec: str, a: Array, b: Array) -> Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


REFERENCE = Passes(_reference_apply, _reference_forward, _reference_backward)
