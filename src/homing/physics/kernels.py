"""Physics solvers as Triton kernels that keep an environment's small matrices on the chip.

Compiled by XLA, each solver iteration is a handful of kernels that read the matrices of all environments from
memory. Here one program instance of a Triton kernel handles one environment. Each kernel has a reference
implementation in `homing.physics.solvers`, used on all other devices. Triton array sizes are powers of two;
arrays are padded with zeros.
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
from homing.physics.solvers import Constraints, MatrixOps, full_step_or_none, line_search

Array = jax.Array
Ref = Any
Search = Callable[[Array, Array, Array, Array, Constraints], Array]
MIN_SIDE = 16  # smallest side of a matrix in a Triton product
WARP = 32


def _call(
    kernel: Callable[..., None],
    given: Sequence[Array],
    shapes: Sequence[tuple[int, ...]],
    warps: int,
    cpu: bool,
) -> tuple[Array, ...]:
    """Outputs of a kernel with the given shapes; under vmap it runs one program instance per environment."""
    outputs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    params = triton.CompilerParams(num_warps=warps)
    return tuple(pallas.pallas_call(kernel, outputs, compiler_params=params, interpret=cpu)(*given))


# Non-negative contact forces: whole matrices across four warps.


def contact_forces(*given: Array, cpu: bool = False) -> Array:
    """`solvers.contact_forces` as a kernel; `cpu` runs it in interpreter mode, for tests."""

    def kernel(*refs: Ref) -> None:
        *inputs, output = refs
        ops = MatrixOps(_times, functools.partial(_product, cpu=cpu))
        _store(output, solvers.contact_forces(*(_load(ref) for ref in inputs), ops=ops))

    force = given[3]
    return _call(kernel, given, [force.shape], warps=4, cpu=cpu)[0]


def _indices(shape: tuple[int, ...]) -> tuple[tuple[Array, ...], Array]:
    """Indices of the padded array, and the mask of those inside `shape`."""
    sizes = tuple(max(MIN_SIDE, pallas.next_power_of_2(size)) for size in shape)
    indices = tuple(jax.lax.broadcasted_iota(jnp.int32, sizes, axis) for axis in range(len(shape)))
    valid = [index < size for index, size in zip(indices, shape, strict=True)]
    return indices, functools.reduce(jnp.logical_and, valid)


def _load(ref: Ref) -> Array:
    indices, valid = _indices(ref.shape)
    return triton.load(ref.at[indices], mask=valid, other=0.0)


def _store(ref: Ref, array: Array) -> None:
    indices, valid = _indices(ref.shape)
    triton.store(ref.at[indices], array, mask=valid)


def _times(vector: Array, matrix: Array) -> Array:
    return jnp.sum(vector[:, None] * matrix, axis=0)


def _product(a: Array, b: Array, cpu: bool) -> Array:
    # Three TF32 products are as accurate as one in float32 and three times as fast; a CPU has no TF32.
    tf32x3 = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    precision = jax.lax.Precision.HIGHEST if cpu else tf32x3
    return jax.lax.dot_general(a, b, (((0,), (0,)), ((), ())), precision=precision)


# Newton's method: vectors over constraints are spread across a warp, scalars are in registers.


def constrained(
    mass: Array,
    force: Array,
    constraints: Constraints,
    warm_start: Array,
    iterations: int,
    cpu: bool = False,
) -> tuple[Array, Array]:
    """`solvers.constrained` as kernels."""
    equality = constraints.equality.astype(jnp.float32)
    given = (mass, force, constraints.jacobian, constraints.target, constraints.stiffness, equality)
    a = _solve(mass, force, cpu)
    direction, search = warm_start - a, full_step_or_none
    for _ in range(iterations):
        a, hessian, gradient = _newton_step(given, a, direction, search, cpu)
        direction, search = -_solve(hessian, gradient, cpu), line_search
    return _last_step(given, a, direction, search, cpu)


@functools.partial(jax.jit, static_argnames=("search", "cpu"))  # traced once for all iterations
def _newton_step(
    given: tuple[Array, ...], a: Array, direction: Array, search: Search, cpu: bool
) -> tuple[Array, ...]:
    """Line search from a [D] along a direction; then the Hessian [D, D] and gradient [D] of the cost.

    Only the lower triangle of the Hessian is written, which is all that `_solve` reads.
    """

    def kernel(mass: Ref, *refs: Ref) -> None:
        *inputs, new_a, hessian, gradient = refs
        columns, stiffness, moved, smooth_gradient, residual = _searched(search, mass, *inputs)
        lane, valid = _warp_lanes(new_a.shape[0])
        for i, column in enumerate(columns):
            weighted = stiffness * column
            smooth_gradient += jnp.where(lane == i, jnp.sum(weighted * residual), 0.0)
            for j in range(i + 1):
                hessian[i, j] = mass[i, j] + jnp.sum(weighted * columns[j])
        triton.store(new_a.at[lane], moved, mask=valid)
        triton.store(gradient.at[lane], smooth_gradient, mask=valid)

    mass, force = given[:2]
    return _call(kernel, (*given, a, direction), [force.shape, mass.shape, force.shape], warps=1, cpu=cpu)


def _last_step(
    given: tuple[Array, ...], a: Array, direction: Array, search: Search, cpu: bool
) -> tuple[Array, Array]:
    """Line search from a [D] along a direction; then the constraint forces [D]."""

    def kernel(*refs: Ref) -> None:
        *inputs, new_a, push = refs
        columns, stiffness, moved, _, residual = _searched(search, *inputs)
        for i, column in enumerate(columns):
            push[i] = -jnp.sum(stiffness * residual * column)
        lane, valid = _warp_lanes(new_a.shape[0])
        triton.store(new_a.at[lane], moved, mask=valid)

    a, push = _call(kernel, (*given, a, direction), [a.shape] * 2, warps=1, cpu=cpu)
    return a, push


def _searched(
    search: Search,
    mass: Ref,
    force: Ref,
    jacobian: Ref,
    target: Ref,
    stiffness: Ref,
    equality: Ref,
    a: Ref,
    direction: Ref,
) -> tuple[list[Array], Array, Array, Array, Array]:
    """Columns of J; and after the line search, the active stiffness, a, Ma − f and Ja − b."""
    size = range(a.shape[0])
    columns = [_vector(jacobian, i) for i in size]
    constraints = Constraints(jacobian, _vector(target), _vector(stiffness), _vector(equality) > 0)
    residual = _dot(columns, [a[i] for i in size]) - constraints.target
    rate = _dot(columns, [direction[i] for i in size])
    # Vectors over coordinates; the mass matrix is symmetric, so its columns serve as rows.
    smooth_gradient = _dot([_vector(mass, i) for i in size], [a[i] for i in size]) - _vector(force)
    curved = _dot([_vector(mass, i) for i in size], [direction[i] for i in size])
    ahead = _vector(direction)
    step = search(jnp.sum(ahead * smooth_gradient), jnp.sum(ahead * curved), residual, rate, constraints)
    residual = residual + step * rate
    active = constraints.active_stiffness(residual)
    return columns, active, _vector(a) + step * ahead, smooth_gradient + step * curved, residual


def _warp_lanes(size: int) -> tuple[Array, Array]:
    """Lane indices across a warp, and the mask of those below `size`."""
    lane = jnp.arange(max(WARP, pallas.next_power_of_2(size)))
    return lane, lane < size


def _vector(ref: Ref, *column: int) -> Array:
    """A vector, or a column of a matrix, across a warp."""
    lane, valid = _warp_lanes(ref.shape[0])
    return triton.load(ref.at[lane, *(jnp.full(lane.shape, i) for i in column)], mask=valid, other=0.0)


def _dot(xs: Sequence[Array], ys: Sequence[Array]) -> Any:
    return functools.reduce(lambda total, xy: total + xy[0] * xy[1], zip(xs, ys, strict=True), 0.0)


@functools.partial(jax.jit, static_argnames="cpu")  # traced once for all iterations
def _solve(matrix: Array, right: Array, cpu: bool) -> Array:
    """`solvers.solve` from the lower triangle of the matrix."""

    def kernel(matrix: Ref, right: Ref, output: Ref) -> None:
        size = range(right.shape[0])
        entries = [[matrix[i, j] for j in size[: i + 1]] for i in size]
        for i, x in enumerate(_solved(entries, [right[i] for i in size])):
            output[i] = x

    return _call(kernel, (matrix, right), [right.shape], warps=1, cpu=cpu)[0]


def _solved(left: list[list[Array]], right: list[Array]) -> list[Array]:
    """x with LDLᵀx = b, by scalar operations."""
    size, scale = len(right), []
    for k in range(size):
        scale.append(1 / left[k][k])
        for i in range(k + 1, size):
            factor = left[i][k] * scale[k]
            right[i] = right[i] - factor * right[k]
            for j in range(k + 1, i + 1):
                left[i][j] = left[i][j] - factor * left[j][k]
    for k in reversed(range(size)):
        right[k] = scale[k] * (right[k] - _dot([left[i][k] for i in range(k + 1, size)], right[k + 1 :]))
    return right
