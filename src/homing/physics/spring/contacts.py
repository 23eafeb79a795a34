"""Candidate geom pairs, and contact functions of two shapes.

Contacts are from the first geom's point of view: `dist` is negative for penetration, `normal` points from the
first to the second. Boxes are axis-aligned.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
import mujoco

from homing.physics.vectors import (
    EYE,
    Number,
    Vec,
    add,
    dot,
    minus,
    mul,
    plus,
    scale,
    sub,
    unit,
    where,
)

APART = 1.0  # distance that marks an inactive contact
AXES = (0, 1, 2)


class Contact(NamedTuple):
    """Signed distance, position and normal of a contact."""

    dist: Number
    pos: Vec
    normal: Vec


class Sphere(NamedTuple):
    """A sphere in the world frame."""

    centre: Vec
    radius: Number


class Capsule(NamedTuple):
    """A capsule in the world frame; `axis` is a unit vector, `length` the half-length of its segment."""

    centre: Vec
    radius: Number
    axis: Vec
    length: Number


def geom_pairs(model: mujoco.MjModel) -> Iterator[tuple[int, int]]:
    """Pairs of geoms that may collide, lower type first, filtered as in MuJoCo: matching contact bits, different
    bodies, and, except for the world, not parent and child."""
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT:
        return
    excluded = set(model.exclude_signature)
    weld = model.body_weldid
    for a in range(model.ngeom):
        for b in range(a + 1, model.ngeom):
            bodies = sorted((model.geom_bodyid[a], model.geom_bodyid[b]))
            first, second = weld[bodies[0]], weld[bodies[1]]
            collides = (
                model.geom_contype[a] & model.geom_conaffinity[b]
                | model.geom_contype[b] & model.geom_conaffinity[a]
            )
            if not collides or first == second or (bodies[0] << 16) + bodies[1] in excluded:
                continue
            if first and second and _related(model, first, second):
                continue
            yield (a, b) if model.geom_type[a] <= model.geom_type[b] else (b, a)


def _related(model: mujoco.MjModel, first: int, second: int) -> bool:
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT:
        return False
    up = lambda body: model.body_weldid[model.body_parentid[body]]
    return first == up(second) or second == up(first)


# -- contact functions ------------------------------------------------------------------------------------


def sphere_plane(sphere: Sphere, normal: Vec, height: Number) -> list[Contact]:
    """Sphere against the half-space n · x ≤ height."""
    dist = sub(sub(dot(normal, sphere.centre), height), sphere.radius)
    pos = minus(sphere.centre, scale(add(sphere.radius, 0.5 * dist), normal))
    return [Contact(dist, pos, scale(-1.0, normal))]


def capsule_plane(capsule: Capsule, normal: Vec, height: Number) -> list[Contact]:
    """Contacts of both end spheres with a plane."""
    ends = [Sphere(end, capsule.radius) for end in _ends(capsule)]
    return [contact for end in ends for contact in sphere_plane(end, normal, height)]


def sphere_sphere(a: Sphere, b: Sphere) -> list[Contact]:
    """Contact of two spheres."""
    normal, gap = unit(minus(b.centre, a.centre))
    dist = gap - add(a.radius, b.radius)
    return [Contact(dist, plus(a.centre, scale(add(a.radius, 0.5 * dist), normal)), normal)]


def sphere_capsule(sphere: Sphere, capsule: Capsule) -> list[Contact]:
    """Contact of a sphere with a capsule."""
    return sphere_sphere(sphere, Sphere(_nearest(capsule, sphere.centre), capsule.radius))


def capsule_sphere(capsule: Capsule, sphere: Sphere) -> list[Contact]:
    """Contact of a capsule with a sphere."""
    return sphere_sphere(Sphere(_nearest(capsule, sphere.centre), capsule.radius), sphere)


def capsule_capsule(a: Capsule, b: Capsule) -> list[Contact]:
    """Contact at the closest points of two capsules."""
    on_a, on_b = _nearest_points(a, b)
    return sphere_sphere(Sphere(on_a, a.radius), Sphere(on_b, b.radius))


def sphere_box(sphere: Sphere, centre: Vec, half: Vec) -> list[Contact]:
    """Contact at the nearest point of the box; for a centre inside the box, on the nearest face."""
    side, local = _mirror(minus(sphere.centre, centre))
    depth = minus(local, half)
    face, deepest = _greatest(depth)
    beside = tuple(jnp.where(f, 0.0, jnp.maximum(d, 0.0)) for f, d in zip(face, depth, strict=True))
    on_face = (beside[0] + beside[1] + beside[2]) <= 0.0
    step = scale(-1.0, tuple(jnp.where(f, d, b) for f, d, b in zip(face, depth, beside, strict=True)))
    towards, gap = unit(step)
    facing = tuple(jnp.where(f, -1.0, 0.0) for f in face)
    flat = on_face | (gap < 1e-6)
    normal = where(flat, facing, towards)
    dist = jnp.where(on_face, deepest, gap) - sphere.radius
    dist = jnp.where(deepest - sphere.radius >= 0.0, APART, dist)
    pos = plus(local, scale(0.5, plus(step, scale(sphere.radius, normal))))
    return [_unmirror(Contact(dist, pos, normal), side, centre)]


def capsule_box(capsule: Capsule, centre: Vec, half: Vec) -> list[Contact]:
    """Two contacts: both ends of the part over the nearest face, or an edge contact in place of the first.

    The box must be larger than the capsule, so that only the three faces and three edges at the corner nearest
    to the capsule's centre can be in contact.
    """
    side, middle = _mirror(minus(capsule.centre, centre))
    axis = tuple(a * b for a, b in zip(side, capsule.axis, strict=True))
    local = Capsule(middle, capsule.radius, axis, capsule.length)
    ends, normal = _face_contacts(local, half)
    shallowest = jnp.minimum(-ends[0].dist, -ends[1].dist)
    edge, wanted = _edge_contact(local, half, normal, shallowest)
    first = Contact(
        jnp.where(wanted, edge.dist, ends[0].dist),
        where(wanted, edge.pos, ends[0].pos),
        where(wanted, edge.normal, ends[0].normal),
    )
    second = ends[1]._replace(dist=jnp.where(wanted, APART, ends[1].dist))
    return [_unmirror(contact, side, centre) for contact in (first, second)]


def _face_contacts(capsule: Capsule, half: Vec) -> tuple[list[Contact], Vec]:
    """Contacts of both ends of the part over the face of least penetration, and that face's normal."""
    reach = scale(capsule.length, capsule.axis)
    depth = tuple(
        m - jnp.abs(s) - h - capsule.radius for m, s, h in zip(capsule.centre, reach, half, strict=True)
    )
    face, deepest = _greatest(depth)
    start, end, outside = -1.0, 1.0, False
    for f, m, s, h in zip(face, capsule.centre, reach, half, strict=True):
        before, after = m - s > h, m + s > h
        crossing = (h - m) / jnp.where(s == 0.0, 1e-6, s)
        start = jnp.maximum(start, jnp.where(~f & before, jnp.clip(crossing, -1.0, 1.0), -1.0))
        end = jnp.minimum(end, jnp.where(~f & after, jnp.clip(crossing, -1.0, 1.0), 1.0))
        outside = outside | (~f & before & after)
    over = (deepest < 0.0) & ~outside & (end >= start)
    normal = tuple(jnp.where(f, 1.0, 0.0) for f in face)
    inward = scale(-1.0, normal)
    contacts = []
    for at in (start, end):
        point = plus(capsule.centre, scale(at, reach))
        height = dot(normal, minus(point, half)) - capsule.radius
        pos = minus(point, scale(capsule.radius + 0.5 * height, normal))
        contacts.append(Contact(jnp.where(over, height, APART), pos, inward))
    return contacts, normal


def _edge_contact(capsule: Capsule, half: Vec, normal: Vec, shallowest: Number) -> tuple[Contact, Number]:
    """The contact with the nearest of the corner's three edges, and whether it replaces the face contact.

    shallowest: the smaller depth of the two face contacts
    """
    found = []
    for k in AXES:
        edge = Capsule(tuple(0.0 if n == k else half[n] for n in AXES), 0.0, EYE[k], half[k])
        on_edge, on_capsule = _nearest_points(edge, capsule)
        step = minus(on_edge, on_capsule)
        i, j = (n for n in AXES if n != k)
        in_front = (step[i] < 0.0) & (step[j] < 0.0)  # of both faces that share the edge
        found.append((dot(step, step), in_front, step, on_capsule))
    square, outward, step, on_capsule = reduce(_nearer, found)
    dist = jnp.sqrt(square)
    towards = scale(1.0 / jnp.maximum(dist, 1e-6), step)
    depth = capsule.radius - dist
    wanted = (
        (depth > 0.0)
        & outward
        & (square >= 1e-6)
        & (jnp.abs(dot(towards, normal)) <= 0.99)
        & ((shallowest <= 0.0) | (depth < shallowest))
    )
    pos = plus(on_capsule, scale(0.5, plus(step, scale(capsule.radius, towards))))
    return Contact(-depth, pos, towards), wanted


def _nearer(a: tuple, b: tuple) -> tuple:
    """The candidate of smaller squared distance, which is the first entry."""
    closer = b[0] < a[0]
    pick = lambda x, y: where(closer, y, x) if isinstance(x, tuple) else jnp.where(closer, y, x)
    return tuple(pick(x, y) for x, y in zip(a, b, strict=True))


# -- helpers ----------------------------------------------------------------------------------------------


def _ends(capsule: Capsule) -> tuple[Vec, Vec]:
    reach = scale(capsule.length, capsule.axis)
    return plus(capsule.centre, reach), minus(capsule.centre, reach)


def _nearest(segment: Capsule, point: Vec) -> Vec:
    """The point on a capsule's segment nearest to a point."""
    # The small term avoids a division by zero; it biases the point slightly towards the lower end.
    span = add(mul(segment.length, segment.length) * 4.0, 1e-6)
    along = add(dot(minus(point, segment.centre), segment.axis), segment.length)
    fraction = jnp.clip(mul(along, segment.length) * 2.0 / span, 0.0, 1.0)
    return plus(segment.centre, scale(mul(segment.length, 2.0 * fraction - 1.0), segment.axis))


def _nearest_points(a: Capsule, b: Capsule) -> tuple[Vec, Vec]:
    """The closest points of two capsules' segments."""
    apart = minus(a.centre, b.centre)
    cosine = dot(a.axis, b.axis)
    on_a, on_b = dot(a.axis, apart), dot(b.axis, apart)
    t_a = sub(mul(cosine, on_b), on_a) / (1.0 - cosine * cosine + 1e-6)
    t_b = add(on_b, t_a * cosine)
    p_a = plus(a.centre, scale(jnp.clip(t_a, -a.length, a.length), a.axis))
    p_b = plus(b.centre, scale(jnp.clip(t_b, -b.length, b.length), b.axis))
    # If both were clipped, projecting one onto the other segment may be closer.
    q_a, q_b = _nearest(a, p_b), _nearest(b, p_a)
    gap_a, gap_b = minus(q_a, p_b), minus(p_a, q_b)
    first = dot(gap_a, gap_a) < dot(gap_b, gap_b)
    return where(first, q_a, p_a), where(first, p_b, q_b)


def _mirror(v: Vec) -> tuple[Vec, Vec]:
    """Signs of v, and |v|: reflection into the positive octant."""
    return tuple(jnp.where(a < 0.0, -1.0, 1.0) for a in v), tuple(jnp.abs(a) for a in v)


def _unmirror(contact: Contact, side: Vec, centre: Vec) -> Contact:
    back = lambda v: tuple(s * a for s, a in zip(side, v, strict=True))
    return Contact(contact.dist, plus(centre, back(contact.pos)), back(contact.normal))


def _greatest(v: Vec) -> tuple[Vec, Number]:
    """One-hot flags of the largest of three values, and the value."""
    a, b, c = v
    # Not by equality with the maximum: once compiled, the two sides may be rounded differently.
    first, second = (a >= b) & (a >= c), b >= c
    flags = (first, ~first & second, ~first & ~second)
    return flags, jnp.where(first, a, jnp.where(second, b, c))
