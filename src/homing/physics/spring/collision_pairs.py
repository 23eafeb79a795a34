"""Who can touch whom in a model, worked out once.

All geoms of one shape meet all things of one kind together: planes, boxes that stand in the world, or spheres
and capsules on other links.
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
from homing.physics.spring.vectors import (
    Bodies,
    Number,
    Vec,
    constant,
    constants,
    floats,
    matrix,
    pick,
    plus,
    turn,
)
from homing.physics.walls import BoundWindow

Array = jax.Array
PLANE, SPHERE, CAPSULE, BOX = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "SPHERE", "CAPSULE", "BOX")
)
# How a sphere or a capsule finds its contacts with each kind of geom.
FINDERS: dict[tuple[int, int], Callable[..., list[Contact]]] = {
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
    """Spheres or capsules on links; constants [S, K]."""

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
        """The shapes in the world, given the bodies that carry each."""
        own = matrix(bodies.rot)
        centre = plus(bodies.pos, turn(own, self.offset))
        if self.shape == SPHERE:
            return Sphere(centre, self.radius)
        return Capsule(centre, self.radius, turn(own, self.axis), self.length)


@dataclass(frozen=True)
class Planes:
    normal: Vec
    height: Number

    @classmethod
    def of(cls, model: mujoco.MjModel, ids: np.ndarray) -> Planes:
        normal = _third_axes(model, ids)
        return cls(constants(normal), constant(np.sum(normal * model.geom_pos[ids], axis=-1)))


@dataclass(frozen=True)
class Boxes:
    """place: where the boxes are in the table of boxes, [S, K], or [S, 1] where all geoms meet the same"""

    place: np.ndarray
    half: Vec

    @classmethod
    def of(cls, model: mujoco.MjModel, ids: np.ndarray, table: Table) -> Boxes:
        place = np.vectorize(table.place.get)(ids)
        same = np.all(place == place[:, :1])
        return cls(place[:, :1] if same else place, constants(model.geom_size[ids]))

    def centres(self, walls: Array) -> Vec:
        """[N, S, K] each, from a table [N, 3 · boxes]."""
        index = np.arange(3)[:, None, None] * (walls.shape[-1] // 3) + self.place
        centres = pick(walls, index)
        return tuple(centres[..., i, :, :] for i in range(3))


class Table:
    """All boxes of a model: those of the windows first, one window after the other, then those that stay."""

    def __init__(self, model: mujoco.MjModel, windows: tuple[BoundWindow, ...]):
        self.windows = windows
        moving = [g for window in windows for g in window.geoms]
        staying = [g for g in np.flatnonzero(model.geom_type == BOX) if g not in moving]
        self.place = {g: place for place, g in enumerate([*moving, *staying])}
        self._staying = model.geom_pos[staying].astype(np.float32)

    def fill(self, link_pos: Array) -> Array:
        """Centres of all boxes, [N, 3 · boxes], every x before any y, for links at link_pos [N, L, 3]."""
        near = [jax.vmap(window.place)(link_pos[:, window.link, :2]) for window in self.windows]
        staying = jnp.broadcast_to(jnp.asarray(self._staying), (len(link_pos), *self._staying.shape))
        return jnp.swapaxes(jnp.concatenate([*near, staying], axis=1), 1, 2).reshape(len(link_pos), -1)


@dataclass(frozen=True)
class CollisionPair:
    """What K geoms meet: up to S others of one kind each, [S, K]; `real` is false where a geom has fewer."""

    find: Callable[..., list[Contact]]
    real: np.ndarray
    friction: Number
    bounce: Number
    others: Planes | Boxes | Geoms

    def contacts(self, own: Sphere | Capsule, other: Bodies | None, walls: Array) -> list[Contact]:
        """other: the bodies that carry what is met, where that can move"""
        if isinstance(self.others, Planes):
            found = self.find(own, self.others.normal, self.others.height)
        elif isinstance(self.others, Boxes):
            found = self.find(own, self.others.centres(walls), self.others.half)
        else:
            assert other is not None
            found = self.find(own, self.others.placed(other))
        if np.all(self.real):
            return found
        return [c._replace(dist=jnp.where(self.real, c.dist, contacts.APART)) for c in found]


def collision_pairs_of(
    model: mujoco.MjModel, elasticity: np.ndarray, table: Table
) -> Iterator[tuple[Geoms, list[CollisionPair]]]:
    """For each shape the geoms [1, K] that can touch something, and what they meet."""
    met: dict = defaultdict(lambda: defaultdict(list))
    for pair in geom_pairs(model):
        for own, other in (pair, pair[::-1]):
            if model.geom_bodyid[own] and model.geom_type[own] in (SPHERE, CAPSULE):
                met[own][int(model.geom_type[other])].append(other)
    for shape in (SPHERE, CAPSULE):
        ids = np.array(sorted(g for g in met if model.geom_type[g] == shape), int)
        kinds = sorted({kind for g in ids for kind in met[g]})
        if kinds:
            found = [_pair(model, elasticity, table, ids, [met[g][kind] for g in ids]) for kind in kinds]
            yield Geoms.of(model, ids[None]), found


def _pair(
    model: mujoco.MjModel, elasticity: np.ndarray, table: Table, ids: np.ndarray, met: list
) -> CollisionPair:
    """`met` lists for each of the geoms `ids` those of one kind that it meets."""
    most = max(map(len, met))
    anyone = next(m[0] for m in met if m)
    others = np.array([[*m, *[anyone] * (most - len(m))] for m in met]).T
    real = np.array([[n < len(m) for m in met] for n in range(most)])
    kind = int(model.geom_type[anyone])
    find = FINDERS[int(model.geom_type[ids[0]]), kind]
    bounce = constant(0.5 * (elasticity[ids] + elasticity[others]))
    if kind == PLANE:
        what = Planes.of(model, others)
    else:
        what = Boxes.of(model, others, table) if kind == BOX else Geoms.of(model, others)
    return CollisionPair(find, real, _friction(model, ids, others), bounce, what)


def _friction(model: mujoco.MjModel, ids: np.ndarray, others: np.ndarray) -> Number:
    """Of a pair the greater friction counts, or that of the geom with priority."""
    own, other = model.geom_friction[ids, 0], model.geom_friction[others, 0]
    first, second = model.geom_priority[ids], model.geom_priority[others]
    return constant(np.where(first > second, own, np.where(first < second, other, np.maximum(own, other))))


def _third_axes(model: mujoco.MjModel, ids: np.ndarray) -> np.ndarray:
    """The z axes of geoms in their bodies' frames, [..., 3]: normals of planes, axes of capsules."""
    axes = [matrix(floats(q))[2] for q in model.geom_quat[ids].reshape(-1, 4)]
    return np.array(axes, float).reshape(*ids.shape, 3)


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """What of a model's contacts cannot be worked out here."""
    if model.npair:
        yield "it lists contact pairs"
    for name in ("max_geom_pairs", "max_contact_points"):
        if mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_NUMERIC, name) >= 0:
            yield f"it limits contacts by {name}"
    for pair in geom_pairs(model):
        kinds = tuple(int(k) for k in model.geom_type[list(pair)])
        if kinds not in FINDERS and kinds[::-1] not in FINDERS:
            yield f"geoms {pair[0]} and {pair[1]} are of kinds that cannot meet"
        for geom in pair:
            if model.geom_type[geom] in (PLANE, BOX) and model.geom_bodyid[geom]:
                yield f"geom {geom} is a plane or a box that moves"
            if model.geom_type[geom] == BOX and not np.allclose(model.geom_quat[geom], (1, 0, 0, 0)):
                yield f"box {geom} is turned"
        if kinds == (CAPSULE, BOX) and np.min(model.geom_size[pair[1]]) <= np.sum(
            model.geom_size[pair[0], :2]
        ):
            yield f"box {pair[1]} is smaller than capsule {pair[0]}"
