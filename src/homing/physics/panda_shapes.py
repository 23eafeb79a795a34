"""The Panda's looks: capsules and boxes for pictures, without mass or contacts."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco

from homing.physics import panda
from homing.physics.models import Model

WHITE, GREY, DARK = (0.93, 0.94, 0.95, 1.0), (0.62, 0.65, 0.69, 1.0), (0.22, 0.24, 0.27, 1.0)
BLUE = (0.25, 0.47, 0.72, 1.0)
# Capsules in the frames of links: from, to, radius, colour.
CAPSULES = (
    ("world", (0.0, 0.0, 0.03), (0.0, 0.0, 0.10), 0.085, GREY),
    ("world", (0.0, 0.0, 0.10), (0.0, 0.0, 0.19), 0.062, WHITE),
    ("link1", (0.0, 0.0, -0.17), (0.0, 0.0, -0.02), 0.060, WHITE),
    ("link2", (0.0, 0.0, -0.065), (0.0, 0.0, 0.065), 0.060, BLUE),
    ("link2", (0.0, -0.02, 0.0), (0.0, -0.13, 0.0), 0.058, WHITE),
    ("link3", (0.0, 0.0, -0.15), (0.0, 0.0, -0.06), 0.058, WHITE),
    ("link3", (0.0, 0.0, -0.07), (0.0825, 0.0, 0.0), 0.055, WHITE),
    ("link4", (0.0, 0.0, -0.06), (0.0, 0.0, 0.06), 0.058, BLUE),
    ("link4", (0.0, 0.0, 0.0), (-0.0825, 0.10, 0.0), 0.053, WHITE),
    ("link5", (0.0, 0.0, -0.28), (0.0, 0.0, -0.12), 0.052, WHITE),
    ("link5", (0.0, 0.04, -0.12), (0.0, 0.0, 0.0), 0.046, WHITE),
    ("link6", (0.0, 0.0, -0.05), (0.0, 0.0, 0.05), 0.050, BLUE),
    ("link6", (0.0, 0.0, 0.0), (0.088, 0.0, 0.0), 0.044, WHITE),
    ("link7", (0.0, 0.0, -0.02), (0.0, 0.0, 0.07), 0.044, WHITE),
)
PALM_HALF = (0.025, 0.095, 0.028)


def dress_arm(model: Model, gripper: bool) -> None:
    """Links, base and hand; with fingers that stand open where none move."""
    for body, start, end, radius, colour in CAPSULES:
        _add(model, body, mujoco.mjtGeom.mjGEOM_CAPSULE, (radius, 0.0, 0.0), colour, fromto=[*start, *end])
    if not gripper:
        for side in (-1.0, 1.0):
            place = (0.0, side * (0.04 + panda.PAD_AT[1]), panda.FINGERS_AT[2] + panda.PAD_AT[2])
            _add(model, panda.HAND, mujoco.mjtGeom.mjGEOM_BOX, panda.PAD_HALF, DARK, pos=place)
    dress_hand(model)


def dress_hand(model: Model) -> None:
    """A box for the palm, whose capsule is hidden, and dark fingers."""
    model.geom("palm").rgba = [1.0, 1.0, 1.0, 0.0]
    _add(model, panda.HAND, mujoco.mjtGeom.mjGEOM_BOX, PALM_HALF, WHITE, pos=(0.0, 0.0, 0.03))
    for finger in panda.FINGERS:
        if finger in model.body_names:
            model.geom(f"{finger}_pad").rgba = list(DARK)


def _add(
    model: Model,
    body: str,
    shape: mujoco.mjtGeom,
    size: Sequence[float],
    colour: Sequence[float],
    **place: Sequence[float],
) -> None:
    where = model.spec.worldbody if body == "world" else model.body(body)
    where.add_geom(
        type=shape,
        size=list(size),
        rgba=list(colour),
        contype=0,
        conaffinity=0,
        density=0.0,
        **{name: list(values) for name, values in place.items()},
    )
