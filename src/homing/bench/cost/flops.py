"""FLOPs of the matrix products of a traced program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax


def product_flops(fn: Callable[..., Any], *args: Any) -> float:
    """FLOPs of the matrix products in `fn(*args)`, 2·m·n·k each; `fn` is only traced.

    Products that no result depends on are not counted. Loops are multiplied by their trip count where it is
    known; conditionals count their most expensive branch.
    """
    jaxpr = jax.make_jaxpr(fn)(*args).jaxpr
    return _flops(jaxpr, [True] * len(jaxpr.outvars))


def _flops(jaxpr: Any, wanted: Sequence[bool]) -> float:
    """FLOPs of the equations that the wanted outputs depend on, by backward liveness."""
    live = {var for var, want in zip(jaxpr.outvars, wanted, strict=True) if want and not _is_literal(var)}
    total = 0.0
    for eqn in reversed(jaxpr.eqns):
        used = [var in live for var in eqn.outvars]
        if any(used):
            total += _cost(eqn, used)
            live |= {var for var in eqn.invars if not _is_literal(var)}
    return total


def _cost(eqn: Any, used: list[bool]) -> float:
    name = eqn.primitive.name
    if name == "dot_general":
        return _product(eqn)
    inner = list(_inside(eqn.params))
    if name == "cond":
        return max(_flops(branch, used) for branch in inner)
    if name == "scan":
        return eqn.params["length"] * _flops(inner[0], _used_in_a_step(eqn, inner[0], used))
    wanted = [
        used if len(j.outvars) == len(used) and name != "while" else [True] * len(j.outvars) for j in inner
    ]
    return sum(_flops(j, w) for j, w in zip(inner, wanted, strict=True))


def _used_in_a_step(eqn: Any, step: Any, used: list[bool]) -> list[bool]:
    """Used outputs of a scan's body: all carries, and the stacked outputs (one axis more outside) in use."""
    carried = [
        len(out.aval.shape) == len(own.aval.shape) for out, own in zip(eqn.outvars, step.outvars, strict=True)
    ]
    return [a or b for a, b in zip(carried, used, strict=True)]


def _is_literal(var: Any) -> bool:
    return hasattr(var, "val")


def _product(eqn: Any) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval.shape
    return 2.0 * math.prod(eqn.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _inside(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs that an equation calls; custom differentiation rules are functions, not jaxprs."""
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner
