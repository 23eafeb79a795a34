"""Contacts of boxes with planes, spheres, and boxes that stay parallel to them, in place of MJX's for polyhedra.

MJX clips polygons of faces for every pair: some hundred small kernels on a GPU, which are most of a step of a few
bodies. For these shapes there are closed forms.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from homing.physics.kinematics import in_subtree
from homing.physics.quiet import quietly

with quietly():
    from mujoco.mjx import GeomType
    from mujoco.mjx._src import collision_driver
    from mujoco.mjx._src.collision_primitive import collider
    from mujoco.mjx._src.math import make_frame

Array = jax.Array
# Distance, position and frame: the normal from the first geom to the second, tangents.
Contact = tuple[Array, Array, Array]
TINY = 1e-10
# Of the four corners of a face: which end of the two other axes.
ENDS = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
# Of the eight corners of a box, one of each pair that lie opposite each other.
CORNERS = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, 1.0, 1.0]], np.float32)

_parallel: contextvars.ContextVar[bool | None] = contextvars.ContextVar("parallel", default=None)


def plane_box(plane: Any, box: Any) -> Contact:
    """The four contacts of a plane with a box in any pose: its corners below its centre, as seen from the plane."""
    normal = plane.mat[:, 2]
    above = CORNERS @ (box.size * (box.mat.T @ normal))
    corners = CORNERS * jnp.where(above > 0, -1.0, 1.0)[:, None] * box.size
    dist = jnp.dot(box.pos - plane.pos, normal) - jnp.abs(above)
    pos = box.pos + corners @ box.mat.T - 0.5 * dist[:, None] * normal
    return dist, pos, jnp.broadcast_to(make_frame(normal), (4, 3, 3))


def sphere_box(sphere: Any, box: Any) -> Contact:
    """The contact of a sphere with a box in any pose: its nearest point, or the nearest face around its centre."""
    centre = box.mat.T @ (sphere.pos - box.pos)
    radius, half = sphere.size[0], box.size
    nearest = jnp.clip(centre, -half, half)
    gap = nearest - centre
    length = jnp.sqrt(jnp.sum(jnp.square(gap)))
    inside = length < TINY
    depth = half - jnp.abs(centre)
    face = jax.nn.one_hot(jnp.argmin(depth), 3, dtype=centre.dtype)
    outwards = face * jnp.where(centre < 0, -1.0, 1.0)
    normal = jnp.where(inside, -outwards, gap / jnp.maximum(length, TINY))
    surface = jnp.where(inside, nearest + outwards * jnp.sum(face * depth), nearest)
    dist = jnp.where(inside, -jnp.sum(face * depth), length) - radius
    middle = 0.5 * (centre + normal * radius + surface)
    return dist, box.pos + box.mat @ middle, make_frame(box.mat @ normal)


def parallel_boxes(first: Any, second: Any) -> Contact:
    """The four contacts of boxes with the same axes: corners of their faces' overlap, on the axis of the least."""
    centre = first.mat.T @ (second.pos - first.pos)
    sign = jnp.where(centre < 0, -1.0, 1.0)
    gap = jnp.abs(centre) - (first.size + second.size)
    ends = jnp.stack(
        [jnp.maximum(-first.size, centre - second.size), jnp.minimum(first.size, centre + second.size)]
    )
    middle = 0.5 * (sign * first.size + centre - sign * second.size)
    chosen = jax.nn.one_hot(jnp.argmax(gap), 3, dtype=centre.dtype)
    corners = jnp.zeros((4, 3), centre.dtype)
    for axis in range(3):
        one, other = (axis + 1) % 3, (axis + 2) % 3
        columns = {
            axis: jnp.full(4, middle[axis]),
            one: ends[ENDS[:, 0], one],
            other: ends[ENDS[:, 1], other],
        }
        corners += chosen[axis] * jnp.stack([columns[i] for i in range(3)], axis=1)
    dist = jnp.full(4, jnp.sum(chosen * gap))
    frame = make_frame(first.mat @ (chosen * sign))
    return dist, first.pos + corners @ first.mat.T, jnp.broadcast_to(frame, (4, 3, 3))


def are_parallel(model: mujoco.MjModel) -> bool:
    """Whether all boxes of a model that collide have the world's axes, whatever its joints do."""
    in_pairs = np.isin(np.arange(model.ngeom), (model.pair_geom1, model.pair_geom2))
    collides = in_pairs | ((model.geom_contype | model.geom_conaffinity) != 0)
    boxes = (model.geom_type == GeomType.BOX) & collides
    upright = lambda quats: np.isclose(quats, [1.0, 0.0, 0.0, 0.0]).all(axis=1)
    hinged = model.jnt_bodyid[model.jnt_type != mujoco.mjtJoint.mjJNT_SLIDE]
    turned = np.isin(np.arange(model.nbody), hinged) | ~upright(model.body_quat)
    turned_along = in_subtree(model.body_parentid)[turned].any(axis=0)
    return bool(upright(model.geom_quat[boxes]).all() and not turned_along[model.geom_bodyid[boxes]].any())


@contextlib.contextmanager
def closed_forms(parallel: bool) -> Iterator[None]:
    """Collisions traced inside are those of this module; of boxes with boxes, where these are parallel."""
    before = _parallel.set(parallel)
    try:
        yield
    finally:
        _parallel.reset(before)


def _offer(
    types: tuple[GeomType, GeomType], count: int, contact: Callable[[Any, Any], Contact], boxes: bool
) -> None:
    """Put a contact into MJX's table beside its own, which counts where it is not asked for."""
    table: Any = collision_driver._COLLISION_FUNC
    own, theirs = collider(ncon=count)(contact), table[types]
    assert theirs.ncon == count

    def collide(*args: Any) -> Any:
        parallel = _parallel.get()
        asked_for = parallel if boxes else parallel is not None
        return (own if asked_for else theirs)(*args)

    collide.ncon = count  # type: ignore[attr-defined]
    table[types] = collide


_offer((GeomType.PLANE, GeomType.BOX), 4, plane_box, boxes=False)
_offer((GeomType.SPHERE, GeomType.BOX), 1, sphere_box, boxes=False)
_offer((GeomType.BOX, GeomType.BOX), 4, parallel_boxes, boxes=True)
