"""Matrix products and reductions along axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from homing.errors import HomingError
from homing.share.elementwise import BOOL, round_bfloat16
from homing.share.emitter import FLOAT, HOST, ITERATION, LANE, OTHER, SCRATCH, Emitter
from homing.share.values import BFLOAT16, LANES, WIDTH, Operand, Value
from homing.share.wasm import F32, I32, V128, Code, Function

REDUCE = {
    "reduce_sum": ("f32.add", 0.0, "i32.add", 0),
    "reduce_prod": ("f32.mul", 1.0, "i32.mul", 1),
    "reduce_max": ("f32.max", -np.inf, None, 0),
    "reduce_min": ("f32.min", np.inf, None, 0),
    "reduce_and": (None, 0.0, "i32.and", -1),
    "reduce_or": (None, 0.0, "i32.or", 0),
}
EXTREME = {"argmax": "f32.gt", "argmin": "f32.lt"}
TILES = ((4, 2), (1, 4), (4, 1), (1, 1))  # rows × vectors of columns, in the order in which they are tried


def last_axes(value: Value, axes: Sequence[int]) -> tuple[Value, int, int]:
    """The array as [kept, reduced], and both sizes."""
    kept = [k for k in range(len(value.shape)) if k not in axes]
    outer = int(np.prod([value.shape[k] for k in kept], dtype=np.int64))
    inner = int(np.prod([value.shape[k] for k in axes], dtype=np.int64))
    order = (*kept, *axes)
    return value.view(lambda x: np.transpose(x, order).reshape(outer, inner)), outer, inner


def reduce(emitter: Emitter, name: str, arg: Value, out: Value, params: dict[str, Any]) -> None:
    """Sum, product, maximum, minimum, and, or along axes."""
    is_float = arg.dtype.kind == "f" or arg.dtype == BFLOAT16
    instruction, start = REDUCE[name][:2] if is_float else REDUCE[name][2:]
    if instruction is None:
        raise HomingError(f"the operation {name} on {arg.dtype} cannot be translated for a page")
    value, outer, inner = last_axes(arg, params["axes"])
    base, target = emitter.row(value), emitter.row(out)
    load, store = ("f32.load", "f32.store") if is_float else ("i32.load", "i32.store")
    code, total = emitter.code, FLOAT if is_float else SCRATCH
    with emitter.loop(WIDTH * outer, WIDTH, ITERATION):
        code.f32(start) if is_float else code.i32(int(start))
        code.with_index("local.set", total)
        with emitter.loop(WIDTH * inner, WIDTH, LANE):
            code.with_index("local.get", total)
            code.with_index("local.get", ITERATION).i32(inner).op("i32.mul").with_index("local.get", LANE)
            code.op("i32.add").memory(load, base).op(instruction).with_index("local.set", total)
        code.with_index("local.get", ITERATION).with_index("local.get", total).memory(store, target)
    if out.dtype == BFLOAT16:
        round_bfloat16(emitter, out, out)


def extreme(emitter: Emitter, name: str, arg: Value, out: Value, params: dict[str, Any]) -> None:
    """Index of the first largest or smallest element along one axis."""
    if arg.dtype == BOOL:
        raise HomingError(f"the operation {name} on bools cannot be translated for a page")
    value, outer, inner = last_axes(arg, params["axes"])
    whole = arg.dtype.kind in "iu"
    base, target, code = emitter.row(value), emitter.row(out), emitter.code
    at = lambda: (
        code.with_index("local.get", ITERATION)
        .i32(inner)
        .op("i32.mul")
        .with_index("local.get", LANE)
        .op("i32.add")
    )
    compare = {"argmax": "i32.gt_s", "argmin": "i32.lt_s"}[name] if whole else EXTREME[name]
    load, best = ("i32.load", OTHER) if whole else ("f32.load", FLOAT)
    with emitter.loop(WIDTH * outer, WIDTH, ITERATION):
        code.i32(0).with_index("local.set", SCRATCH)
        code.with_index("local.get", ITERATION).i32(inner).op("i32.mul").memory(load, base)
        code.with_index("local.set", best)
        with emitter.loop(WIDTH * inner, WIDTH, LANE):
            at().memory(load, base).with_index("local.get", best).op(compare).start("if")
            at().memory(load, base).with_index("local.set", best)
            code.with_index("local.get", LANE).with_index("local.set", SCRATCH).op("end")
        code.with_index("local.get", ITERATION).with_index("local.get", SCRATCH).memory("i32.store", target)
    _divide_by_width(emitter, target, out.size)


def _divide_by_width(emitter: Emitter, target: int, count: int) -> None:
    def body(load: Any) -> None:
        load(0)
        emitter.code.i32(2).op("i32x4.shr_u")

    emitter.each_vector(-(-count // LANES), target, [Operand(target, False)], body)


def cumulative_sum(emitter: Emitter, arg: Value, out: Value, params: dict[str, Any]) -> None:
    """Running sums along one axis, element after element."""
    if arg.dtype.kind != "f":
        raise HomingError("running sums of integers cannot be translated for a page")
    axis, reverse = params["axis"], params["reverse"]
    source, target = (np.moveaxis(emitter.places(v), axis, 0) for v in (arg, out))
    steps = range(source.shape[0])[::-1] if reverse else range(source.shape[0])
    code, before = emitter.code, None
    for k in steps:
        for i in np.ndindex(*source.shape[1:]):
            code.i32(0).i32(0).memory("f32.load", int(source[(k, *i)]))
            if before is not None:
                code.i32(0).memory("f32.load", int(target[(before, *i)])).op("f32.add")
            code.memory("f32.store", int(target[(k, *i)]))
        before = k


# Matrix products.


def dot_general(emitter: Emitter, left: Value, right: Value, out: Value, params: dict[str, Any]) -> None:
    """Products of matrices [M, K] and [K, N], one for each index of the batch axes."""
    if left.dtype.kind in "iub" or right.dtype.kind in "iub":
        raise HomingError("products of integer matrices cannot be translated for a page")
    (over_left, over_right), (batch_left, batch_right) = params["dimension_numbers"]
    first, batch, rows, inner = _matrices(left, batch_left, over_left, contracted_last=True)
    second, _, columns, _ = _matrices(right, batch_right, over_right, contracted_last=False)
    function, target = matmul(emitter), emitter.row(out)
    a, b = emitter.row(first), emitter.row(second)
    for k in range(batch):
        code = emitter.code.i32(target + WIDTH * k * rows * columns)
        code.i32(a + WIDTH * k * rows * inner).i32(b + WIDTH * k * inner * columns)
        code.i32(rows).i32(inner).i32(columns)
        emitter.call(function)
    if out.dtype == BFLOAT16:
        round_bfloat16(emitter, out, out)


def _matrices(
    value: Value, batch: Sequence[int], over: Sequence[int], contracted_last: bool
) -> tuple[Value, int, int, int]:
    """The array as [batch, free, contracted] or [batch, contracted, free], and the three sizes."""
    free = [k for k in range(len(value.shape)) if k not in (*batch, *over)]
    size = lambda axes: int(np.prod([value.shape[k] for k in axes], dtype=np.int64))
    order = (*batch, *free, *over) if contracted_last else (*batch, *over, *free)
    shape = (
        (size(batch), size(free), size(over)) if contracted_last else (size(batch), size(over), size(free))
    )
    return value.view(lambda x: np.transpose(x, order).reshape(shape)), size(batch), size(free), size(over)


def matmul(emitter: Emitter) -> int:
    """The function (out, a, b, rows, inner, columns) of this module, added when it is first needed."""
    if emitter.matmul is None:
        tiles = {tile: emitter.module.add(_tile(*tile)) for tile in TILES}
        edge = emitter.module.add(_scalar_tile())
        emitter.matmul = emitter.module.add(_tiled(tiles, edge))
    return emitter.matmul


OUT, A, B, INNER, COLUMNS = range(5)  # parameters of a tile: addresses of its corners, and sizes


def _tile(rows: int, vectors: int) -> Function:
    """out[r, 4v:4v+4] = Σ_k a[r, k] · b[k, 4v:4v+4] for a few rows and vectors, held in locals."""
    left, stride, row = 5, 6, 7  # i32: steps left, bytes between rows of b, addresses in rows of a
    first = row + rows  # vectors: of b, the sums, an element of a
    sums = [[first + vectors * (1 + r) + v for v in range(vectors)] for r in range(rows)]
    element = first + vectors * (rows + 1)
    code = Code().with_index("local.get", INNER).with_index("local.set", left)
    code.with_index("local.get", COLUMNS).i32(WIDTH).op("i32.mul").with_index("local.set", stride)
    for r in range(rows):
        code.with_index("local.get", A).with_index("local.get", INNER).i32(WIDTH * r).op("i32.mul", "i32.add")
        code.with_index("local.set", row + r)
    code.start("loop")
    for v in range(vectors):
        code.with_index("local.get", B).memory("v128.load", 16 * v).with_index("local.set", first + v)
    for r in range(rows):
        code.with_index("local.get", row + r).memory("v128.load32_splat", 0).with_index("local.set", element)
        code.with_index("local.get", row + r).i32(WIDTH).op("i32.add").with_index("local.set", row + r)
        for v in range(vectors):
            code.with_index("local.get", sums[r][v]).with_index("local.get", element)
            code.with_index("local.get", first + v).op("f32x4.mul", "f32x4.add")
            code.with_index("local.set", sums[r][v])
    code.with_index("local.get", B).with_index("local.get", stride).op("i32.add").with_index("local.set", B)
    code.with_index("local.get", left).i32(1).op("i32.sub").with_index("local.tee", left)
    code.with_index("br_if", 0).op("end")
    for r in range(rows):
        for v in range(vectors):
            code.with_index("local.get", OUT).with_index("local.get", stride).i32(r).op("i32.mul", "i32.add")
            code.with_index("local.get", sums[r][v]).memory("v128.store", 16 * v)
    return Function((I32,) * 5, ((I32,) * (2 + rows) + (V128,) * (vectors * (rows + 1) + 1)), code)


def _scalar_tile() -> Function:
    """The same for one element."""
    left, total = 5, 6
    code = Code().with_index("local.get", INNER).with_index("local.set", left).start("loop")
    code.with_index("local.get", total).with_index("local.get", A).memory("f32.load", 0)
    code.with_index("local.get", B).memory("f32.load", 0).op("f32.mul", "f32.add").with_index(
        "local.set", total
    )
    code.with_index("local.get", A).i32(WIDTH).op("i32.add").with_index("local.set", A)
    code.with_index("local.get", B).with_index("local.get", COLUMNS).i32(WIDTH).op("i32.mul", "i32.add")
    code.with_index("local.set", B).with_index("local.get", left).i32(1).op("i32.sub")
    code.with_index("local.tee", left).with_index("br_if", 0).op("end")
    code.with_index("local.get", OUT).with_index("local.get", total).memory("f32.store", 0)
    return Function((I32,) * 5, (I32, F32), code)


def _tiled(tiles: dict[tuple[int, int], int], edge: int) -> Function:
    """All tiles of a product: four rows at a time while there are four, then one."""
    out, a, b, rows, inner, columns, row, column = range(8)
    code = Code()

    def address(base: int, line: int | None, width: int, extra: int | None) -> None:
        code.with_index("local.get", base)
        if line is not None:
            code.with_index("local.get", line).with_index("local.get", width).op("i32.mul")
            code.i32(WIDTH).op("i32.mul", "i32.add")
        if extra is not None:
            code.with_index("local.get", extra).i32(WIDTH).op("i32.mul", "i32.add")

    def across(function: int, width: int) -> None:
        """While `width` more columns fit: one tile."""
        code.start("block").start("loop")
        code.with_index("local.get", column).i32(width).op("i32.add").with_index("local.get", columns)
        code.op("i32.gt_s").with_index("br_if", 1)
        address(out, row, columns, column)
        address(a, row, inner, None)
        address(b, None, columns, column)
        code.with_index("local.get", inner).with_index("local.get", columns)
        code.with_index("call", len(HOST) + function)
        code.with_index("local.get", column).i32(width).op("i32.add").with_index("local.set", column)
        code.with_index("br", 0).op("end").op("end")

    def down(height: int, kinds: Sequence[tuple[int, int]]) -> None:
        code.start("block").start("loop")
        code.with_index("local.get", row).i32(height).op("i32.add").with_index("local.get", rows)
        code.op("i32.gt_s").with_index("br_if", 1)
        code.i32(0).with_index("local.set", column)
        for function, width in kinds:
            across(function, width)
        code.with_index("local.get", row).i32(height).op("i32.add").with_index("local.set", row)
        code.with_index("br", 0).op("end").op("end")

    # The columns that do not fill a vector are left to rows taken one at a time.
    code.with_index("local.get", columns).i32(3).op("i32.and").op("i32.eqz").start("if")
    down(4, [(tiles[4, 2], 8), (tiles[4, 1], 4)])
    code.op("end")
    down(1, [(tiles[1, 4], 16), (tiles[1, 1], 4), (edge, 1)])
    return Function((I32,) * 6, (I32, I32), code)
