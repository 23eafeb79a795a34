"""Checkpoints to resume from: everything that a run is, the replay included, written by orbax."""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.config.offpolicy import human_bytes
from homing.errors import HomingError
from homing.runs.folder import WriteError
from homing.types import Array, bytes_of


class Saved(NamedTuple):
    """A checkpoint read back."""

    iteration: int
    train: Any
    notes: dict[str, Any]


class Checkpoints:
    """The last few states of a run, each whole or absent, written beside the computation."""

    def __init__(self, path: Path, keep: int):
        self.path, self.keep = path.absolute(), keep
        self._manager: Any = None

    @property
    def manager(self) -> Any:
        # orbax takes half a second to import: not before it is needed.
        if self._manager is None:
            import orbax.checkpoint as ocp

            # It logs every failure with the stacks of all its threads; `_guarded` tells it in a line.
            logging.getLogger("absl").setLevel(logging.CRITICAL)
            options = ocp.CheckpointManagerOptions(max_to_keep=self.keep, enable_async_checkpointing=True)
            self._manager = ocp.CheckpointManager(self.path, options=options)
        return self._manager

    def iterations(self) -> list[int]:
        """Iterations with a whole checkpoint, oldest first."""
        if not self.path.is_dir():
            return []
        return sorted(int(entry.name) for entry in self.path.iterdir() if entry.name.isdecimal())

    def save(self, iteration: int, train: Any, notes: dict[str, Any]) -> None:
        """Begin to write; returns once the arrays are copied. A failure shows here or at `wait`."""
        import orbax.checkpoint as ocp

        with contextlib.suppress(WriteError):  # of the one before: this is the new try
            self.wait()
        self._check_room(train)
        prints = np.asarray(fingerprints(train)).tolist()
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(train),
            notes=ocp.args.JsonSave({"notes": notes, "fingerprints": prints}),
        )
        self._guarded(lambda: self.manager.save(iteration, args=args, force=True))

    def wait(self) -> None:
        """Until all that was begun is on the disk."""
        if self._manager is not None:
            self._guarded(self._manager.wait_until_finished)

    def settle(self) -> None:
        """`wait` if that takes no time."""
        if self._manager is not None and not self._manager.is_saving_in_progress():
            self.wait()

    def close(self) -> None:
        if self._manager is not None:
            manager, self._manager = self._manager, None
            with contextlib.suppress(Exception):  # `wait` is where a failure is told
                manager.close()

    def restore(self, shapes: Any, say: Callable[[str], None], shardings: Any = None) -> Saved | None:
        """The newest checkpoint that is sound; each damaged one is named. None if there never was one.

        `shardings` say for each array over which devices it is spread; all are on one if not given.
        """
        found = self.iterations()
        for iteration in reversed(found):
            try:
                return self._read(iteration, shapes, shardings)
            except Exception as error:  # orbax and its storage raise all kinds of errors on damaged files
                where = self.path / str(iteration)
                say(f"the checkpoint {where} is damaged and is not used ({_first_line(error)})")
        if found:
            raise HomingError(
                f"no checkpoint in {self.path} can be read; remove that folder and resume to start again"
            )
        return None

    def discard_after(self, iteration: int) -> None:
        """Remove damaged checkpoints that are newer than the one in use: they will be written again."""
        for newer in self.iterations():
            if newer > iteration:
                shutil.rmtree(self.path / str(newer), ignore_errors=True)
        self.close()

    def _read(self, iteration: int, shapes: Any, shardings: Any) -> Saved:
        import orbax.checkpoint as ocp

        if shardings is None:
            device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            shardings = jax.tree.map(lambda _: device, shapes)
        target = jax.tree.map(
            lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), shapes, shardings
        )
        args = ocp.args.Composite(state=ocp.args.StandardRestore(target), notes=ocp.args.JsonRestore())
        read = self.manager.restore(iteration, args=args)
        told = read.notes["fingerprints"]
        if np.asarray(fingerprints(read.state)).tolist() != told:
            raise ValueError("its contents are not what was written")
        return Saved(iteration, read.state, read.notes["notes"])

    def _check_room(self, train: Any) -> None:
        """A disk that is too full is best noticed before it is full."""
        need, free = bytes_of(train), free_space(self.path)
        if need > free:
            raise self._error(f"it takes {human_bytes(need)} and {human_bytes(free)} are free")

    def _error(self, reason: str) -> WriteError:
        kept = self.iterations()
        earlier = f"the earlier one of iteration {kept[-1]} is kept" if kept else "there is no earlier one"
        return WriteError(f"cannot write a checkpoint to {self.path}: {reason}; {earlier}")

    def _guarded(self, write: Callable[[], Any]) -> None:
        try:
            write()
        except Exception as error:  # the disk speaks through several libraries
            self.close()
            raise self._error(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def free_space(path: Path) -> int:
    """Of the disk that a folder, which need not exist yet, will be on."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(there).free


@jax.jit
def fingerprints(tree: Any) -> Array:
    """[leaves] uint32: Σ (2s + 1) (2i + 1) bits[s, i] of each array; any changed entry changes it."""
    return jnp.stack([_fingerprint(leaf) for leaf in jax.tree.leaves(tree)])


def _fingerprint(x: Array) -> Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    # Seed by seed: the replay of all seeds together can have more entries than an int32 counts.
    bits = jax.lax.bitcast_convert_type(x, width).astype(jnp.uint32).reshape(len(x) if x.ndim else 1, -1)
    odd = lambda count: 2 * jnp.arange(count, dtype=jnp.uint32) + 1
    sums = jnp.sum(bits * odd(bits.shape[1]), axis=1, dtype=jnp.uint32)
    return jnp.sum(sums * odd(bits.shape[0]), dtype=jnp.uint32)
