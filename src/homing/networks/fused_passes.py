"""The passes of whole networks on Hopper cards: four CUDA kernels, see fused.cuh and fused_weights.cu."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from homing.compile import cuda
from homing.types import Array

PACKAGE = "homing.networks"  # whose files the kernels are
UNITS = 64  # inputs and outputs are padded to multiples of it
ROWS = 64  # of the batch that go through all layers together
WIDTHS = (64, 128, 192, 256)
MAX_OUTPUTS = 256
MULTIPROCESSORS = 132  # of a Hopper card
FEW_ROWS = 2048  # of all networks: below, blocks share the columns of 64 rows, since multiprocessors are left
# Tiles of weights in flight, the best first: by a tile's depth, and of gradients' inputs.
CHUNKS = ((64, (5, 4)), (32, (6, 5, 4, 3)))
STAGES = (6, 5, 4, 3, 2)
THREADS = 128  # of a warpgroup
PACKED_ROWS = 8  # that a block of threads packs
PACKING_THREADS = 256


class FusedShape(NamedTuple):
    """A network of hidden layers and a linear head."""

    width: int
    input: int
    layers: int  # after the first
    norm: bool  # LayerNorm before the activation
    block: int  # layers that a skip connection goes around; 0: none
    output: int

    @property
    def inputs(self) -> int:
        """Inputs, padded."""
        return -(-self.input // UNITS) * UNITS

    @property
    def outputs(self) -> int:
        """Outputs, padded."""
        return -(-self.output // UNITS) * UNITS

    @property
    def leaves(self) -> int:
        """Arrays that the weights of the layers after the first come in."""
        return max(self.block, 1)

    def defines(self, entry: str, **more: int) -> dict[str, int]:
        """What a kernel is compiled with."""
        return {
            entry.upper(): 1,
            "W": self.width,
            "INPUT": self.input,
            "INPUTS": self.inputs,
            "LAYERS": self.layers,
            "OUTPUT": self.output,
            "OUTPUTS": self.outputs,
            "NORM": int(self.norm),
            "BLOCK": self.block,
            "LEAVES": self.leaves,
            **more,
        }


class Division(NamedTuple):
    """Who computes 64 rows of the batch, a tile."""

    groups: int  # tiles of a block
    split: int = 1  # warpgroups of a block that share a tile's columns
    cluster: int = 1  # blocks that do

    @property
    def slices(self) -> int:
        """Warpgroups that share the columns of a tile."""
        return self.split * self.cluster


class Tiling(NamedTuple):
    """How a kernel divides its work."""

    division: Division
    stages: int  # tiles of weights in flight
    shared_bytes: int
    chunk: int = UNITS  # steps of a reduction in one of them

    @property
    def rows(self) -> int:
        """Rows of the batch, or of a gradient, in a block."""
        return ROWS * self.division.groups

    @property
    def threads(self) -> int:
        """Threads of a block; one more warpgroup copies."""
        return THREADS * (self.division.groups * self.division.split + 1)

    @property
    def defines(self) -> dict[str, int]:
        """What a kernel is compiled with."""
        groups, split, cluster = self.division
        return {
            "GROUPS": groups,
            "SPLIT": split,
            "CLUSTER": cluster,
            "STAGES": self.stages,
            "CHUNK": self.chunk,
        }


def division_of(shape: FusedShape, networks: int, batch: int) -> Division:
    """Who computes 64 rows in the forward and backward kernel.

    One tile in a block is done sooner, by more warpgroups and, where multiprocessors are left over, more blocks;
    two get more done where there are more tiles than multiprocessors.
    """
    rows = networks * batch
    if rows < FEW_ROWS:
        # A warpgroup's columns are a multiple of 16.
        return Division(1, 2, 4 if shape.width % 128 == 0 else 2)
    if rows > ROWS * MULTIPROCESSORS and batch % (2 * ROWS) == 0:
        return Division(2, 2)
    return Division(1, 4)


def _tiling(shape: FusedShape, division: Division, others: int) -> Tiling:
    """The deepest tiles of weights that fit beside others."""
    others += 8 * ROWS * division.groups * division.slices + 8 * (2 * STAGES[0] + 10)
    fitting = (
        Tiling(division, stages, needed, chunk)
        for chunk, counts in CHUNKS
        for stages in counts
        if (needed := 2 * stages * chunk * max(shape.width, shape.outputs) + others) <= cuda.shared_memory()
    )
    return next(fitting)


def forward_tiling(shape: FusedShape, division: Division) -> Tiling:
    """Tiles of weights, left operands, and two layers' vectors."""
    return _tiling(shape, division, 2 * ROWS * shape.width * division.groups + 24 * shape.width)


def backward_tiling(shape: FusedShape, division: Division, weights: bool) -> Tiling:
    """Tiles of weights, a layer's normalised products, left operands, two layers' vectors, sums over rows."""
    others = 2 * ROWS * division.groups * (shape.width + max(shape.width, shape.outputs)) + 16 * shape.width
    return _tiling(shape, division, others + (32 * shape.width * division.groups if weights else 0))


def weights_tiling(shape: FusedShape, networks: int) -> Tiling:
    """Tiles of inputs beside those of gradients.

    64 rows of a gradient by each warpgroup: two in a block get more done, one is done sooner where multiprocessors
    are left over, of which networks beside these need some too.
    """
    rows = (shape.layers + 2) * shape.width
    groups = 2 if rows % (2 * ROWS) == 0 and networks * rows > ROWS * MULTIPROCESSORS // 2 else 1
    tile, barriers = 2 * UNITS * (ROWS * groups + max(shape.width, shape.outputs)), 16 * STAGES[0]
    stages = next(stages for stages in STAGES if stages * tile + barriers <= cuda.shared_memory())
    return Tiling(Division(groups), stages, stages * tile + barriers)


class Weights(NamedTuple):
    """Weights of N networks in float32, or their gradients."""

    first: Array  # [N, input, W]
    others: tuple[Array, ...]  # each [N, layers / leaves, W, W]; layer l is in array (l - 1) % leaves
    head: Array  # [N, W, output]


class Packed(NamedTuple):
    """The same in bfloat16, as the kernels read them."""

    weights: Array  # [N, inputs + layers · W, W], in blocks of 8 × 8
    heads: Array  # [N, 2, W, outputs], in blocks: the head's, and what rounding left of them


class Saved(NamedTuple):
    """What the forward pass keeps for the backward pass; the last two for the gradients of weights only."""

    normed: (
        Array  # [N, 1 + layers, B, W] normalised products, before scale and shift, in the order of registers
    )
    inverse: Array  # [N, 1 + layers, B] one over the standard deviation
    inputs: Array | None = None  # [N, B, inputs], in blocks
    activations: Array | None = None  # [N, 1 + layers, B, W], in blocks


class Gradients(NamedTuple):
    """Gradients of the parameters of N networks, but for the head's bias."""

    weights: Weights
    vectors: Array  # [N, 1 + layers, 3, W]


class Passes(NamedTuple):
    """The passes of N networks; the tests have a reference in JAX beside the kernels.

    x [N, B, inputs] is bfloat16; vectors [N, 1 + layers, 3, W] are float32: bias and half of the scale and shift of
    each layer (gradients are those of the whole); bias [N, output] is the head's. B is a multiple of 64.
    """

    pack: Callable[[FusedShape, Weights], Packed]
    apply: Callable[[FusedShape, Array, Packed, Array, Array], Array]
    """Output [N, B, output] in float32."""
    forward: Callable[[FusedShape, bool, Array, Packed, Array, Array], tuple[Array, Saved]]
    """Output, and what the backward pass needs: with True, to make gradients of parameters."""
    backward: Callable[
        [FusedShape, bool, bool, Array, Packed, Array, Saved], tuple[Array | None, Gradients | None]
    ]
    """From the output's gradient [N, B, output], those of parameters (first flag) and of the input (second),
    [N, B, input]; None where not asked for."""


def _call(
    shape: FusedShape,
    entry: str,
    tiles: Tiling,
    grid: tuple[int, int],
    outputs: Sequence[jax.ShapeDtypeStruct],
    inputs: Sequence[Array],
    **more: int,
) -> tuple[Array, ...]:
    launch = cuda.Launch((*grid, 1), tiles.threads, tiles.shared_bytes)
    kernel = cuda.kernel(PACKAGE, f"{entry}.cu", entry, shape.defines(entry, **tiles.defines, **more))
    return cuda.call(kernel, launch, outputs, *inputs)


def _bfloat16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _pack(shape: FusedShape, weights: Weights) -> Packed:
    networks, width, rows = len(weights.first), shape.width, shape.inputs + shape.layers * shape.width
    outputs = [_bfloat16(networks, rows, width), _bfloat16(networks, 2, width, shape.outputs)]
    kernel = cuda.kernel(PACKAGE, "fused_weights.cu", "fused_pack", shape.defines("fused_pack"))
    launch = cuda.Launch(((rows + width) // PACKED_ROWS, networks, 1), PACKING_THREADS, 0)
    return Packed(*cuda.call(kernel, launch, outputs, weights.first, *weights.others, weights.head))


def _run_forward(
    shape: FusedShape, save: int, x: Array, packed: Packed, vectors: Array, bias: Array
) -> tuple[Array, ...]:
    networks, batch, _ = x.shape
    division = division_of(shape, networks, batch)
    tiles = forward_tiling(shape, division)
    kept = networks, 1 + shape.layers, batch
    outputs = [
        _float32(networks, batch, shape.output),
        _bfloat16(*kept, shape.width),
        _float32(*kept),
        _bfloat16(networks, batch, shape.inputs),
        _bfloat16(*kept, shape.width),
    ]
    wanted = outputs[: (1, 3, 5)[save]]
    room = _room(shape, division, networks, batch)
    grid = batch // tiles.rows * division.cluster, networks
    given = x, *packed, vectors, bias
    made = _call(shape, "fused_forward", tiles, grid, [*wanted, *room], given, SAVE=save)
    return made[: len(wanted)]


def _room(shape: FusedShape, division: Division, networks: int, batch: int) -> list[jax.ShapeDtypeStruct]:
    """What a kernel keeps for itself: values that skip layers, where there are too few registers for them."""
    return [_bfloat16(networks, batch, shape.width)] if shape.block and division.groups == 2 else []


def _apply(shape: FusedShape, x: Array, packed: Packed, vectors: Array, bias: Array) -> Array:
    return _run_forward(shape, 0, x, packed, vectors, bias)[0]


def _forward(
    shape: FusedShape, weights: bool, x: Array, packed: Packed, vectors: Array, bias: Array
) -> tuple[Array, Saved]:
    out, *saved = _run_forward(shape, 2 if weights else 1, x, packed, vectors, bias)
    return out, Saved(*saved)


def _backward(
    shape: FusedShape,
    weights: bool,
    d_input: bool,
    gradient: Array,
    packed: Packed,
    vectors: Array,
    saved: Saved,
) -> tuple[Array | None, Gradients | None]:
    networks, batch, _ = gradient.shape
    division = division_of(shape, networks, batch)
    tiles = backward_tiling(shape, division, weights)
    layers = 1 + shape.layers
    room = _room(shape, division, networks, batch)
    outputs = [*room, *([_float32(networks, batch, shape.input)] if d_input else [])]
    if weights:
        outputs += [
            _bfloat16(networks, batch, shape.outputs),
            _bfloat16(networks, layers, batch, shape.width),
            _float32(networks, batch // ROWS, layers, 2, shape.width),
        ]
    given = gradient, *packed, vectors, saved.normed, saved.inverse
    flags = {"WEIGHTS": int(weights), "D_INPUT": int(d_input)}
    grid = batch // tiles.rows * division.cluster, networks
    made = list(_call(shape, "fused_backward", tiles, grid, outputs, given, **flags))
    del made[: len(room)]
    dx = made.pop(0) if d_input else None
    if not weights:
        return dx, None
    d_output, d_products, parts = made
    return dx, _gradients(shape, saved, d_products, d_output, parts)


def _gradients(
    shape: FusedShape, saved: Saved, d_products: Array, d_output: Array, parts: Array
) -> Gradients:
    networks, batch, _ = d_output.shape
    width = shape.width
    tiles = weights_tiling(shape, networks)
    blocks_of = lambda rows: -(-rows // tiles.rows)
    grid = blocks_of(shape.inputs) + (shape.layers + 1) * blocks_of(width) + 1, networks
    leaf = _float32(networks, shape.layers // shape.leaves, width, width)
    outputs = [
        _float32(networks, shape.input, width),
        *([leaf] * shape.leaves),
        _float32(networks, width, shape.output),
        _float32(networks, 1 + shape.layers, 3, width),
    ]
    assert saved.inputs is not None and saved.activations is not None, "the forward pass kept them"
    given = saved.inputs, saved.activations, d_products, d_output, parts
    made = _call(shape, "fused_weights", tiles, grid, outputs, given, BATCH=batch)
    first, *others, head, vectors = made
    return Gradients(Weights(first, tuple(others), head), vectors)


KERNELS = Passes(_pack, _apply, _forward, _backward)
