"""Checkpoints to resume from: everything that a run is, the replay included, written by orbax."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from homing.config.offpolicy import human_bytes
from homing.errors import HomingError
from homing.runs.arrays import array_types, check_arrays, fingerprints
from homing.runs.folder import WriteError
from homing.types import bytes_of

NOTES = Path("notes") / "metadata"
"""Where orbax writes a checkpoint's JSON."""
ASIDE = "checkpoints_set_aside"


class Found(NamedTuple):
    """A checkpoint whose notes could be read; its arrays have not been yet."""

    path: Path
    iteration: int
    """As its notes have it: a folder's name can be changed."""
    notes: dict[str, Any]
    arrays: dict[str, str]
    """Type and shape of every array, by its name."""
    fingerprints: list[int]


class Saved(NamedTuple):
    """A checkpoint read back."""

    iteration: int
    train: Any
    notes: dict[str, Any]
    path: Path


class Checkpoints:
    """The last few states of a run, each whole or absent, written beside the computation.

    needs: names that the notes of each must have
    """

    def __init__(self, path: Path, keep: int, needs: Sequence[str] = ()):
        self.path, self.keep, self.needs = path.absolute(), keep, tuple(needs)
        self._manager: Any = None

    @property
    def manager(self) -> Any:
        # orbax takes half a second to import: not before it is needed.
        if self._manager is None:
            import orbax.checkpoint as ocp

            # It logs every failure with the stacks of all its threads; `_guarded` reports it in a line.
            logging.getLogger("absl").setLevel(logging.CRITICAL)
            options = ocp.CheckpointManagerOptions(max_to_keep=self.keep, enable_async_checkpointing=True)
            self._manager = ocp.CheckpointManager(self.path, options=options)
        return self._manager

    def iterations(self) -> list[int]:
        """Names of the folders of whole checkpoints, oldest first."""
        if not self.path.is_dir():
            return []
        return sorted(int(entry.name) for entry in self.path.iterdir() if entry.name.isdecimal())

    def save(self, iteration: int, train: Any, notes: dict[str, Any]) -> None:
        """Begin to write; returns once the arrays are copied. A failure shows here or at `wait`."""
        import orbax.checkpoint as ocp

        with contextlib.suppress(WriteError):  # of the one before: this is the new try
            self.wait()
        self._check_room(train)
        content = {
            "iteration": iteration,
            "notes": notes,
            "arrays": array_types(train),
            "fingerprints": np.asarray(fingerprints(train)).tolist(),
        }
        args = ocp.args.Composite(state=ocp.args.StandardSave(train), notes=ocp.args.JsonSave(content))
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
            with contextlib.suppress(Exception):  # `wait` reports failures
                manager.close()

    def found(self, say: Callable[[str], None]) -> list[Found]:
        """Checkpoints with sound notes, newest first; each other one is named and left where it is."""
        found = []
        for name in self.iterations():
            path = self.path / str(name)
            try:
                found.append(self._found(path))
            except (OSError, ValueError) as error:
                say(f"the checkpoint {path} is damaged and is not used ({_first_line(error)})")
            else:
                if found[-1].iteration != name:
                    say(
                        f"the checkpoint {path} is of iteration {found[-1].iteration}, whatever its folder is called"
                    )
        if self.iterations() and not found:
            raise self._unusable()
        return sorted(found, key=lambda entry: entry.iteration, reverse=True)

    def _found(self, path: Path) -> Found:
        try:
            content = json.loads((path / NOTES).read_bytes())
        except FileNotFoundError:
            raise ValueError("it has no notes") from None
        except ValueError:
            raise ValueError("its notes are not whole") from None
        kinds = {"iteration": int, "notes": dict, "arrays": dict, "fingerprints": list}
        lacking = [f"'{name}'" for name, kind in kinds.items() if not _has(content, name, kind)]
        lacking = lacking or [f"'{name}'" for name in self.needs if name not in content["notes"]]
        if lacking:
            raise ValueError(f"its notes lack {', '.join(lacking)}, or another version of homing wrote it")
        return Found(path, *(content[name] for name in kinds))

    def restore(
        self, found: Sequence[Found], shapes: Any, say: Callable[[str], None], shardings: Any = None
    ) -> Saved:
        """The newest of the checkpoints found that is sound; each damaged one is named.

        `shardings` say for each array over which devices it is spread; all are on one if not given.
        """
        for entry in found:
            check_arrays(entry.arrays, shapes, entry.path)
            try:
                return Saved(entry.iteration, self._read(entry, shapes, shardings), entry.notes, entry.path)
            except Exception as error:  # orbax and its storage raise all kinds of errors on damaged files
                say(f"the checkpoint {entry.path} is damaged and is not used ({_first_line(error)})")
        raise self._unusable()

    def _unusable(self) -> HomingError:
        return HomingError(
            f"no checkpoint in {self.path} can be used; all are kept as they are. "
            "Put them back from a copy, or train again with another --out"
        )

    def clear_the_way(self, saved: Saved, say: Callable[[str], None]) -> None:
        """Move checkpoints out of the names that later ones will have, and give the one in use its own."""
        for name in self.iterations():
            path = self.path / str(name)
            if path != saved.path and name >= saved.iteration:
                say(f"{path} was moved to {_moved(path, self.path.with_name(ASIDE))}")
        if saved.path.name != str(saved.iteration):
            saved.path.rename(self.path / str(saved.iteration))
        self.close()

    def _read(self, entry: Found, shapes: Any, shardings: Any) -> Any:
        import orbax.checkpoint as ocp

        if shardings is None:
            device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            shardings = jax.tree.map(lambda _: device, shapes)
        target = jax.tree.map(
            lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), shapes, shardings
        )
        args = ocp.args.Composite(state=ocp.args.StandardRestore(target))
        train = self.manager.restore(int(entry.path.name), args=args).state
        if np.asarray(fingerprints(train)).tolist() != entry.fingerprints:
            raise ValueError("its contents are not what was written")
        return train

    def _check_room(self, train: Any) -> None:
        """Refuse to begin what the disk has no room for."""
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
        except Exception as error:  # errors of the disk come through several libraries
            self.close()
            raise self._error(_first_line(error)) from error


def _has(content: Any, name: str, kind: type) -> bool:
    return isinstance(content, dict) and type(content.get(name)) is kind


def _moved(path: Path, folder: Path) -> Path:
    """A checkpoint in another folder, under its name or, where that is taken, its name and a number."""
    folder.mkdir(exist_ok=True)
    names = (path.name if n == 1 else f"{path.name}-{n}" for n in itertools.count(1))
    free = next(there for name in names if not (there := folder / name).exists())
    path.rename(free)
    return free


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def free_space(path: Path) -> int:
    """Bytes free on the disk of a folder, which need not exist yet."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    return shutil.disk_usage(there).free
