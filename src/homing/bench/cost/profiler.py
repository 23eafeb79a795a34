"""Counting the kernels that a GPU really started, by its profiler."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

DEVICE, STREAM = "/device:GPU", "Stream"  # of the profiler's planes, and of the lines in them


def kernels(run: Callable[[], Any]) -> int | None:
    """Started by one call of a compiled function; None where the profiler sees no GPU or does not work."""
    if jax.default_backend() != "gpu":
        return None
    jax.block_until_ready(run())
    try:
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                jax.block_until_ready(run())
            files = list(Path(folder).rglob("*.xplane.pb"))
            found = sum(started(jax.profiler.ProfileData.from_file(str(file)).planes) for file in files)
    except Exception:  # a machine may forbid profiling; nothing else depends on it
        return None
    return found or None


def started(planes: Iterable[Any]) -> int:
    """Events in the streams of all GPUs, copies of memory left out."""
    lines = (line for plane in planes if plane.name.startswith(DEVICE) for line in plane.lines)
    names = (event.name for line in lines if line.name.startswith(STREAM) for event in line.events)
    return sum(not name.lower().startswith("mem") for name in names)
