"""Geoms as triangles in their own frames, for the page."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from homing.physics.drawing import Shape

Mesh = tuple[np.ndarray, np.ndarray]
"""Vertices [V, 3] float32 and triangles [F, 3] uint32, seen from outside counter-clockwise."""

SECTIONS = 28  # around an axis
RINGS = 10  # from the pole of a hemisphere to its rim


def as_mesh(shape: Shape) -> Mesh:
    """A geom as triangles in its own frame; axes of revolution are z."""
    if shape.kind == "mesh":
        return np.asarray(shape.vertices, np.float32), np.asarray(shape.faces, np.uint32)
    return MESHES[shape.kind](np.asarray(shape.size, np.float64))


def _box(size: np.ndarray) -> Mesh:
    corners = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * size
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [half for a, b, c, d in sides for half in ((a, b, c), (a, c, d))]
    return corners.astype(np.float32), np.array(faces, np.uint32)


def _capsule(size: np.ndarray) -> Mesh:
    radius, half = size[:2]
    angle = np.linspace(0, np.pi / 2, RINGS + 1)
    top = np.stack([radius * np.sin(angle), half + radius * np.cos(angle)], axis=1)
    return revolved(np.concatenate([top, top[::-1] * (1, -1)]))


def _sphere(size: np.ndarray) -> Mesh:
    angle = np.linspace(0, np.pi, 2 * RINGS + 1)
    arc = np.stack([np.sin(angle), np.cos(angle)], axis=1)
    arc[-1] = 0, -1  # a pole, without rounding
    return revolved(size[0] * arc)


def _ellipsoid(size: np.ndarray) -> Mesh:
    vertices, faces = _sphere(np.ones(3))
    return (vertices * size).astype(np.float32), faces


def _cylinder(size: np.ndarray) -> Mesh:
    """Its rims are in two strips each, so that they stay sharp in shading."""
    radius, half = size[:2]
    corners = np.array([(0, half), (radius, half), (radius, -half), (0, -half)])
    strips = [revolved(corners[k : k + 2]) for k in range(3)]
    before = np.cumsum([0, *(len(vertices) for vertices, _ in strips)])
    faces = [faces + first for (_, faces), first in zip(strips, before[:-1].astype(np.uint32), strict=True)]
    return np.concatenate([vertices for vertices, _ in strips]), np.concatenate(faces)


def revolved(profile: np.ndarray) -> Mesh:
    """The surface of a profile [P, 2] of radii and heights, from the top down, around z."""
    turn = np.linspace(0, 2 * np.pi, SECTIONS, endpoint=False)
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    vertices = [np.column_stack([radius * ring, np.full(SECTIONS, height)]) for radius, height in profile]
    here = np.arange(SECTIONS)
    beside = (here + 1) % SECTIONS
    faces = []
    for k in range(len(profile) - 1):
        upper, lower = k * SECTIONS, (k + 1) * SECTIONS
        # At a pole the ring is one point, and one of the two triangles has no area.
        if profile[k + 1, 0] > 0:
            faces.append(np.stack([upper + here, lower + here, lower + beside], axis=1))
        if profile[k, 0] > 0:
            faces.append(np.stack([upper + here, lower + beside, upper + beside], axis=1))
    return np.concatenate(vertices).astype(np.float32), np.concatenate(faces).astype(np.uint32)


MESHES: dict[str, Callable[[np.ndarray], Mesh]] = {
    "box": _box,
    "capsule": _capsule,
    "cylinder": _cylinder,
    "ellipsoid": _ellipsoid,
    "sphere": _sphere,
}
