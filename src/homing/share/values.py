"""Arrays in WebAssembly memory.

An array is a table of the addresses of its elements, so slices, transposes, broadcasts and gathers with known indices
cost nothing: they make another table. Elements are four bytes: float32 (also for bfloat16, whose values are rounded),
int32, or a bool as a mask of 32 equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from homing.errors import HomingError

LANES, WIDTH = 4, 4  # elements of a vector, bytes of an element
BFLOAT16 = np.dtype(jnp.bfloat16)
SUPPORTED = (np.dtype(np.float32), BFLOAT16, np.dtype(np.int32), np.dtype(np.uint32), np.dtype(bool))


@dataclass(frozen=True, eq=False)
class Value:
    """An array: constant `data`, or the `places` (addresses) of its elements."""

    dtype: np.dtype
    data: np.ndarray | None = None
    places: np.ndarray | None = None

    @property
    def table(self) -> np.ndarray:
        return self.data if self.data is not None else self.places  # type: ignore[return-value]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.table.shape

    @property
    def size(self) -> int:
        return self.table.size

    def view(self, change: Callable[[np.ndarray], np.ndarray]) -> Value:
        """Other elements of this array, in another order."""
        table = change(self.table)
        return Value(
            self.dtype, table if self.data is not None else None, None if self.data is not None else table
        )


class Operand(NamedTuple):
    """Elements in a row from an address, or one element that stands for all."""

    address: int
    splat: bool


class Segment(NamedTuple):
    """A constant that the host writes into memory: words as they are, or numbers of 16 bits that it widens."""

    address: int
    kind: str  # words, bf16 or f16
    data: bytes


def as_words(data: np.ndarray, dtype: np.dtype) -> bytes:
    """Elements as they lie in memory, little-endian."""
    if dtype == np.dtype(bool):
        return (-data.astype(np.int32)).astype("<i4").tobytes()
    if dtype in (np.dtype(np.int32), np.dtype(np.uint32)):
        return data.astype(dtype.newbyteorder("<")).tobytes()
    return data.astype("<f4").tobytes()


def compact(address: int, words: bytes, dtype: np.dtype) -> Segment:
    """A constant in 16 bits where they hold it exactly, as they do for weights of policy files."""
    if dtype.kind == "f" or dtype == BFLOAT16:
        bits, numbers = np.frombuffer(words, "<u4"), np.frombuffer(words, "<f4")
        if not np.any(bits & 0xFFFF):
            return Segment(address, "bf16", (bits >> 16).astype("<u2").tobytes())
        if np.array_equal(numbers.astype(np.float16).astype(np.float32), numbers):
            return Segment(address, "f16", numbers.astype("<f2").tobytes())
    return Segment(address, "words", words)


def check_dtype(dtype: Any) -> np.dtype:
    """Refuse element types that a page cannot compute with."""
    found = np.dtype(dtype)
    if found not in SUPPORTED:
        raise HomingError(f"arrays of type {found} cannot be translated for a page")
    return found
