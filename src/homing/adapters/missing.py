"""The error for an adapter whose library is not installed."""

from __future__ import annotations

from homing.errors import HomingError


def missing(extra: str, error: ModuleNotFoundError) -> HomingError:
    """An error that names the extra which installs the library."""
    return HomingError(
        f"homing.adapters.{extra} needs the package {error.name}; install it with "
        f'`pip install "homing[{extra}]"` (from a checkout: `pip install ".[{extra}]"`)'
    )
