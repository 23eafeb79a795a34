"""The passes of a whole network: three CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from homing.compile import cuda
from homing.types import Array

ROWS = 64  # batches are multiples of it
UNITS = 64  # inputs of the first layer and outputs of the head too
PADDING = 8  # elements after each row in shared memory, against bank conflicts
SIZES = (16, 32, 64)  # rows of a tile
SPAN = 32  # rows of a warp's part of it
# Depth and number of tiles of weights, the best first.
PIPELINES = ((64, 4), (64, 3), (32, 4), (32, 3), (32, 2), (16, 3))
MANY_BLOCKS = 132  # multiprocessors of a large GPU
# Of the kernel for gradients of weights: its tiles, how deep their reduction is and how many are in flight.
SIDES = (64, 128)
SIDE_DEPTH, SIDE_STAGES = 64, 3


class TrunkShape(NamedTuple):
    """A network."""

    width: int
    inputs: int  # of the first layer, padded to a multiple of 64
    layers: int  # after the first
    norm: bool  # LayerNorm before the activation
    block: int  # layers that a skip connection goes around; 0: none
    outputs: int  # of the linear head, padded to a multiple of 64

    @property
    def rows(self) -> int:
        """Rows of the weights of all layers, below each other."""
        return self.inputs + self.layers * self.width

    @property
    def vectors(self) -> int:
        """Numbers in the vectors: bias, scale and shift of each layer, bias of the head."""
        return 3 * (1 + self.layers) * self.width + self.outputs


class Wanted(NamedTuple):
    """Gradients that are asked for."""

    inputs: bool
    weights: bool


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
        width, inputs, outputs = self.shape.width, self.shape.inputs, self.shape.outputs
        tile = max(self.depth * (max(width, outputs) + PADDING), max(width, inputs) * (self.depth + PADDING))
        activations = self.rows * (max(inputs, outputs, width) + width + 2 * PADDING)
        numbers = 2 * self.rows * self.across + 2 * width + self.rows
        return 2 * (activations + self.stages * tile) + 4 * numbers + 12 * (self.stages + 1)

    def defines(self, entry: str, wanted: Wanted) -> dict[str, int]:
        """What trunk.cu is compiled with."""
        return _defines(self.shape, entry) | {
            "ROWS": self.rows,
            "SPAN": self.span,
            "DEPTH": self.depth,
            "STAGES": self.stages,
            "SAVE": 2 if wanted.weights else int(wanted.inputs),
            "GRADS": int(wanted.weights),
            "DX": int(wanted.inputs),
        }


class WeightTiling(NamedTuple):
    """The same of the kernel for gradients of weights."""

    shape: TrunkShape
    batch: int
    parts: int  # of the sums for the vectors' gradients
    side: int  # of a block's tile

    @property
    def threads(self) -> int:
        """Threads of a block: a warp for half of the rows and 32 columns."""
        return 32 * 2 * (self.side // 32)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: tiles of inputs and of gradients."""
        return 2 * SIDE_STAGES * 2 * SIDE_DEPTH * (self.side + PADDING)

    @property
    def blocks(self) -> int:
        """Blocks of a network: one for a tile, and some for the vectors."""
        split = lambda count: -(-count // self.side)
        width = split(self.shape.width)
        tiles = split(self.shape.inputs) + self.shape.layers * width + split(self.shape.outputs)
        return width * tiles + -(-self.shape.vectors // self.threads)

    def defines(self) -> dict[str, int]:
        """What trunk.cu is compiled with."""
        unused = dict.fromkeys(("ROWS", "SPAN", "DEPTH", "STAGES"), 64)
        own = {"BATCH": self.batch, "PARTS": self.parts, "SIDE": self.side}
        return _defines(self.shape, "trunk_weights") | unused | own


def _defines(shape: TrunkShape, entry: str) -> dict[str, int]:
    return {
        entry.upper(): 1,
        "W": shape.width,
        "INPUTS": shape.inputs,
        "OUT": shape.outputs,
        "LAYERS": shape.layers,
        "NORM": int(shape.norm),
        "BLOCK": shape.block,
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


class Weights(NamedTuple):
    """The parameters of N networks, as the passes take them."""

    layers: Array  # [N, inputs + layers · W, W] bfloat16
    head: Array  # [N, 2, W, outputs] bfloat16: rounded, and what is left of it
    vectors: Array  # [N, vectors] float32: bias, scale and shift of each layer, bias of the head


class Saved(NamedTuple):
    """What the forward pass keeps for the backward pass, of N networks."""

    normed: Array  # [N, 1 + layers, B, W or more] normalised products, before scale and shift
    inverse: Array  # [N, 1 + layers, B] one over the standard deviation
    inputs: (
        Array | None
    )  # [N, 1 + layers, B, W] of the layers after the first and of the head; for gradients of weights


class Products(NamedTuple):
    """Gradients of the products of N networks."""

    layers: Array  # [N, 1 + layers, B, W]
    head: Array  # [N, B, outputs] bfloat16
    vectors: Array  # [N, parts, vectors] float32: of the vectors, summed over parts of the batch


class Passes(NamedTuple):
    """The passes of N networks; the tests have a reference in JAX beside the kernels.

    x [N, B, inputs] is bfloat16, B a multiple of 64.
    """

    forward: Callable[[TrunkShape, Wanted, Array, Weights], tuple[Array, Saved | None]]
    """Output [N, B, outputs] in float32, and what the gradients that are wanted need."""
    backward: Callable[[TrunkShape, Wanted, Array, Weights, Saved], tuple[Array | None, Products | None]]
    """From the output's gradient in float32: the input's [N, B, inputs], and those of all products."""
    weights: Callable[[TrunkShape, Array, Saved, Products], tuple[Array, Array, Array]]
    """Gradients of layers [N, inputs + layers · W, W], head [N, W, outputs] and vectors [N, vectors] in float32."""


def _tiling(shape: TrunkShape, networks: int, batch: int) -> Tiling:
    tiles = tiling(shape, networks * batch)
    assert tiles is not None, shape  # `trunk.passes` has checked it
    return tiles


def _call(
    shape: TrunkShape,
    entry: str,
    wanted: Wanted,
    outputs: Sequence[jax.ShapeDtypeStruct],
    inputs: Sequence[Array],
) -> list[Array]:
    networks, batch, _ = inputs[0].shape
    tiles = _tiling(shape, networks, batch)
    launch = cuda.Launch((batch // tiles.rows, networks, 1), tiles.threads, tiles.shared_bytes)
    kernel = cuda.kernel("homing.networks", "trunk.cu", entry, tiles.defines(entry, wanted))
    return list(cuda.call(kernel, launch, outputs, *inputs))


def row_tiles(weights: Weights) -> Array:
    """Weights [N, …] for the forward kernel: any number of padded rows is a tile as shared memory has it."""
    flat = lambda rows: jnp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, PADDING)]).reshape(rows.shape[0], -1)
    return jnp.concatenate([flat(weights.layers), flat(weights.head)], axis=1)


def column_tiles(shape: TrunkShape, weights: Weights, depth: int, first: bool) -> Array:
    """Weights [N, …] for the backward kernel, as tiles of `depth` columns in the order of their use."""

    def tiles(matrices: Array) -> Array:
        """Of matrices [N, count, rows, columns]."""
        networks, count, rows, columns = matrices.shape
        apart = matrices.reshape(networks, count, rows, columns // depth, depth).swapaxes(2, 3)
        return jnp.pad(apart, [(0, 0)] * 4 + [(0, PADDING)]).reshape(networks, -1)

    others = weights.layers[:, shape.inputs :].reshape(-1, shape.layers, shape.width, shape.width)
    parts = [tiles(weights.head[:, :1]), tiles(others[:, ::-1])]
    return jnp.concatenate(parts + [tiles(weights.layers[:, None, : shape.inputs])] * first, axis=1)


def _kernel_forward(
    shape: TrunkShape, wanted: Wanted, x: Array, weights: Weights
) -> tuple[Array, Saved | None]:
    networks, batch, _ = x.shape
    layers = (networks, 1 + shape.layers, batch)
    outputs = [jax.ShapeDtypeStruct((networks, batch, shape.outputs), jnp.float32)]
    if any(wanted):
        outputs.append(jax.ShapeDtypeStruct((*layers, shape.width + PADDING), jnp.bfloat16))
        outputs.append(jax.ShapeDtypeStruct(layers, jnp.float32))
    if wanted.weights:
        outputs.append(jax.ShapeDtypeStruct((*layers, shape.width), jnp.bfloat16))
    given = (x, row_tiles(weights), weights.vectors)
    out, *saved = _call(shape, "trunk_forward", wanted, outputs, given)
    if not saved:
        return out, None
    return out, Saved(saved[0], saved[1], saved[2] if wanted.weights else None)


def _kernel_backward(
    shape: TrunkShape, wanted: Wanted, gradient: Array, weights: Weights, saved: Saved
) -> tuple[Array | None, Products | None]:
    networks, batch, _ = gradient.shape
    tiles = _tiling(shape, networks, batch)
    products = [
        jax.ShapeDtypeStruct((networks, 1 + shape.layers, batch, shape.width), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, batch, shape.outputs), jnp.bfloat16),
        jax.ShapeDtypeStruct((networks, batch // tiles.span, shape.vectors), jnp.float32),
    ]
    dx = jax.ShapeDtypeStruct((networks, batch, shape.inputs), jnp.bfloat16)
    outputs = products * wanted.weights + [dx] * wanted.inputs
    columns = column_tiles(shape, weights, tiles.depth, wanted.inputs)
    given = (gradient, columns, weights.vectors, saved.normed, saved.inverse)
    made = _call(shape, "trunk_backward", wanted, outputs, given)
    return made[-1] if wanted.inputs else None, Products(*made[:3]) if wanted.weights else None


def weight_tiling(shape: TrunkShape, networks: int, batch: int, parts: int) -> WeightTiling:
    """Large tiles read less, but only many of them fill a GPU."""
    small, large = (WeightTiling(shape, batch, parts, side) for side in SIDES)
    return large if networks * large.blocks >= MANY_BLOCKS else small


def _kernel_weights(
    shape: TrunkShape, x: Array, saved: Saved, products: Products
) -> tuple[Array, Array, Array]:
    networks, batch, _ = x.shape
    tiles = weight_tiling(shape, networks, batch, products.vectors.shape[1])
    outputs = [
        jax.ShapeDtypeStruct((networks, shape.rows, shape.width), jnp.float32),
        jax.ShapeDtypeStruct((networks, shape.width, shape.outputs), jnp.float32),
        jax.ShapeDtypeStruct((networks, shape.vectors), jnp.float32),
    ]
    launch = cuda.Launch((tiles.blocks, networks, 1), tiles.threads, tiles.shared_bytes)
    kernel = cuda.kernel("homing.networks", "trunk.cu", "trunk_weights", tiles.defines())
    assert saved.inputs is not None
    given = (x, saved.inputs, products.layers, products.head, products.vectors)
    d_layers, d_head, d_vectors = cuda.call(kernel, launch, outputs, *given)
    return d_layers, d_head, d_vectors


KERNELS = Passes(_kernel_forward, _kernel_backward, _kernel_weights)
