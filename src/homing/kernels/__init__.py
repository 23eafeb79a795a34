"""Kernels of our own, for NVIDIA GPUs; each has a twin in plain JAX that it is tested against.

They are used where the machine and the shapes allow it; `HOMING_KERNELS=off` says no, for comparison. The
choice is made while a program is traced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Literal

import jax

from homing.errors import unknown

Mode = Literal["off", "compiled", "interpreted"]

VARIABLE = "HOMING_KERNELS"
# Tensor cores that multiply float32 came with this compute capability.
OLDEST = 8.0

_forced: ContextVar[Mode | None] = ContextVar("kernels", default=None)


def mode() -> Mode:
    """How kernels run in a program that is traced now."""
    if (forced := _forced.get()) is not None:
        return forced
    wish = os.environ.get(VARIABLE, "auto")
    if wish not in ("auto", "off"):
        raise unknown(f"value of {VARIABLE}", wish, ("auto", "off"))
    return "compiled" if wish == "auto" and _capable() else "off"


@contextlib.contextmanager
def using(mode: Mode) -> Iterator[None]:
    """Programs traced in this block run kernels this way, whatever the machine."""
    token = _forced.set(mode)
    try:
        yield
    finally:
        _forced.reset(token)


def _capable() -> bool:
    if jax.default_backend() != "gpu":
        return False
    capability = getattr(jax.devices()[0], "compute_capability", None)
    try:
        return float(capability) >= OLDEST
    except (TypeError, ValueError):  # another maker's card
        return False
