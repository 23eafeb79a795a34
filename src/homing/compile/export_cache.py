"""Exported programs kept on disk: a run with the settings of an earlier one starts without tracing.

JAX's cache saves compiling, but its key is the lowered program, and tracing and lowering take longer than all
the rest of a warm start. Traced programs are kept here as StableHLO, in JAX's export format, under a hash of
everything they were traced from: this package's source, versions, flags and the settings of the run. Code
outside of the package (an agent registered by a script, a function replaced in a notebook, a module of
`--import`) is not in the hash: only the command line turns this on, and loading such code turns it off for good.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export

from homing.compile import xla
from homing.compile.cache import is_private, read_checked, write_checked

FOLDER = "homing-exports"
KEPT = 64  # files, the latest used
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "mujoco", "mujoco-mjx", "brax")

_on = False
_foreign = False


def turn_on() -> None:
    """Keep exported programs; for a process that runs nothing but this package."""
    global _on
    _on = True


def turn_off() -> None:
    """For good: the process has loaded code that the hash does not cover."""
    global _foreign
    _foreign = True


def store(identity: Mapping[str, Any] | None) -> Store | None:
    """Where the programs of a run with these settings are kept; None without a cache of compiled ones."""
    base = jax.config.values["jax_compilation_cache_dir"]
    if not _on or _foreign or identity is None or base is None or not is_private(Path(base) / FOLDER):
        return None
    return Store(Path(base) / FOLDER, _hash(identity))


class Store:
    """The programs of one run."""

    def __init__(self, folder: Path, name: str):
        self.folder, self.name = folder, name

    def exported(self, program: str, make: Callable[[], tuple[export.Exported, Any]]) -> tuple[Any, Any]:
        """A program and the notes beside it: read, or else made and kept.

        One that was just made goes through the same bytes, so that a run and its repetition compile the same.
        """
        path = self.folder / f"{self.name}-{program}"
        if (found := read_checked(path)) is None:
            made, notes = make()
            found = json.dumps(notes).encode() + b"\n" + bytes(made.serialize())
            write_checked(path, found)
            _drop_old(self.folder)
        notes, _, body = found.partition(b"\n")
        return export.deserialize(bytearray(body)), json.loads(notes)


def _drop_old(folder: Path) -> None:
    """Keep the programs that were used last."""
    with contextlib.suppress(OSError):  # another process is doing the same
        by_age = sorted(folder.glob("[!.]*"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in by_age[KEPT:]:
            old.unlink(missing_ok=True)


def _hash(identity: Mapping[str, Any]) -> str:
    known = {"identity": identity, "versions": _versions(), "flags": _flags(), "source": _source()}
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _versions() -> dict[str, str]:
    return {name: _version(name) for name in PACKAGES} | {
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
    }


def _version(package: str) -> str:
    """Version of a package; brax is optional."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _flags() -> dict[str, str]:
    """What may change a trace; where caches lie does not."""
    jax_flags = {name: str(value) for name, value in jax.config.values.items() if "cache" not in name}
    ours = {name: value for name, value in os.environ.items() if name.startswith(("HOMING_", "XLA_FLAGS"))}
    return (
        jax_flags
        | ours
        | {"unroll": str(xla.unroll_factor()), "kernels": f"{xla.kernels()} {xla.cuda_kernels()}"}
    )


@functools.cache
def _source() -> str:
    """A hash of every file of this package."""
    root = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.cu")]):
        whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()
