"""Collision pairs of a model, computed once.

Pairs are batched by type: all geoms of one shape (spheres or capsules on links) against all planes, static
boxes, spheres or capsules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from homing.physics.spring import contacts
from homing.physics.spring.contacts import Capsule, Contact, Sphere, geom_pairs
from homing.physics.spring.near_boxes import NEAR, NearBoxes
from homing.physics.vectors import (
    Bodies,
    Number,
    Vec,
    constant,
    constants,
    floats,
    matrix,
    pick,
    plus,
    rotate,
)
from homing.physics.walls import BoundWindow

Array = jax.Array
PLANE, SPHERE, CAPSULE, BOX = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "SPHERE", "CAPSULE", "BOX")
)
# Contact functions by the types of the two geoms.
CONTACT_FUNCTIONS: dict[tuple[int, int], Callable[..., list[Contact]]] = {
    (SPHERE, PLANE): contacts.sphere_plane,
    (SPHERE, SPHERE): contacts.sphere_sphere,
    (SPHERE, CAPSULE): contacts.sphere_capsule,
    (SPHERE, BOX): contacts.sphere_box,
    (CAPSULE, PLANE): contacts.capsule_plane,
    (CAPSULE, SPHERE): contacts.capsule_sphere,
    (CAPSULE, CAPSULE): contacts.capsule_capsule,
    (CAPSULE, BOX): contacts.capsule_box,
}


@dataclass(frozen=True)
class Geoms:
    """Spheres or capsules on links; constants [S, K], as in `CollisionPair`."""

    shape: int
    link: np.ndarray
    offset: Vec
    axis: Vec
    radius: Number
    length: Number

    @classmethod
    def of(cls, model: mujoco.MjModel, ids: np.ndarray) -> Geoms:
        offset = model.geom_pos[ids] - model.body_ipos[model.geom_bodyid[ids]]
        radius, length = (constant(model.geom_size[ids][..., i]) for i in (0, 1))
        shape, link = int(model.geom_type[ids].flat[0]), model.geom_bodyid[ids] - 1
        return cls(shape, link, constants(offset), constants(_third_axes(model, ids)), radius, length)

    def placed(self, bodies: Bodies) -> Sphere | Capsule:
        """The shapes in the world frame, given the bodies that they are attached to."""
        own = matrix(bodies.rot)
        centre = plus(bodies.pos, rotate(own, self.offset))
        if self.shape == SPHERE:
            return Sphere(centre, self.radius)
        return Capsule(centre, self.radius, rotate(own, self.axis), self.length)


@dataclass(frozen=True)
class Planes:
    """Planes n · x = height; constants [S, K]."""

    normal: Vec
    height: Number

    @classmethod
    def of(cls, model: mujoco.MjModel, ids: np.ndarray) -> Planes:
        normal = _third_axes(model, ids)
        return cls(constants(normal), constant(np.sum(normal * model.geom_pos[ids], axis=-1)))


@dataclass(frozen=True)
class Boxes:
    """Static boxes.

    index: into the table of boxes, [S, K], or [S, 1] where all geoms collide with the same boxes
    """

    index: np.ndarray
    half: Vec

    @classmethod
    def of(cls, model: mujoco.MjModel, ids: np.ndarray, table: Table) -> Boxes:
        index = np.vectorize(table.index.get)(ids)
        same = np.all(index == index[:, :1])
        return cls(index[:, :1] if same else index, constants(model.geom_size[ids]))

    def centres(self, walls: Array) -> Vec:
        """Box centres, components [N, S, K], from a table [N, 3 · boxes]."""
        index = np.arange(3)[:, None, None] * (walls.shape[-1] // 3) + self.index
        centres = pick(walls, index)
        return tuple(centres[..., i, :, :] for i in range(3))


class Table:
    """All boxes of a model: the moving ones, window by window, then the fixed ones."""

    def __init__(self, model: mujoco.MjModel, windows: tuple[BoundWindow, ...]):
        self.windows = windows
        moving = [g for window in windows for g in window.geoms]
        fixed = [g for g in np.flatnonzero(model.geom_type == BOX) if g not in moving]
        self.index = {g: index for index, g in enumerate([*moving, *fixed])}
        self._fixed = model.geom_pos[fixed].astype(np.float32)

    def fill(self, link_pos: Array) -> Array:
        """Centres of all boxes [N, 3 · boxes], all x before all y, for links at link_pos [N, L, 3]."""
        near = [jax.vmap(window.place)(link_pos[:, window.link, :2]) for window in self.windows]
        fixed = jnp.broadcast_to(jnp.asarray(self._fixed), (len(link_pos), *self._fixed.shape))
        return jnp.swapaxes(jnp.concatenate([*near, fixed], axis=1), 1, 2).reshape(len(link_pos), -1)


@dataclass(frozen=True)
class CollisionPair:
    """Collision pairs of K geoms with up to S others of one type each, [S, K]; `real` is false for padding."""

    find: Callable[..., list[Contact]]
    real: np.ndarray
    friction: Number
    bounce: Number
    others: Planes | Boxes | NearBoxes | Geoms

    def contacts(self, own: Sphere | Capsule, other: Bodies | None, walls: Array) -> list[Contact]:
        """Contacts of all pairs; `other` are the bodies of the other geoms, where those are on links."""
        if isinstance(self.others, Planes):
            found = self.find(own, self.others.normal, self.others.height)
        elif isinstance(self.others, Boxes):
            found = self.find(own, self.others.centres(walls), self.others.half)
        elif isinstance(self.others, NearBoxes):
            found = self.find(own, self.others.centres(own.centre, walls), self.others.half)
        else:
            assert other is not None
            found = self.find(own, self.others.placed(other))
        if np.all(self.real):
            return found
        return [c._replace(dist=jnp.where(self.real, c.dist, contacts.APART)) for c in found]


def collision_pairs_of(
    model: mujoco.MjModel, elasticity: np.ndarray, table: Table
) -> Iterator[tuple[Geoms, list[CollisionPair]]]:
    """For each shape, the geoms [1, K] that can collide, and their collision pairs by type of the other geom."""
    partners: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for pair in geom_pairs(model):
        for own, other in (pair, pair[::-1]):
            if model.geom_bodyid[own] and model.geom_type[own] in (SPHERE, CAPSULE):
                partners[own][int(model.geom_type[other])].append(other)
    for shape in (SPHERE, CAPSULE):
        ids = np.array(sorted(g for g in partners if model.geom_type[g] == shape), int)
        kinds = sorted({kind for g in ids for kind in partners[g]})
        if kinds:
            pairs = [_pair(model, elasticity, table, ids, [partners[g][kind] for g in ids]) for kind in kinds]
            yield Geoms.of(model, ids[None]), pairs


def _pair(
    model: mujoco.MjModel, elasticity: np.ndarray, table: Table, ids: np.ndarray, partners: list[list[int]]
) -> CollisionPair:
    """The pairs of the geoms `ids`; `partners` lists for each the other geoms of one type."""
    count = max(map(len, partners))
    padding = next(p[0] for p in partners if p)
    others = np.array([[*p, *[padding] * (count - len(p))] for p in partners]).T
    real = np.array([[n < len(p) for p in partners] for n in range(count)])
    kind = int(model.geom_type[padding])
    find = CONTACT_FUNCTIONS[int(model.geom_type[ids[0]]), kind]
    what: Planes | Boxes | NearBoxes | Geoms
    if kind == PLANE:
        what = Planes.of(model, others)
    elif kind != BOX:
        what = Geoms.of(model, others)
    elif (near := NearBoxes.of(model, ids, others, table.windows)) is not None:
        what, real, others = near, real[:NEAR], others[:NEAR]
    else:
        what = Boxes.of(model, others, table)
    bounce = constant(0.5 * (elasticity[ids] + elasticity[others]))
    return CollisionPair(find, real, _friction(model, ids, others), bounce, what)


def _friction(model: mujoco.MjModel, ids: np.ndarray, others: np.ndarray) -> Number:
    """The larger friction of a pair, or that of the geom with higher priority."""
    own, other = model.geom_friction[ids, 0], model.geom_friction[others, 0]
    first, second = model.geom_priority[ids], model.geom_priority[others]
    return constant(np.where(first > second, own, np.where(first < second, other, np.maximum(own, other))))


def _third_axes(model: mujoco.MjModel, ids: np.ndarray) -> np.ndarray:
    """z axes of geoms in their bodies' frames [..., 3]: normals of planes, axes of capsules."""
    axes = [matrix(floats(q))[2] for q in model.geom_quat[ids].reshape(-1, 4)]
    return np.array(axes, float).reshape(*ids.shape, 3)


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """Reasons why a model's contacts are not supported."""
    if model.npair:
        yield "it lists explicit contact pairs"
    for name in ("max_geom_pairs", "max_contact_points"):
        if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_NUMERIC, name) >= 0:
            yield f"it limits contacts by {name}"
    for pair in geom_pairs(model):
        kinds = tuple(int(k) for k in model.geom_type[list(pair)])
        if kinds not in CONTACT_FUNCTIONS and kinds[::-1] not in CONTACT_FUNCTIONS:
            yield f"geoms {pair[0]} and {pair[1]} are of types without a contact function"
        for geom in pair:
            if model.geom_type[geom] in (PLANE, BOX) and model.geom_bodyid[geom]:
                yield f"geom {geom} is a plane or a box that moves"
            if model.geom_type[geom] == BOX and not np.allclose(model.geom_quat[geom], (1, 0, 0, 0)):
                yield f"box {geom} is rotated"
        if kinds == (CAPSULE, BOX) and np.min(model.geom_size[pair[1]]) <= np.sum(
            model.geom_size[pair[0], :2]
        ):
            yield f"box {pair[1]} is smaller than capsule {pair[0]}"
