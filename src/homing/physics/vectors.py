"""Vectors as tuples of arrays: elementwise arithmetic only, which XLA fuses into few kernels.

A component is an array [N, ...], or a float where it is a constant. Products with the float 0.0 are never
traced, so that a model only pays for its non-zero axes and offsets. Matrices are tuples of three columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Number = Any  # an array or a float
Vec = tuple[Number, ...]
Mat = tuple[Vec, ...]
T = TypeVar("T")

EYE: Mat = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


class Bodies(NamedTuple):
    """Motion of L bodies in N environments, components [N, L].

    Position of the centre of mass, rotation (unit quaternion, scalar first), velocity, angular velocity.
    """

    pos: Vec
    rot: Vec
    vel: Vec
    ang: Vec

    def pick(self, index: np.ndarray) -> Bodies:
        return Bodies(*(tuple(pick(a, index) for a in part) for part in self))


# -- arithmetic -------------------------------------------------------------------------------------------


def _is(a: Number, value: float) -> bool:
    return isinstance(a, float) and a == value


def mul(a: Number, b: Number) -> Number:
    """ab, without tracing products with the constants 0 and 1."""
    if _is(a, 0.0) or _is(b, 0.0):
        return 0.0
    if _is(a, 1.0):
        return b
    return a if _is(b, 1.0) else a * b


def add(*terms: Number) -> Number:
    """Sum, without tracing constant zeros."""
    total: Number = 0.0
    for term in terms:
        if not _is(term, 0.0):
            total = term if _is(total, 0.0) else total + term
    return total


def sub(a: Number, b: Number) -> Number:
    """a − b, without tracing constant zeros."""
    if _is(b, 0.0):
        return a
    return -b if _is(a, 0.0) else a - b


def plus(*vectors: Vec) -> Vec:
    """Sum of vectors."""
    return tuple(add(*terms) for terms in zip(*vectors, strict=True))


def minus(u: Vec, v: Vec) -> Vec:
    """u − v."""
    return tuple(sub(a, b) for a, b in zip(u, v, strict=True))


def scale(s: Number, v: Vec) -> Vec:
    """s v."""
    return tuple(mul(s, a) for a in v)


def dot(u: Vec, v: Vec) -> Number:
    """u · v."""
    return add(*(mul(a, b) for a, b in zip(u, v, strict=True)))


def cross(u: Vec, v: Vec) -> Vec:
    """u × v."""
    return (
        sub(mul(u[1], v[2]), mul(u[2], v[1])),
        sub(mul(u[2], v[0]), mul(u[0], v[2])),
        sub(mul(u[0], v[1]), mul(u[1], v[0])),
    )


def where(condition: Number, yes: Vec, no: Vec) -> Vec:
    """Elementwise selection of vectors; equal constants are not traced."""
    same = lambda a, b: isinstance(a, float) and isinstance(b, float) and a == b
    return tuple(a if same(a, b) else jnp.where(condition, a, b) for a, b in zip(yes, no, strict=True))


def unit(v: Vec) -> tuple[Vec, Number]:
    """v / |v|, zero for v = 0, and |v|."""
    size = jnp.sqrt(dot(v, v))
    return scale(1.0 / jnp.maximum(size, 1e-12), v), size


# -- rotations --------------------------------------------------------------------------------------------


def rotate(m: Mat, v: Vec) -> Vec:
    """m v."""
    return plus(*(scale(a, column) for a, column in zip(v, m, strict=True)))


def rotate_back(m: Mat, v: Vec) -> Vec:
    """mᵀ v."""
    return tuple(dot(column, v) for column in m)


def matrix(rot: Vec) -> Mat:
    """The rotation matrix of a unit quaternion."""
    w, x, y, z = rot
    ww, xx, yy, zz = mul(w, w), mul(x, x), mul(y, y), mul(z, z)
    twice = lambda a, b: mul(2.0, mul(a, b))
    xy, xz, yz = twice(x, y), twice(x, z), twice(y, z)
    wx, wy, wz = twice(w, x), twice(w, y), twice(w, z)
    return (
        (sub(add(ww, xx), add(yy, zz)), add(xy, wz), sub(xz, wy)),
        (sub(xy, wz), sub(add(ww, yy), add(xx, zz)), add(yz, wx)),
        (add(xz, wy), sub(yz, wx), sub(add(ww, zz), add(xx, yy))),
    )


def compose(p: Vec, q: Vec) -> Vec:
    """The quaternion product pq: rotation by q, then by p."""
    return (
        sub(mul(p[0], q[0]), dot(p[1:], q[1:])),
        *plus(scale(p[0], q[1:]), scale(q[0], p[1:]), cross(p[1:], q[1:])),
    )


# -- constants and indexing -------------------------------------------------------------------------------


def constant(values: np.ndarray) -> Number:
    """Values [..., K] to combine with arrays [N, ..., K]; a float if all are equal."""
    values = np.asarray(values, np.float32)
    return float(values.flat[0]) if np.all(values == values.flat[0]) else values


def constants(values: np.ndarray) -> Vec:
    """Vectors [..., K, n] as n constants."""
    values = np.asarray(values)
    return tuple(constant(values[..., i]) for i in range(values.shape[-1]))


def floats(values: np.ndarray) -> Vec:
    """Values as a tuple of floats."""
    return tuple(float(a) for a in values)


def pick(x: Number, index: np.ndarray) -> Number:
    """Fixed columns of x [N, K], as [N, *index.shape]."""
    if isinstance(x, float):
        return x
    if isinstance(x, np.ndarray):
        return constant(x[index])
    flat = index.ravel()
    if np.array_equal(flat, np.arange(flat[0], flat[0] + flat.size)):
        picked = x[..., flat[0] : flat[0] + flat.size]
    else:
        picked = x.at[..., flat].get(mode="promise_in_bounds", wrap_negative_indices=False)
    return picked.reshape(*x.shape[:-1], *index.shape)


def pick_all(v: Vec, index: np.ndarray, weight: Number = 1.0) -> Vec:
    """`pick` of every component, times a weight."""
    return tuple(mul(weight, pick(a, index)) for a in v)


def slots(owner: np.ndarray, count: int) -> list[tuple[np.ndarray, Number]]:
    """Inverse of the map `owner`: indices of the first member of each of `count` owners, the second, ...

    Each comes with weights, 0 for owners without such a member; members with owner −1 are skipped.
    """
    members = [np.flatnonzero(owner == i) for i in range(count)]
    return [
        (
            np.array([m[n] if n < len(m) else 0 for m in members]),
            constant(np.array([float(n < len(m)) for m in members])),
        )
        for n in range(max(map(len, members)))
    ]


def barrier(x: T) -> T:
    """Optimisation barrier: x is computed once and later kernels read it from memory.

    Otherwise XLA may recompute it in every kernel that uses it, once per link.
    """
    return jax.lax.optimization_barrier(x)
