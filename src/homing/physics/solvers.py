"""Solvers for the small systems of a physics step, of operations that XLA fuses into few kernels.

A simulator's own solvers factorise by library calls and search lines until the slowest environment is done: a handful
of tiny kernels each. Here elimination and line searches have a fixed number of unrolled operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

Array = jax.Array
ITERATIONS = 24  # of `non_negative`
LINE_SEARCH_POINTS = 3  # of `line_search`; more do not make accelerations more accurate
BLOCK = 6  # rows that `eliminated` processes at a time
FAR = 1e-3  # of a step of `constrained` beside the accelerations: another follows
TINY = 1e-9


class Constraints(NamedTuple):
    """Soft constraints [C] with the cost ½ k min(Ja − b, 0)² each; equalities with ½ k (Ja − b)²."""

    jacobian: Array  # J [C, D]
    target: Array  # b [C]
    stiffness: Array  # k [C]
    equality: Array  # [C] bool

    def active_stiffness(self, residual: Array) -> Array:
        """k [..., C] of the constraints that are active at the residual Ja − b, 0 for the others."""
        return jnp.where(self.equality | (residual < 0), self.stiffness, 0.0)


def constrained(
    mass: Array, force: Array, constraints: Constraints, warm_start: Array, iterations: int
) -> tuple[Array, Array]:
    """Accelerations a [D] and constraint forces [D] that minimise

        ½ (a − M⁻¹f)ᵀ M (a − M⁻¹f)   +   ½ Σ kᵢ min(Jᵢa − bᵢ, 0)².

    Newton's method with a line search, from M⁻¹f or `warm_start`, whichever has the lower cost, for at most so
    many iterations. The cost is quadratic while the same constraints are active. Ending before the minimum adds
    energy: a hand that strikes a table then bounces off faster than it came.
    """
    jacobian = constraints.jacobian
    a = _lowest_cost(mass, force, constraints, (solve(mass, force), warm_start))
    start = _Iterate(jnp.zeros((), jnp.int32), jnp.ones((), bool), a, jacobian @ a - constraints.target)

    def unfinished(now: _Iterate) -> Array:
        return now.moving & (now.count < iterations)

    def newton(now: _Iterate) -> _Iterate:
        stiffness = constraints.active_stiffness(now.residual)
        smooth_gradient = mass @ now.a - force
        hessian = mass + jnp.einsum("c,ci,cj->ij", stiffness, jacobian, jacobian)
        direction = -solve(hessian, smooth_gradient + jacobian.T @ (stiffness * now.residual))
        rate = jacobian @ direction
        curvature = direction @ (mass @ direction)
        step = line_search(direction @ smooth_gradient, curvature, now.residual, rate, constraints)
        residual = now.residual + step * rate
        changed = jnp.any(constraints.active_stiffness(residual) != stiffness)
        move, a = step * direction, now.a + step * direction
        far = jnp.max(jnp.abs(move)) > FAR * jnp.max(jnp.abs(a))
        return _Iterate(now.count + 1, changed | far, a, residual)

    end = jax.lax.while_loop(unfinished, newton, start)
    return end.a, -jacobian.T @ (constraints.active_stiffness(end.residual) * end.residual)


class _Iterate(NamedTuple):
    """An iterate of Newton's method.

    Once a step leaves the active constraints as they were, it led to the minimum, up to the rounding of a long step.
    """

    count: Array
    moving: Array  # bool: the last step changed which constraints are active, or was long
    a: Array  # [D]
    residual: Array  # Ja − b [C]


def _lowest_cost(mass: Array, force: Array, constraints: Constraints, starts: tuple[Array, ...]) -> Array:
    """The starting point of lowest cost; the first of `starts` is M⁻¹f."""
    candidates = jnp.stack(starts)
    residual = candidates @ constraints.jacobian.T - constraints.target
    smooth = jnp.sum((candidates @ mass - force) * (candidates - starts[0]), axis=1)
    costs = smooth + jnp.sum(constraints.active_stiffness(residual) * residual * residual, axis=1)
    return candidates[jnp.argmin(costs)]


def line_search(
    slope: Array, curvature: Array, residual: Array, residual_rate: Array, constraints: Constraints
) -> Array:
    """Approximate minimiser t ≥ 0 of slope·t + ½ curvature·t² + ½ Σ kᵢ min(residualᵢ + t·rateᵢ, 0)².

    The derivative is piecewise linear and increasing. Each point takes a Newton step on the current segment,
    or, if that leaves the bracket, a secant step between the ends of the bracket. Along a Newton direction the
    first segment has its root at t = 1, where the search starts.
    """
    low, high, t = jnp.zeros(()), jnp.full((), jnp.inf), jnp.ones(())
    stiffness = constraints.active_stiffness(residual)
    at_low, at_high = slope + jnp.sum(stiffness * residual_rate * residual), jnp.zeros(())
    for _ in range(LINE_SEARCH_POINTS):
        there = residual + t * residual_rate
        push = constraints.active_stiffness(there) * residual_rate
        value, steep = (
            slope + t * curvature + jnp.sum(push * there),
            curvature + jnp.sum(push * residual_rate),
        )
        below = value <= 0
        low, at_low = jnp.where(below, t, low), jnp.where(below, value, at_low)
        high, at_high = jnp.where(below, high, t), jnp.where(below, at_high, value)
        newton = t - value / jnp.maximum(steep, TINY)
        secant = low - at_low * (high - low) / jnp.maximum(at_high - at_low, TINY)
        t = jnp.where((newton >= low) & (newton <= high), newton, secant)
    return t


def solve(matrix: Array, right: Array) -> Array:
    """x [D] with Ax = b for a positive definite A [D, D]."""
    # Library calls are fast for small matrices on a CPU, but not on a GPU.
    return jax.lax.platform_dependent(matrix, right, cpu=_cholesky_solve, default=eliminated)


def _cholesky_solve(matrix: Array, right: Array) -> Array:
    return cho_solve(cho_factor(matrix), right)


def eliminated(matrix: Array, right: Array) -> Array:
    """`solve` by blockwise Gauss-Jordan elimination."""
    size = matrix.shape[0]
    left = jnp.concatenate([matrix, right[:, None]], axis=1)
    for first in range(0, size, BLOCK):
        count = min(BLOCK, size - first)
        here = slice(first, first + count)
        columns, rest = left[:, :count], left[:, count:]
        rows = _small_solve(columns[here], rest[here])
        cleared = rest - _product(columns, rows)
        left = jnp.concatenate([cleared[:first], rows, cleared[first + count :]])
    return left[:, 0]


def _product(a: Array, b: Array) -> Array:
    """ab as an explicit sum of few terms, which XLA fuses with its surroundings."""
    return sum((a[:, k, None] * b[k] for k in range(1, a.shape[1])), a[:, 0, None] * b[0])


def _small_solve(matrix: Array, right: Array) -> Array:
    """A⁻¹B for a small positive definite A and B [., C], by scalar operations for each column: one kernel.

    The inverse itself would be shorter, but has errors in single precision that grow with the square of A's
    condition: those of a hand on a table made accelerations wrong by a thousand times.
    """
    size = range(matrix.shape[0])
    entries = [[matrix[i, j] for j in size] for i in size]
    rows, scale = [right[i] for i in size], []
    for k in size:
        scale.append(1 / entries[k][k])
        for i in size[k + 1 :]:
            factor = entries[i][k] * scale[k]
            rows[i] = rows[i] - factor * rows[k]
            entries[i] = [entries[i][j] - factor * entries[k][j] if j > k else entries[i][j] for j in size]
    for k in reversed(size):
        for j in size[k + 1 :]:
            rows[k] = rows[k] - entries[k][j] * rows[j]
        rows[k] = rows[k] * scale[k]
    return jnp.stack(rows)


def inverse(matrix: Array) -> Array:
    """Inverse of a positive definite matrix [D, D] by Gauss-Jordan elimination; no pivot can be zero."""
    for k in range(matrix.shape[0]):
        pivot = matrix[k, k]
        row, column = matrix[k] / pivot, matrix[:, k]
        cross = matrix - column[:, None] * row[None, :]
        here = jnp.arange(matrix.shape[0]) == k
        cross = jnp.where(here[:, None], row[None, :], cross)
        cross = jnp.where(here[None, :], -column[:, None] / pivot, cross)
        matrix = jnp.where(here[:, None] & here[None, :], 1 / pivot, cross)
    return matrix


class MatrixOps(NamedTuple):
    """Implementation of matrix products: by XLA, or inside a kernel."""

    times: Callable[[Array, Array], Array]  # vA
    product: Callable[[Array, Array], Array]  # AᵀB


XLA_OPS = MatrixOps(lambda vector, matrix: vector @ matrix, lambda a, b: a.T @ b)


def contact_forces(
    jacobian: Array,
    inverse_mass: Array,
    softness: Array,
    force: Array,
    target: Array,
    ops: MatrixOps = XLA_OPS,
) -> Array:
    """Generalized force Jᵀx [D] of contacts and limits [C], with the x ≥ 0 that minimises the norm of

    (J M⁻¹ Jᵀ + diag(softness)) x + J M⁻¹ f − b.
    """
    response = ops.product(inverse_mass, jacobian.T)  # M⁻¹Jᵀ [D, C]
    index = jnp.arange(len(softness))
    soft = jnp.where(index[:, None] == index[None, :], softness[:, None], 0.0)
    x = non_negative(ops.product(response, jacobian.T) + soft, ops.times(force, response) - target, ops=ops)
    return ops.times(x, jacobian)


def non_negative(
    matrix: Array, offset: Array, iterations: int = ITERATIONS, ops: MatrixOps = XLA_OPS
) -> Array:
    """Approximate minimiser x ≥ 0 [C] of ½|Ax + b|², by projected gradient descent with Nesterov momentum.

    Columns of A are normalised first, which needs a tenth of the iterations for the same error; zero columns
    (inactive contacts) get x = 0. The step size is a Lipschitz bound, so there is no line search.
    """
    length = jnp.sqrt(jnp.sum(matrix * matrix, axis=0))
    scale = jnp.where(length > 0, 1 / jnp.maximum(length, TINY), 0.0)
    columns = matrix * scale[None, :]
    curvature = ops.product(columns, columns)
    slope = ops.times(offset, columns)
    # The largest eigenvalue is at most the maximum absolute row sum, and at most the Frobenius norm.
    largest = jnp.minimum(
        jnp.max(jnp.sum(jnp.abs(curvature), axis=1)), jnp.sqrt(jnp.sum(curvature * curvature))
    )
    step = 1 / jnp.maximum(largest, TINY)
    x = ahead = jnp.zeros_like(offset)
    for momentum in _momenta(
        iterations
    ):  # unrolled, without matrix products: an iteration is one or two kernels
        gradient = jnp.sum(curvature * ahead[None, :], axis=1) + slope
        after = jnp.maximum(ahead - step * gradient, 0.0)
        x, ahead = after, after + momentum * (after - x)
    return scale * x


def _momenta(iterations: int) -> list[float]:
    """Nesterov momenta (tₖ − 1)/tₖ₊₁ with tₖ₊₁ = (1 + √(1 + 4tₖ²))/2."""
    found, t = [], 1.0
    for _ in range(iterations):
        after = (1 + (1 + 4 * t * t) ** 0.5) / 2
        found.append((t - 1) / after)
        t = after
    return found
