"""A translated program: WebAssembly, the constants that its memory begins with, and where its arrays are."""

from __future__ import annotations

import dataclasses
from typing import Any

from homing.share.values import Segment

KINDS = {"f": "f32", "V": "f32", "i": "i32", "u": "i32", "b": "i32"}


@dataclasses.dataclass(frozen=True)
class Program:
    """What a host needs: see `assets/machine.js`, which runs it."""

    code: bytes
    pages: int
    segments: list[Segment]
    buffers: dict[str, tuple[int, int, str]]  # address, elements, kind of NumPy's dtype

    @property
    def description(self) -> dict[str, Any]:
        """All but code and constants, as JSON."""
        return {
            "pages": self.pages,
            "segments": [[s.address, s.kind, len(s.data)] for s in self.segments],
            "buffers": {name: [a, n, KINDS[kind]] for name, (a, n, kind) in self.buffers.items()},
        }

    @property
    def constants(self) -> bytes:
        """Data of all segments, one after the other."""
        return b"".join(s.data for s in self.segments)
