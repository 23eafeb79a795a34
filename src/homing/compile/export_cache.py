"""Traced programs kept on disk: a run like one before it starts without tracing anything.

XLA's own cache saves compiling, but to ask it a program must first be traced and lowered, which takes Python
longer than all the rest of a warm start. What was traced is kept here as StableHLO, in JAX's format for
export; its name is a hash of all that it was traced from: this package's source, the versions, the flags and
the settings of the run. Code that is not in the source (an agent registered by a script, a function replaced
in a notebook, a module of `--import`) is not in the hash: only the command line turns this on, and loading
such code turns it off for good.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from jax import export

from homing.compile import xla

FOLDER = "homing-traces"
KEPT = 64  # files, the latest used
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "mujoco", "brax")

_on = False
_foreign = False


def turn_on() -> None:
    """From now on; for a process that runs nothing but this package."""
    global _on
    _on = True


def turn_off() -> None:
    """For good: the process has loaded code that the hash does not cover."""
    global _foreign
    _foreign = True


def store(identity: Mapping[str, Any] | None) -> Store | None:
    """Where the programs of a run with these settings are kept; none without a folder for compiled ones."""
    base = jax.config.jax_compilation_cache_dir
    if not _on or _foreign or identity is None or base is None:
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
        if (found := _read(path)) is None:
            made, notes = make()
            found = bytes(made.serialize()), notes
            _write(path, *found)
        return export.deserialize(bytearray(found[0])), found[1]


def _read(path: Path) -> tuple[bytes, Any] | None:
    """The content of a file, if it is whole."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        if header["sha256"] != hashlib.sha256(body).hexdigest():
            return None
        os.utime(path)
        return body, header["notes"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, body: bytes, notes: Any) -> None:
    """Whole or not at all; a folder that cannot be written to costs time, not the run."""
    header = json.dumps({"sha256": hashlib.sha256(body).hexdigest(), "notes": notes})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Each writer has a draft of its own: runs that start together trace the same program.
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            draft = Path(file.name)
            try:
                file.write(header.encode() + b"\n" + body)
                file.flush()
                draft.replace(path)
            finally:
                draft.unlink(missing_ok=True)
        by_age = sorted(path.parent.glob("[!.]*"), key=lambda p: p.stat().st_mtime, reverse=True)
        for old in by_age[KEPT:]:
            old.unlink(missing_ok=True)
    except OSError:
        return


def _hash(identity: Mapping[str, Any]) -> str:
    known = {"identity": identity, "versions": _versions(), "flags": _flags(), "source": _source()}
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {
        "platform": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
    }


def _flags() -> dict[str, str]:
    """What may change a trace; where caches lie does not."""
    jax_flags = {name: str(value) for name, value in jax.config.values.items() if "cache" not in name}
    ours = {name: value for name, value in os.environ.items() if name.startswith(("HOMING_", "XLA_FLAGS"))}
    return jax_flags | ours | {"unroll": str(xla.unroll_factor()), "kernels": str(xla.kernels())}


@functools.cache
def _source() -> str:
    """A hash of every file of this package."""
    root = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()
