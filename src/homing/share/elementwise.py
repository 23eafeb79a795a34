"""Elementwise primitives: vector instructions where there are some, else functions of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.lax import RoundingMethod

from homing.errors import HomingError
from homing.share.emitter import HOST, VEC, VEC2, Emitter
from homing.share.values import BFLOAT16, LANES, Value

BOOL = np.dtype(bool)
Load = Callable[[int], None]
Rule = Callable[[Emitter, Load, dict[str, Any], str], None]

# Instructions of primitives with a vector instruction: for floats, for integers, for bools.
DIRECT = {
    "add": ("f32x4.add", "i32x4.add", None),
    "add_any": ("f32x4.add", "i32x4.add", None),
    "sub": ("f32x4.sub", "i32x4.sub", None),
    "mul": ("f32x4.mul", "i32x4.mul", "v128.and"),
    "div": ("f32x4.div", None, None),
    "max": ("f32x4.max", "i32x4.max_s", "v128.or"),
    "min": ("f32x4.min", "i32x4.min_s", "v128.and"),
    "neg": ("f32x4.neg", "i32x4.neg", None),
    "abs": ("f32x4.abs", "i32x4.abs", None),
    "sqrt": ("f32x4.sqrt", None, None),
    "floor": ("f32x4.floor", None, None),
    "ceil": ("f32x4.ceil", None, None),
    "eq": ("f32x4.eq", "i32x4.eq", "i32x4.eq"),
    "ne": ("f32x4.ne", "i32x4.ne", "i32x4.ne"),
    "lt": ("f32x4.lt", "i32x4.lt_s", None),
    "le": ("f32x4.le", "i32x4.le_s", None),
    "gt": ("f32x4.gt", "i32x4.gt_s", None),
    "ge": ("f32x4.ge", "i32x4.ge_s", None),
    "and": (None, "v128.and", "v128.and"),
    "or": (None, "v128.or", "v128.or"),
    "xor": (None, "v128.xor", "v128.xor"),
    "not": (None, "v128.not", "v128.not"),
}
ORDERED = ("lt", "le", "gt", "ge", "max", "min")  # unsigned integers would need other instructions


def _constant(emitter: Emitter, value: float) -> None:
    emitter.code.f32(value).op("f32x4.splat")


def _square(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    load(0)
    load(0)
    emitter.code.op(f"{lanes}.mul")


def _rsqrt(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    _constant(emitter, 1.0)
    load(0)
    emitter.code.op("f32x4.sqrt", "f32x4.div")


def _sign(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    """(x > 0) − (x < 0), where a comparison is a mask: −1 as an integer."""
    suffix = "_s" if lanes == "i32x4" else ""
    for compare in ("lt", "gt"):
        load(0)
        emitter.code.i32(0).op("i32x4.splat", f"{lanes}.{compare}{suffix}")
    emitter.code.op("i32x4.sub")
    if lanes == "f32x4":
        emitter.code.op("f32x4.convert_i32x4_s")


def _is_finite(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    load(0)
    emitter.code.op("f32x4.abs")
    _constant(emitter, np.inf)
    emitter.code.op("f32x4.lt")


def _round(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    load(0)
    if params["rounding_method"] != RoundingMethod.TO_NEAREST_EVEN:
        # Half away from zero: x plus a half with the sign of x, truncated.
        load(0)
        emitter.code.i32(-(2**31)).op("i32x4.splat", "v128.and")
        _constant(emitter, 0.5)
        emitter.code.op("v128.or", "f32x4.add", "f32x4.trunc")
        return
    emitter.code.op("f32x4.nearest")


def _clamp(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    suffix = "_s" if lanes == "i32x4" else ""
    load(1)
    load(0)
    emitter.code.op(f"{lanes}.max{suffix}")
    load(2)
    emitter.code.op(f"{lanes}.min{suffix}")


def _integer_pow(emitter: Emitter, load: Load, params: dict[str, Any], lanes: str) -> None:
    """By repeated squaring."""
    left, code = abs(int(params["y"])), emitter.code
    inverse, times = int(params["y"]) < 0, f"{lanes}.mul"
    if inverse:
        _constant(emitter, 1.0)
    code.i32(1).op("i32x4.splat", *(["f32x4.convert_i32x4_s"] if lanes == "f32x4" else []))
    code.with_index("local.set", VEC2)
    load(0)
    code.with_index("local.set", VEC)
    while left:
        if left & 1:
            code.with_index("local.get", VEC).with_index("local.get", VEC2).op(times).with_index(
                "local.set", VEC2
            )
        code.with_index("local.get", VEC).with_index("local.get", VEC).op(times).with_index("local.set", VEC)
        left >>= 1
    code.with_index("local.get", VEC2)
    if inverse:
        code.op("f32x4.div")


COMPOSED: dict[str, Rule] = {
    "square": _square,
    "rsqrt": _rsqrt,
    "sign": _sign,
    "is_finite": _is_finite,
    "round": _round,
    "clamp": _clamp,
    "integer_pow": _integer_pow,
}
FLOAT_ONLY = ("rsqrt", "is_finite", "round")
NAMES = (*DIRECT, *COMPOSED, *HOST, "select_n", "convert_element_type")


def emit(emitter: Emitter, name: str, args: Sequence[Value], out: Value, params: dict[str, Any]) -> None:
    """Write `out`, the result of an elementwise primitive."""
    if name == "convert_element_type":
        return _convert(emitter, args[0], out)
    if name == "select_n":
        return _select(emitter, args, out)
    kind = args[0].dtype
    if name in HOST or (name in ("div", "rem") and not _is_float(kind)):
        _by_host(emitter, name, args, out)
    else:
        _by_vectors(emitter, name, args, out, params)
    if out.dtype == BFLOAT16:
        round_bfloat16(emitter, out, out)


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == BFLOAT16


def _by_vectors(
    emitter: Emitter, name: str, args: Sequence[Value], out: Value, params: dict[str, Any]
) -> None:
    kind = args[0].dtype
    operands = [emitter.operand(arg) for arg in args]
    if name in COMPOSED:
        if not _is_float(kind) and (name in FLOAT_ONLY or kind == BOOL):
            raise HomingError(f"the operation {name} on {kind} cannot be translated for a page")
        lanes = "f32x4" if _is_float(kind) else "i32x4"
        body = lambda load: COMPOSED[name](emitter, load, params, lanes)
    else:
        instruction = DIRECT[name][0 if _is_float(kind) else 2 if kind == BOOL else 1]
        if instruction is None or (kind == np.dtype(np.uint32) and name in ORDERED):
            raise HomingError(f"the operation {name} on {kind} cannot be translated for a page")

        def body(load: Load) -> None:
            for k in range(len(operands)):
                load(k)
            emitter.code.op(instruction)

    emitter.each_vector(-(-out.size // LANES), emitter.row(out), operands, body)


def _by_host(emitter: Emitter, name: str, args: Sequence[Value], out: Value) -> None:
    """One call for each element, in float64, which holds float32 and int32 exactly."""
    whole = not _is_float(args[0].dtype)
    function = "int_div" if name == "div" else name
    operands, target = [emitter.operand(arg) for arg in args], emitter.row(out)

    def body(load: Any, base: Callable[[], Any], offset: int) -> None:
        base()
        for operand in operands:
            load(operand, "i32.load" if whole else "f32.load")
            emitter.code.op("f64.convert_i32_s" if whole else "f64.promote_f32")
        emitter.host(function)
        if whole:
            emitter.code.truncate().memory("i32.store", target + offset)
        else:
            emitter.code.op("f32.demote_f64").memory("f32.store", target + offset)

    emitter.each_element(out.size, body)


def _select(emitter: Emitter, args: Sequence[Value], out: Value) -> None:
    which, *cases = args
    if which.dtype != BOOL or len(cases) != 2:
        raise HomingError("a choice between more than two arrays cannot be translated for a page")
    operands = [emitter.operand(arg) for arg in (cases[1], cases[0], which)]

    def body(load: Load) -> None:
        for k in range(3):
            load(k)
        emitter.code.op("v128.bitselect")

    emitter.each_vector(-(-out.size // LANES), emitter.row(out), operands, body)


def _convert(emitter: Emitter, arg: Value, out: Value) -> None:
    operand, source = emitter.operand(arg), arg.dtype

    def body(load: Load) -> None:
        load(0)
        code = emitter.code
        if out.dtype == BOOL:
            code.i32(0).op("i32x4.splat", "f32x4.ne" if _is_float(source) else "i32x4.ne")
        elif source == BOOL:
            _constant(emitter, 1.0) if _is_float(out.dtype) else code.i32(1).op("i32x4.splat")
            code.op("v128.and")
        elif _is_float(source):
            code.op("i32x4.trunc_sat_f32x4_s")
        else:
            code.op("f32x4.convert_i32x4_s")

    if _is_float(source) and out.dtype == BFLOAT16:
        round_bfloat16(emitter, arg, out)
        return
    emitter.each_vector(-(-out.size // LANES), emitter.row(out), [operand], body)
    if out.dtype == BFLOAT16:
        round_bfloat16(emitter, out, out)


def round_bfloat16(emitter: Emitter, arg: Value, out: Value) -> None:
    """Round to the nearest bfloat16, ties to even: bits + 0x7fff + (bit 16), without the lower 16."""

    def body(load: Load) -> None:
        load(0)
        code = emitter.code.with_index("local.tee", VEC).with_index("local.get", VEC)
        code.i32(16).op("i32x4.shr_u").i32(1).op("i32x4.splat", "v128.and", "i32x4.add")
        code.i32(0x7FFF).op("i32x4.splat", "i32x4.add").i32(-65536).op("i32x4.splat", "v128.and")

    emitter.each_vector(-(-out.size // LANES), emitter.row(out), [emitter.operand(arg)], body)
