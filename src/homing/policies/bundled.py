"""Policies that come with the package."""

from __future__ import annotations

from pathlib import Path

from homing.errors import unknown
from homing.runs.tensors import SUFFIX

FOLDER = Path(__file__).parent


def shipped_names() -> tuple[str, ...]:
    """Names of the shipped policies: each is that of its environment, with a suffix where there are several."""
    return tuple(sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}")))


def shipped(name: str) -> Path:
    """The file of a shipped policy."""
    if name not in shipped_names():
        raise unknown("shipped policy", name, shipped_names())
    return FOLDER / f"{name}{SUFFIX}"


def picture(name: str) -> Path | None:
    """A small PNG of a shipped policy at work; None if it has none."""
    path = shipped(name).with_suffix(".png")
    return path if path.is_file() else None
