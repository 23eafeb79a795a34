"""The passes of a trunk, the hidden layers of a network: two CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from homing.compile import cuda
from homing.types import Array

ROWS = 64  # batches are multiples of it
INPUTS = 64  # the first layer's inputs too
PADDING = 8  # elements after each row in shared memory, against bank conflicts
SIZES = (16, 32, 64)  # rows of a tile
SPAN = 32  # rows of a warp's part of it
# Depth and number of tiles of weights, the best first.
PIPELINES = ((64, 3), (32, 4), (32, 3), (32, 2), (16, 3))
MANY_BLOCKS = 132  # multiprocessors of a large GPU


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
    """The two passes of N networks; the tests have a reference in JAX beside the kernels.

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
