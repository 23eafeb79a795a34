"""The passes of whole networks on Hopper cards: four CUDA kernels, see fused.cu and fused_split.cu."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from homing.compile import cuda
from homing.types import Array

UNITS = 64  # inputs and outputs are padded to multiples of it
ROWS = 64  # of the batch that go through all layers together
WIDTHS = (64, 128, 192, 256)
MAX_OUTPUTS = 256
MULTIPROCESSORS = 132  # of a Hopper card
STAGES = (6, 5, 4, 3, 2)  # tiles in flight, the best first
CHUNKS = ((64, (5, 4)), (32, (6, 5, 4, 3)))  # the same of networks whose columns are split, by a tile's depth
# Environment variables, for measurements:
SPLIT = "HOMING_FUSED_SPLIT"  # warpgroups of a block that share the columns of 64 rows: 1, 2 or 4
CLUSTER = "HOMING_FUSED_CLUSTER"  # blocks that share them, at most, where multiprocessors are left: 1, 2 or 4
GROUPS = "HOMING_FUSED_GROUPS"  # times 64 rows in a block of the forward and backward kernel: 1 or 2
TURNS = "HOMING_FUSED_TURNS"  # 0: two groups of a block of the forward kernel multiply at the same time
MAX_SPLIT = 4  # warpgroups of a block that compute
MAX_SLICES = 8  # that share the columns of 64 rows
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

    def defines(self, entry: str, tiles: Tiling, **more: int) -> dict[str, int]:
        """What fused.cu is compiled with."""
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
            "GROUPS": tiles.groups,
            "STAGES": tiles.stages,
            "SPLIT": tiles.split,
            "CHUNK": tiles.chunk,
            "TURNS": int(tiles.turns),
            "CLUSTER": tiles.cluster,
            **more,
        }


class Tiling(NamedTuple):
    """How a kernel divides its work."""

    groups: int  # times 64 rows in a block
    stages: int  # tiles of weights in flight
    shared_bytes: int
    split: int = 1  # warpgroups that share the columns of 64 rows
    chunk: int = UNITS  # steps of a reduction in a tile
    cluster: int = 1  # blocks that share 64 rows
    turns: bool = False  # one group has the matrix units while the other computes elements

    @property
    def rows(self) -> int:
        """Rows of the batch, or of a gradient, in a block."""
        return ROWS * self.groups

    @property
    def threads(self) -> int:
        """Threads of a block; one more warpgroup copies."""
        return THREADS * (self.groups * self.split + 1)


class Division(NamedTuple):
    """Who computes 64 rows of the batch."""

    groups: int  # times 64 rows in a block
    split: int = 1  # warpgroups of a block that share their columns
    cluster: int = 1  # blocks that do

    @property
    def slices(self) -> int:
        """Warpgroups that share the columns of 64 rows."""
        return self.split * self.cluster


def _split_tiling(shape: FusedShape, division: Division, others: int, turns: bool) -> Tiling:
    """The deepest tiles that fit beside others, for networks whose columns are split."""
    groups, split, cluster = division
    others += 8 * ROWS * groups * division.slices + 8 * (2 * STAGES[0] + 10)
    fitting = (
        Tiling(
            groups,
            stages,
            needed,
            split,
            chunk,
            cluster,
            turns and groups == 2 and stages * chunk >= shape.width,
        )
        for chunk, counts in CHUNKS
        for stages in counts
        if (needed := 2 * stages * chunk * max(shape.width, shape.outputs) + others) <= cuda.shared_memory()
    )
    return next(fitting)


def _tiling(groups: int, tile: int, others: int) -> Tiling:
    """As many tiles of so many bytes as fit beside others."""
    barriers = 8 * (2 * STAGES[0] + 8)
    fitting = (
        Tiling(groups, stages, needed)
        for stages in STAGES
        if (needed := stages * tile + others + barriers) <= cuda.shared_memory()
    )
    return next(fitting)


def groups_of(networks: int, batch: int, weights: bool) -> int:
    """Warpgroups in a block: two get more done, one is done sooner where multiprocessors are left over.

    Passes with weight gradients run beside those of other networks, which need multiprocessors too.
    """
    enough = MULTIPROCESSORS // 2 if weights else MULTIPROCESSORS
    return 2 if batch % (2 * ROWS) == 0 and networks * batch > ROWS * enough else 1


def division_of(shape: FusedShape, networks: int, batch: int, weights: bool) -> Division:
    """Who computes 64 rows in the forward and backward kernel: more blocks where multiprocessors are left over."""
    wanted = lambda name, default: int(os.environ.get(name, default))
    groups = wanted(GROUPS, groups_of(networks, batch, weights))
    groups = groups if batch % (groups * ROWS) == 0 else 1
    split = min(wanted(SPLIT, 2), MAX_SPLIT // groups)
    cluster = wanted(CLUSTER, 1) if groups == 1 and split > 1 else 1
    while cluster > 1 and networks * batch * cluster > ROWS * MULTIPROCESSORS:
        cluster //= 2
    while shape.width % (16 * split * cluster) or split * cluster > MAX_SLICES:
        split, cluster = (split // 2, cluster) if split > 1 else (split, cluster // 2)
    return Division(groups, split, cluster)


def _tile_bytes(shape: FusedShape) -> int:
    return 2 * UNITS * max(shape.width, shape.outputs)


def forward_tiling(shape: FusedShape, division: Division) -> Tiling:
    """Tiles of weights, two layers' vectors, and left operands or what skips layers."""
    rows, vectors = 2 * ROWS * shape.width * division.groups, 24 * shape.width
    if division.slices > 1:
        return _split_tiling(shape, division, rows + vectors, os.environ.get(TURNS) != "0")
    return _tiling(division.groups, _tile_bytes(shape), (rows if shape.block else 0) + vectors)


def backward_tiling(shape: FusedShape, division: Division, weights: bool) -> Tiling:
    """Tiles of weights, a layer's normalised products, two layers' vectors, sums over rows, and left operands."""
    rows = 2 * ROWS * division.groups
    others = rows * shape.width + 16 * shape.width
    others += 32 * shape.width * division.groups if weights else 0
    if division.slices > 1:
        return _split_tiling(shape, division, others + rows * max(shape.width, shape.outputs), False)
    return _tiling(division.groups, _tile_bytes(shape), others)


def weights_tiling(shape: FusedShape, groups: int) -> Tiling:
    """Tiles of inputs beside those of gradients."""
    return _tiling(groups, 2 * UNITS * (ROWS * groups + max(shape.width, shape.outputs)), 0)


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
    file = "fused.cu" if tiles.split * tiles.cluster == 1 else "fused_split.cu"
    kernel = cuda.kernel("homing.networks", file, entry, shape.defines(entry, tiles, **more))
    return cuda.call(kernel, launch, outputs, *inputs)


def _bfloat16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _pack(shape: FusedShape, weights: Weights) -> Packed:
    networks, width, rows = len(weights.first), shape.width, shape.inputs + shape.layers * shape.width
    outputs = [_bfloat16(networks, rows, width), _bfloat16(networks, 2, width, shape.outputs)]
    kernel = cuda.kernel(
        "homing.networks", "fused.cu", "fused_pack", shape.defines("fused_pack", Tiling(1, 1, 0))
    )
    launch = cuda.Launch(((rows + width) // PACKED_ROWS, networks, 1), PACKING_THREADS, 0)
    return Packed(*cuda.call(kernel, launch, outputs, weights.first, *weights.others, weights.head))


def _run_forward(
    shape: FusedShape, save: int, x: Array, packed: Packed, vectors: Array, bias: Array
) -> tuple[Array, ...]:
    networks, batch, _ = x.shape
    division = division_of(shape, networks, batch, weights=save == 2)
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
    room = _room(shape, networks, batch) if division.slices > 1 and division.groups == 2 else []
    grid = batch // tiles.rows * tiles.cluster, networks
    given = x, *packed, vectors, bias
    made = _call(shape, "fused_forward", tiles, grid, [*wanted, *room], given, SAVE=save)
    return made[: len(wanted)]


def _room(shape: FusedShape, networks: int, batch: int) -> list[jax.ShapeDtypeStruct]:
    """What a kernel keeps for itself: values that skip layers."""
    return [_bfloat16(networks, batch, shape.width)] if shape.block else []


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
    division = division_of(shape, networks, batch, weights)
    tiles = backward_tiling(shape, division, weights)
    layers = 1 + shape.layers
    room = _room(shape, networks, batch) if division.slices == 1 or division.groups == 2 else []
    outputs = [*room, *([_float32(networks, batch, shape.input)] if d_input else [])]
    if weights:
        outputs += [
            _bfloat16(networks, batch, shape.outputs),
            _bfloat16(networks, layers, batch, shape.width),
            _float32(networks, batch // ROWS, layers, 2, shape.width),
        ]
    given = gradient, *packed, vectors, saved.normed, saved.inverse
    flags = {"WEIGHTS": int(weights), "D_INPUT": int(d_input)}
    grid = batch // tiles.rows * tiles.cluster, networks
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
    tiles = weights_tiling(shape, groups_of(networks, (shape.layers + 2) * width, weights=True))
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
