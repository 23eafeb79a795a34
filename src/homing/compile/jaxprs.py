"""Reading traced programs."""

from __future__ import annotations

from typing import Any


def scan_inputs(equation: Any) -> tuple[int, int]:
    """How many inputs of a scan are constants, and how many carries; those that follow are sliced.

    Found by their ranks: since JAX 0.12 an equation no longer has these numbers.
    """
    inner = equation.params["jaxpr"].jaxpr
    rank = lambda variable: len(variable.aval.shape)
    same = lambda outer, own: sum(rank(a) == rank(b) for a, b in zip(outer, own, strict=True))
    carries = same(equation.outvars, inner.outvars)
    return same(equation.invars, inner.invars) - carries, carries
