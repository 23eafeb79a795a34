"""Primitives that move elements: tables of addresses where indices are known, loads at computed addresses else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from homing.errors import HomingError
from homing.share.emitter import OTHER, SCRATCH, Emitter
from homing.share.values import WIDTH, Value

MOST_LOADS = 4096  # elements that are read at computed addresses, each with code of its own


# Views of one array.


def _broadcast(x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    shape = tuple(params["shape"])
    spread = [1] * len(shape)
    for size, axis in zip(x.shape, params["broadcast_dimensions"], strict=True):
        spread[axis] = size
    return np.broadcast_to(x.reshape(spread), shape)


def _slice(x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    strides = params["strides"] or (1,) * x.ndim
    bounds = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return x[tuple(slice(int(a), int(b), int(c)) for a, b, c in bounds)]


def _rev(x: np.ndarray, params: dict[str, Any]) -> np.ndarray:
    return np.flip(x, tuple(params["dimensions"]))


VIEWS: dict[str, Callable[[np.ndarray, dict[str, Any]], np.ndarray]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda x, params: x.reshape(tuple(params["new_sizes"])),
    "squeeze": lambda x, params: np.squeeze(x, tuple(params["dimensions"])),
    "expand_dims": lambda x, params: np.expand_dims(x, tuple(params["dimensions"])),
    "transpose": lambda x, params: np.transpose(x, tuple(params["permutation"])),
    "slice": _slice,
    "rev": _rev,
    "copy": lambda x, params: x,
    "copy_p": lambda x, params: x,
    "stop_gradient": lambda x, params: x,
    "reduce_precision": lambda x, params: x,
}


# Views of several arrays.


def joined(emitter: Emitter, parts: Sequence[Value], join: Callable[[list[np.ndarray]], np.ndarray]) -> Value:
    """Several arrays as one."""
    if all(part.data is not None for part in parts):
        return Value(parts[0].dtype, data=join([part.table for part in parts]))
    return Value(parts[0].dtype, places=join([emitter.places(part) for part in parts]))


def pad(emitter: Emitter, args: Sequence[Value], params: dict[str, Any]) -> Value:
    """An array with a value around and between its elements."""

    def join(tables: list[np.ndarray]) -> np.ndarray:
        x, fill = tables
        for axis, (low, high, inside) in enumerate(params["padding_config"]):
            low, high, inside = int(low), int(high), int(inside)
            length = x.shape[axis] + max(x.shape[axis] - 1, 0) * inside
            shape = [*x.shape[:axis], max(low, 0) + length + max(high, 0), *x.shape[axis + 1 :]]
            wide = np.full(shape, fill.reshape(()), x.dtype)
            at = [slice(None)] * x.ndim
            at[axis] = slice(max(low, 0), max(low, 0) + length, inside + 1)
            wide[tuple(at)] = x
            at[axis] = slice(max(-low, 0), wide.shape[axis] - max(-high, 0))
            x = wide[tuple(at)]
        return x

    return joined(emitter, args, join)


def split(arg: Value, params: dict[str, Any]) -> list[Value]:
    """Consecutive parts along an axis."""
    ends = np.cumsum([int(n) for n in params["sizes"]])[:-1]
    count = len(params["sizes"])
    return [arg.view(lambda x, k=k: np.split(x, ends, params["axis"])[k]) for k in range(count)]


# Gather, scatter and slices at computed positions.


class Windows:
    """The elements that a gather or scatter touches: for each, the row of indices it depends on and its offset."""

    def __init__(self, shape: Sequence[int], out: Sequence[int], numbers: Any, sizes: Sequence[int]):
        """shape: of the indexed array; out: of the result, or of a scatter's updates; sizes: of a window."""
        self.shape = tuple(shape)
        offset_dims = tuple(getattr(numbers, "offset_dims", getattr(numbers, "update_window_dims", ())))
        dropped = getattr(numbers, "collapsed_slice_dims", getattr(numbers, "inserted_window_dims", ()))
        along = tuple(numbers.operand_batching_dims)
        self.axes = tuple(
            getattr(numbers, "start_index_map", getattr(numbers, "scatter_dims_to_operand_dims", ()))
        )
        grids = np.indices(tuple(out)) if out else np.zeros((0,), np.int64)
        batch_dims = [d for d in range(len(out)) if d not in offset_dims]
        self.batch_shape = tuple(out[d] for d in batch_dims)
        kept = [d for d in range(len(shape)) if d not in (*dropped, *along)]
        self.offset = np.zeros((len(shape), *out), np.int64)
        for axis, d in zip(kept, offset_dims, strict=True):
            self.offset[axis] = grids[d]
        zero = np.zeros(tuple(out), np.int64)
        self.batch = [grids[d] + zero for d in batch_dims]
        indices_batching = getattr(
            numbers, "start_indices_batching_dims", getattr(numbers, "scatter_indices_batching_dims", ())
        )
        for axis, d in zip(along, indices_batching, strict=True):
            self.offset[axis] = grids[batch_dims[d]]
        self.limit = [self.shape[axis] - sizes[axis] for axis in self.axes]

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Entries of an index array [*batch, axes] for each element: [axes, *out]."""
        flat = indices.reshape(*self.batch_shape, len(self.axes))
        return np.stack([flat[(*self.batch, k)] for k in range(len(self.axes))]) if self.axes else flat[:0]

    def positions(self, indices: np.ndarray, clip: bool) -> tuple[np.ndarray, np.ndarray]:
        """Flat position of every element and whether it is inside, for known indices."""
        at, inside = self.offset.copy(), np.ones(self.offset.shape[1:], bool)
        for axis, limit, start in zip(self.axes, self.limit, self.rows(indices), strict=True):
            inside &= (start >= 0) & (start <= limit)
            at[axis] = at[axis] + np.clip(start, 0, limit)
        flat = np.ravel_multi_index(tuple(at), self.shape) if self.shape else np.zeros(inside.shape, np.int64)
        return np.asarray(flat), np.asarray(inside | clip)


def gather(
    emitter: Emitter, args: Sequence[Value], out_shape: Sequence[int], params: dict[str, Any]
) -> Value:
    """Windows of an array at indices."""
    array, indices = args
    windows = Windows(array.shape, out_shape, params["dimension_numbers"], params["slice_sizes"])
    mode = params["mode"]
    clip = mode in (GatherScatterMode.CLIP, GatherScatterMode.PROMISE_IN_BOUNDS)
    if indices.data is not None:
        flat, inside = windows.positions(indices.data.astype(np.int64), clip)
        found = array.view(lambda x: x.reshape(-1)[flat])
        if inside.all():
            return found
        fill = Value(array.dtype, data=_fill(array.dtype, params.get("fill_value")))
        return joined(emitter, [found, fill], lambda t: np.where(inside, t[0], t[1]))
    return _computed(emitter, array, indices, windows, tuple(out_shape))


def _fill(dtype: np.dtype, value: Any) -> np.ndarray:
    if value is None:
        value = np.nan if dtype.kind == "f" else (True if dtype.kind == "b" else np.iinfo(np.int32).min)
    return np.asarray(value, dtype)


def _computed(
    emitter: Emitter, array: Value, indices: Value, windows: Windows, out_shape: tuple[int, ...]
) -> Value:
    """A gather whose indices are computed; they are clipped, which also stands for 'promised to be inside'."""
    out = emitter.fresh(out_shape, array.dtype)
    if out.size > MOST_LOADS:
        raise HomingError(
            f"a gather of {out.size} elements at computed indices cannot be translated for a page"
        )
    base, target = emitter.row(array), emitter.places(out)
    strides = _strides(windows.shape)
    rows = windows.rows(emitter.places(indices))
    fixed = np.tensordot(strides, windows.offset, axes=1) if windows.shape else np.zeros(out_shape, np.int64)
    for at in np.ndindex(*out_shape):
        code = emitter.code.i32(0)
        _start_of(emitter, rows[(slice(None), *at)], windows, strides)
        code.memory("i32.load", base + WIDTH * int(fixed[at])).memory("i32.store", int(target[at]))
        emitter.settle()
    return out


def _strides(shape: Sequence[int]) -> np.ndarray:
    return np.array([int(np.prod(shape[k + 1 :], dtype=np.int64)) for k in range(len(shape))], np.int64)


def _start_of(emitter: Emitter, places: np.ndarray, windows: Windows, strides: np.ndarray) -> None:
    """Leave the byte offset of a window's corner on the stack; `places` are addresses of its indices."""
    emitter.code.i32(0)
    for axis, limit, place in zip(windows.axes, windows.limit, places, strict=True):
        clipped_index(emitter, int(place), int(limit))
        emitter.code.i32(WIDTH * int(strides[axis])).op("i32.mul", "i32.add")


def clipped_index(emitter: Emitter, place: int, limit: int) -> None:
    """Leave the int32 at an address, clipped to 0 … limit, on the stack."""
    code = emitter.code.i32(0).memory("i32.load", place).with_index("local.tee", SCRATCH)
    code.i32(0).with_index("local.get", SCRATCH).i32(0).op("i32.gt_s", "select").with_index(
        "local.tee", OTHER
    )
    code.i32(limit).with_index("local.get", OTHER).i32(limit).op("i32.lt_s", "select")


def scatter(
    emitter: Emitter, name: str, args: Sequence[Value], params: dict[str, Any]
) -> tuple[Value, Value, np.ndarray]:
    """A scatter with known indices: the array, the updates in its order, and which positions they replace."""
    array, indices, updates = args
    if indices.data is None:
        raise HomingError(f"the operation {name} at computed indices cannot be translated for a page")
    numbers = params["dimension_numbers"]
    kept = [
        d
        for d in range(len(array.shape))
        if d not in (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    ]
    sizes = [1] * len(array.shape)
    for axis, d in zip(kept, numbers.update_window_dims, strict=True):
        sizes[axis] = updates.shape[d]
    windows = Windows(array.shape, updates.shape, numbers, sizes)
    flat, inside = windows.positions(indices.data.astype(np.int64), clip=False)
    chosen, order = flat[inside], np.flatnonzero(inside)
    if len(np.unique(chosen)) != len(chosen) and name != "scatter":
        raise HomingError(f"the operation {name} at repeated indices cannot be translated for a page")
    return array, updates.view(lambda x: x.reshape(-1)[order]), chosen


def replaced(emitter: Emitter, array: Value, new: Value, at: np.ndarray) -> Value:
    """The array with other elements at flat positions."""

    def join(tables: list[np.ndarray]) -> np.ndarray:
        made = tables[0].reshape(-1).copy()
        made[at] = tables[1]
        return made.reshape(array.shape)

    return joined(emitter, [array, new], join)


def dynamic_slice(emitter: Emitter, args: Sequence[Value], params: dict[str, Any]) -> Value:
    """A window of an array whose corner is computed."""
    array, *starts = args
    sizes = tuple(int(n) for n in params["slice_sizes"])
    limits = [have - want for have, want in zip(array.shape, sizes, strict=True)]
    if all(start.data is not None for start in starts):
        corner = [int(np.clip(start.table, 0, limit)) for start, limit in zip(starts, limits, strict=True)]
        return array.view(lambda x: x[tuple(slice(c, c + n) for c, n in zip(corner, sizes, strict=True))])
    out = emitter.fresh(sizes, array.dtype)
    base = emitter.row(array)
    corner = _corner(emitter, starts, limits, array.shape)
    strides = _strides(array.shape)
    for at in np.ndindex(*sizes):
        fixed = base + WIDTH * int(np.dot(strides, at))
        code = emitter.code.i32(0).i32(0).memory("i32.load", corner).memory("i32.load", fixed)
        code.memory("i32.store", int(emitter.places(out)[at]))
        emitter.settle()
    return out


def dynamic_update_slice(emitter: Emitter, args: Sequence[Value]) -> Value:
    """An array with a window replaced whose corner is computed."""
    array, update, *starts = args
    limits = [have - want for have, want in zip(array.shape, update.shape, strict=True)]
    out = emitter.fresh(array.shape, array.dtype)
    target = emitter.row(out)
    emitter.assign(target, array)
    corner = _corner(emitter, starts, limits, array.shape)
    places, strides = emitter.places(update), _strides(array.shape)
    for at in np.ndindex(*update.shape):
        code = emitter.code.i32(0).memory("i32.load", corner).i32(0).memory("i32.load", int(places[at]))
        code.memory("i32.store", target + WIDTH * int(np.dot(strides, at)))
        emitter.settle()
    return out


def _corner(emitter: Emitter, starts: Sequence[Value], limits: Sequence[int], shape: Sequence[int]) -> int:
    """Address of a window's byte offset."""
    address, strides = emitter.allocate(1), _strides(shape)
    emitter.code.i32(0).i32(0)
    for start, limit, stride in zip(starts, limits, strides, strict=True):
        clipped_index(emitter, int(emitter.places(start).reshape(-1)[0]), limit)
        emitter.code.i32(WIDTH * int(stride)).op("i32.mul", "i32.add")
    emitter.code.memory("i32.store", address)
    return address
