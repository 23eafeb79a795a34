"""Policies that come with the package."""

from __future__ import annotations

from pathlib import Path

from homing.errors import unknown

FOLDER = Path(__file__).parent


def shipped_names() -> tuple[str, ...]:
    """Names under which policies are shipped: those of their environments, with a suffix for more of them."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.homing")))


def shipped(name: str) -> Path:
    """The file of a shipped policy."""
    if name not in shipped_names():
        raise unknown("shipped policy", name, shipped_names())
    return FOLDER / f"{name}.homing"
