"""The camera of a picture."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Camera:
    """A camera at `distance` metres from `target`; azimuth and elevation in degrees."""

    target: tuple[float, float, float]
    distance: float
    azimuth: float = 90.0
    elevation: float = -35.0
