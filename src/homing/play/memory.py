"""Flat memory for a server that runs for days.

Connections leave reference cycles behind. Beside the many objects of compiled programs Python seldom looks for
cycles, and the C library keeps the pages of what was freed; both are done here, at fixed times.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time

PERIOD = 30.0  # seconds


def settle() -> None:
    """Set what is alive apart from later collections, which are short then; after a simulation was built."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    release_pages()


def release_pages() -> None:
    """Give freed pages back to the system, where the C library can (glibc)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


class Housekeeping:
    """Collects garbage every `PERIOD` seconds, and settles after each new simulation."""

    def __init__(self) -> None:
        self._version, self._due = -1, 0.0

    def __call__(self, version: int) -> None:
        """To be called often; `version` counts the simulations so far."""
        now = time.monotonic()
        if version != self._version:
            self._version, self._due = version, now + PERIOD
            settle()
        elif now >= self._due:
            self._due = now + PERIOD
            gc.collect()
            release_pages()
