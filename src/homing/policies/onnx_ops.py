"""The operations of JAX that policies consist of, each as nodes of an ONNX graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from homing.errors import HomingError


@dataclasses.dataclass(frozen=True)
class Node:
    """A value of the graph, with the batch before the axes that JAX traced."""

    name: str
    shape: tuple[int, ...]


Value = Node | np.ndarray | jax.Array  # arrays are constants


class Builder(Protocol):
    """A graph in the making."""

    def add(self, op: str, shape: Sequence[int], *inputs: Value, **attributes: Any) -> Node: ...
    def unsupported(self, what: str) -> HomingError: ...


# (graph, equation, inputs) -> output
Translation = Callable[..., Node]
INNER = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat", "checkpoint"}


def _plain(op: str) -> Translation:
    """An operation that ONNX has too, entry by entry."""
    return lambda graph, eqn, *inputs: graph.add(op, eqn.outvars[0].aval.shape, *inputs)


def _number(value: float) -> np.ndarray:
    return np.asarray(value, np.float32)


def _integers(*values: int) -> np.ndarray:
    return np.asarray(values, np.int64)


def cut(graph: Builder, x: Value, begins: Any, ends: Any, axes: Any, shape: Any) -> Node:
    after_batch = _integers(*(axis + 1 for axis in axes))
    return graph.add("Slice", shape, x, _integers(*begins), _integers(*ends), after_batch)


def _slice(graph: Builder, eqn: Any, x: Value) -> Node:
    if eqn.params["strides"] not in (None, (1,) * len(eqn.params["start_indices"])):
        raise graph.unsupported("a slice with strides")
    begins, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    return cut(graph, x, begins, ends, range(len(begins)), eqn.outvars[0].aval.shape)


def _reshape(graph: Builder, eqn: Any, x: Value) -> Node:
    shape = eqn.outvars[0].aval.shape
    return graph.add("Reshape", shape, x, _integers(0, *shape))  # 0 keeps the batch


def _broadcast(graph: Builder, eqn: Any, x: Node) -> Node:
    shape, places = eqn.outvars[0].aval.shape, eqn.params["broadcast_dimensions"]
    spread = [x.shape[places.index(axis)] if axis in places else 1 for axis in range(len(shape))]
    aligned = graph.add("Reshape", spread, x, _integers(0, *spread))
    return graph.add("Expand", shape, aligned, _integers(1, *shape))


def _concatenate(graph: Builder, eqn: Any, *parts: Value) -> Node:
    batch = next(part for part in parts if isinstance(part, Node))
    row = graph.add("ReduceSum", (), batch, _integers(*range(1, 1 + len(batch.shape))), keepdims=0)
    zero = graph.add("Mul", (), row, _number(0))

    def batched(part: Value) -> Value:
        if isinstance(part, Node):
            return part
        array = np.asarray(part)
        zeros = graph.add("Reshape", (1,) * array.ndim, zero, _integers(0, *(1,) * array.ndim))
        return graph.add("Add", array.shape, zeros, array)

    axis = eqn.params["dimension"] + 1
    return graph.add("Concat", eqn.outvars[0].aval.shape, *map(batched, parts), axis=axis)


def _pad(graph: Builder, eqn: Any, x: Value, fill: Value) -> Node:
    config = eqn.params["padding_config"]
    if isinstance(fill, Node) or any(low < 0 or high < 0 or inner for low, high, inner in config):
        raise graph.unsupported("a padding that cuts")
    pads = _integers(0, *(low for low, _, _ in config), 0, *(high for _, high, _ in config))
    return graph.add("Pad", eqn.outvars[0].aval.shape, x, pads, np.asarray(fill, np.float32))


def _dot(graph: Builder, eqn: Any, x: Value, matrix: Value) -> Node:
    (contract, batch), shape = eqn.params["dimension_numbers"], eqn.outvars[0].aval.shape
    simple = isinstance(x, Node) and not isinstance(matrix, Node) and np.ndim(matrix) == 2
    if not simple or batch != ((), ()) or contract != ((len(x.shape) - 1,), (0,)):
        raise graph.unsupported("a product that is no layer")
    return graph.add("MatMul", shape, x, np.asarray(matrix))


def _sum(graph: Builder, eqn: Any, x: Value) -> Node:
    axes = _integers(*(axis + 1 for axis in eqn.params["axes"]))
    return graph.add("ReduceSum", eqn.outvars[0].aval.shape, x, axes, keepdims=0)


def _power(graph: Builder, eqn: Any, x: Value) -> Node:
    return graph.add("Pow", eqn.outvars[0].aval.shape, x, _number(eqn.params.get("y", 2)))


def _convert(graph: Builder, eqn: Any, x: Value) -> Node:
    if eqn.params["new_dtype"] != np.float32:
        raise graph.unsupported(f"a conversion to {eqn.params['new_dtype']}")
    return graph.add("Cast", eqn.outvars[0].aval.shape, x, to=1)  # 1 is float32


def _rsqrt(graph: Builder, eqn: Any, x: Value) -> Node:
    shape = eqn.outvars[0].aval.shape
    return graph.add("Reciprocal", shape, graph.add("Sqrt", shape, x))


def _expm1(graph: Builder, eqn: Any, x: Value) -> Node:
    shape = eqn.outvars[0].aval.shape
    return graph.add("Sub", shape, graph.add("Exp", shape, x), _number(1))


def _log1p(graph: Builder, eqn: Any, x: Value) -> Node:
    shape = eqn.outvars[0].aval.shape
    return graph.add("Log", shape, graph.add("Add", shape, x, _number(1)))


def _differs(graph: Builder, eqn: Any, x: Value, y: Value) -> Node:
    shape = eqn.outvars[0].aval.shape
    return graph.add("Not", shape, graph.add("Equal", shape, x, y))


def _select(graph: Builder, eqn: Any, which: Value, no: Value, yes: Value) -> Node:
    return graph.add("Where", eqn.outvars[0].aval.shape, which, yes, no)


PLAIN = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "max": "Max",
    "min": "Min",
    "neg": "Neg",
    "abs": "Abs",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "logistic": "Sigmoid",
    "erf": "Erf",
    "gt": "Greater",
    "lt": "Less",
    "ge": "GreaterOrEqual",
    "le": "LessOrEqual",
    "eq": "Equal",
    "copy": "Identity",
}
TRANSLATIONS: dict[str, Translation] = {
    **{name: _plain(op) for name, op in PLAIN.items()},
    "rsqrt": _rsqrt,
    "ne": _differs,
    "expm1": _expm1,
    "log1p": _log1p,
    "square": _power,
    "integer_pow": _power,
    "slice": _slice,
    "squeeze": _reshape,
    "reshape": _reshape,
    "expand_dims": _reshape,
    "broadcast_in_dim": _broadcast,
    "concatenate": _concatenate,
    "pad": _pad,
    "dot_general": _dot,
    "reduce_sum": _sum,
    "convert_element_type": _convert,
    "select_n": _select,
}
