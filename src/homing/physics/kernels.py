"""Solvers of physics as kernels: a lane's small matrices stay on the chip while they are needed.

By XLA a turn of a solver is a handful of kernels that read the matrices of all lanes from memory again. Here
one program of a Triton kernel serves one lane. Each has its twin in `homing.physics.solvers`, which runs
everywhere else. Triton's arrays have powers of two as sizes: what is missing is filled with zeros.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas
from jax.experimental.pallas import triton

from homing.physics import solvers
from homing.physics.solvers import Constraints, Sums, best_step, whole_or_none

Array = jax.Array
Ref = Any
SMALLEST = 16  # side of a matrix that Triton multiplies
WARP = 32


def _call(
    kernel: Callable[..., None],
    given: Sequence[Array],
    shapes: Sequence[tuple[int, ...]],
    warps: int,
    cpu: bool,
) -> tuple[Array, ...]:
    """What a kernel leaves in arrays of these shapes. Inside a vmap it has one program for each lane."""
    made = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    params = triton.CompilerParams(num_warps=warps)
    return tuple(pallas.pallas_call(kernel, made, compiler_params=params, interpret=cpu)(*given))


# Forces that only push: whole matrices across four warps.


def contact_forces(*given: Array, cpu: bool = False) -> Array:
    """`solvers.contact_forces`; on a `cpu` step by step, to compare."""

    def kernel(*refs: Ref) -> None:
        *read, found = refs
        sums = Sums(_times, functools.partial(_product, cpu=cpu))
        _store(found, solvers.contact_forces(*(_load(ref) for ref in read), by=sums))

    force = given[3]
    return _call(kernel, given, [force.shape], warps=4, cpu=cpu)[0]


def _places(shape: tuple[int, ...]) -> tuple[tuple[Array, ...], Array]:
    """Indices of an array that is filled up, and which of them exist."""
    sizes = tuple(max(SMALLEST, pallas.next_power_of_2(size)) for size in shape)
    places = tuple(jax.lax.broadcasted_iota(jnp.int32, sizes, axis) for axis in range(len(shape)))
    exist = [place < size for place, size in zip(places, shape, strict=True)]
    return places, functools.reduce(jnp.logical_and, exist)


def _load(ref: Ref) -> Array:
    places, exist = _places(ref.shape)
    return triton.load(ref.at[places], mask=exist, other=0.0)


def _store(ref: Ref, array: Array) -> None:
    places, exist = _places(ref.shape)
    triton.store(ref.at[places], array, mask=exist)


def _times(vector: Array, matrix: Array) -> Array:
    return jnp.sum(vector[:, None] * matrix, axis=0)


def _product(a: Array, b: Array, cpu: bool) -> Array:
    # Three products of ten bits each are as exact as one of 23, and three times as fast; a CPU has no such.
    thrice = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    precision = jax.lax.Precision.HIGHEST if cpu else thrice
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=precision)


# Newton's method: vectors over constraints lie across a warp, numbers in registers.


def constrained(
    mass: Array, force: Array, rules: Constraints, before: Array, iterations: int, cpu: bool = False
) -> tuple[Array, Array]:
    """`solvers.constrained` from M⁻¹f or what was found `before`."""
    always = rules.always.astype(jnp.float32)
    given = (mass, force, rules.rows, rules.wanted, rules.stiffness, always)
    a = _solve(mass, force, cpu)
    way, find = before - a, whole_or_none
    for _ in range(iterations):
        a, curvature, gradient = _go(given, a, way, find, cpu)
        way, find = -_solve(curvature, gradient, cpu), best_step
    return _end(given, a, way, find, cpu)


def _go(given: tuple[Array, ...], a: Array, way: Array, find: Any, cpu: bool) -> tuple[Array, ...]:
    """From a [D] along a way as far as pays; the sum's curvature [D, D] and gradient [D] there.

    Of the curvature only what is left of the diagonal is written, which is all that `_solve` reads.
    """

    def kernel(mass: Ref, *refs: Ref) -> None:
        *read, to, curvature, gradient = refs
        columns, pushing, moved, left, above = _gone(find, mass, *read)
        at, exists = _across(to.shape[0])
        for i, column in enumerate(columns):
            pushed = pushing * column
            left += jnp.where(at == i, jnp.sum(pushed * above), 0.0)
            for j in range(i + 1):
                curvature[i, j] = mass[i, j] + jnp.sum(pushed * columns[j])
        triton.store(to.at[at], moved, mask=exists)
        triton.store(gradient.at[at], left, mask=exists)

    mass, force = given[:2]
    return _call(kernel, (*given, a, way), [force.shape, mass.shape, force.shape], warps=1, cpu=cpu)


def _end(given: tuple[Array, ...], a: Array, way: Array, find: Any, cpu: bool) -> tuple[Array, Array]:
    """The same, and what the rules add to the force [D] there."""

    def kernel(*refs: Ref) -> None:
        *read, to, push = refs
        columns, pushing, moved, _, above = _gone(find, *read)
        for i, column in enumerate(columns):
            push[i] = -jnp.sum(pushing * above * column)
        at, exists = _across(to.shape[0])
        triton.store(to.at[at], moved, mask=exists)

    a, push = _call(kernel, (*given, a, way), [a.shape] * 2, warps=1, cpu=cpu)
    return a, push


def _gone(
    find: Any, mass: Ref, force: Ref, rows: Ref, wanted: Ref, stiffness: Ref, always: Ref, a: Ref, way: Ref
) -> tuple[list[Array], Array, Array, Array, Array]:
    """Columns of the rules, and where the way ends: how stiff rules push, a, Ma − f and Ja − b."""
    size = range(a.shape[0])
    columns = [_vector(rows, i) for i in size]
    rules = Constraints(rows, _vector(wanted), _vector(stiffness), _vector(always) > 0)
    above, rise = _dot(columns, [a[i] for i in size]) - rules.wanted, _dot(columns, [way[i] for i in size])
    # Across the coordinates; the matrix is the same in rows and columns.
    left = _dot([_vector(mass, i) for i in size], [a[i] for i in size]) - _vector(force)
    turned = _dot([_vector(mass, i) for i in size], [way[i] for i in size])
    ahead = _vector(way)
    step = find(jnp.sum(ahead * left), jnp.sum(ahead * turned), above, rise, rules)
    above = above + step * rise
    return columns, rules.pushing(above), _vector(a) + step * ahead, left + step * turned, above


def _across(size: int) -> tuple[Array, Array]:
    """Places across a warp, and which of them exist."""
    at = jnp.arange(max(WARP, pallas.next_power_of_2(size)))
    return at, at < size


def _vector(ref: Ref, *column: int) -> Array:
    """A vector, or a column of a matrix, across a warp."""
    at, exists = _across(ref.shape[0])
    return triton.load(ref.at[at, *(jnp.full(at.shape, i) for i in column)], mask=exists, other=0.0)


def _dot(xs: Sequence[Array], ys: Sequence[Array]) -> Any:
    return functools.reduce(lambda total, xy: total + xy[0] * xy[1], zip(xs, ys, strict=True), 0.0)


def _solve(matrix: Array, right: Array, cpu: bool) -> Array:
    """`solvers.solve`, of what is left of the diagonal."""

    def kernel(matrix: Ref, right: Ref, found: Ref) -> None:
        size = range(right.shape[0])
        entries = [[matrix[i, j] for j in size[: i + 1]] for i in size]
        for i, x in enumerate(_solved(entries, [right[i] for i in size])):
            found[i] = x

    return _call(kernel, (matrix, right), [right.shape], warps=1, cpu=cpu)[0]


def _solved(left: list[list[Array]], right: list[Array]) -> list[Array]:
    """x with LDLᵀx = b, number by number."""
    size, scale = len(right), []
    for k in range(size):
        scale.append(1 / left[k][k])
        for i in range(k + 1, size):
            share = left[i][k] * scale[k]
            right[i] = right[i] - share * right[k]
            for j in range(k + 1, i + 1):
                left[i][j] = left[i][j] - share * left[j][k]
    for k in reversed(range(size)):
        right[k] = scale[k] * (right[k] - _dot([left[i][k] for i in range(k + 1, size)], right[k + 1 :]))
    return right
