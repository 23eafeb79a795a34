"""Triangles of geoms: closed, outward, and of the volume of the solid."""

import numpy as np
import pytest

from homing.physics.drawing import Shape
from homing.play.meshes import MESHES, as_mesh

SIZE = (0.3, 0.5, 0.2)
SOLIDS = {
    "box": (8 * 0.3 * 0.5 * 0.2, (0.3, 0.5, 0.2)),
    "capsule": (np.pi * 0.3**2 * (2 * 0.5 + 4 / 3 * 0.3), (0.3, 0.3, 0.8)),
    "cylinder": (np.pi * 0.3**2 * 2 * 0.5, (0.3, 0.3, 0.5)),
    "ellipsoid": (4 / 3 * np.pi * 0.3 * 0.5 * 0.2, (0.3, 0.5, 0.2)),
    "sphere": (4 / 3 * np.pi * 0.3**3, (0.3, 0.3, 0.3)),
}


def shape(kind, **parts):
    return Shape(-1, kind, SIZE, (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), **parts)


def test_every_kind_has_its_solid():
    assert set(MESHES) == set(SOLIDS)


@pytest.mark.parametrize("kind", SOLIDS)
def test_a_geom_encloses_its_solid(kind):
    vertices, faces = as_mesh(shape(kind))
    volume, half = SOLIDS[kind]
    a, b, c = np.moveaxis(vertices[faces].astype(np.float64), 1, 0)
    # By the divergence theorem; positive only if triangles face outwards.
    assert np.sum(np.cross(a, b) * c) / 6 == pytest.approx(volume, rel=0.03)
    np.testing.assert_allclose(vertices.max(axis=0), half, rtol=0.01)
    np.testing.assert_allclose(vertices.min(axis=0), np.negative(half), rtol=0.01)
    area = np.linalg.norm(np.cross(b - a, c - a), axis=-1)
    assert area.min() > 1e-9, "no triangle without area"


def test_a_mesh_is_passed_on():
    vertices, faces = np.eye(3), np.array([[0, 1, 2]])
    found = as_mesh(shape("mesh", vertices=vertices, faces=faces))
    np.testing.assert_array_equal(found[0], vertices)
    np.testing.assert_array_equal(found[1], faces)
