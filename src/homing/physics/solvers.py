"""Small systems that physics solves in every frame, without loops that lanes would have to wait in.

A simulator's own solvers stop when they are exact enough. Side by side, all lanes then wait for the slowest,
and every turn is a handful of tiny kernels. Here each takes a fixed number of steps, laid out in the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

Array = jax.Array
ITERATIONS = 24  # of `non_negative`
LOOKS = 3  # of `best_step`; more of them do not make accelerations more exact
BLOCK = 6  # rows that `eliminated` takes at a time
TINY = 1e-9


class Constraints(NamedTuple):
    """Rows [C] that push where they are violated: with k min(Ja − b, 0)² / 2 each, `always` also beyond 0."""

    rows: Array  # J [C, D]
    wanted: Array  # b [C]
    stiffness: Array  # k [C]
    always: Array  # [C], of booleans

    def pushing(self, above: Array) -> Array:
        """k [..., C] of the rows that push where Ja − b is `above`, 0 of the others."""
        return jnp.where(self.always | (above < 0), self.stiffness, 0.0)


def constrained(
    mass: Array, force: Array, rules: Constraints, before: Array, iterations: int
) -> tuple[Array, Array]:
    """Accelerations a [D] and what the rules add to the force [D]: least is the sum of

        ½ (a − M⁻¹f)ᵀ M (a − M⁻¹f)   and   ½ Σ kᵢ min(Jᵢa − bᵢ, 0)².

    Newton's method from M⁻¹f or what was found `before`, whichever is better. Each turn goes as far as pays.
    """
    a = _best(mass, force, rules, (solve(mass, force), before))
    above = rules.rows @ a - rules.wanted
    for _ in range(iterations):
        pushing = rules.pushing(above)
        left = mass @ a - force
        curvature = mass + jnp.einsum("c,ci,cj->ij", pushing, rules.rows, rules.rows)
        way = -solve(curvature, left + rules.rows.T @ (pushing * above))
        rise = rules.rows @ way
        step = best_step(way @ left, way @ (mass @ way), above, rise, rules)
        a, above = a + step * way, above + step * rise
    return a, -rules.rows.T @ (rules.pushing(above) * above)


def _best(mass: Array, force: Array, rules: Constraints, starts: tuple[Array, ...]) -> Array:
    """The start for which the sum is least."""
    tried = jnp.stack(starts)
    above = tried @ rules.rows.T - rules.wanted
    smooth = jnp.sum((tried @ mass - force) * (tried - starts[0]), axis=1)
    costs = smooth + jnp.sum(rules.pushing(above) * above * above, axis=1)
    return tried[jnp.argmin(costs)]


def whole_or_none(slope: Array, bend: Array, above: Array, rise: Array, rules: Constraints) -> Array:
    """The t of 0 and 1 for which what `best_step` looks at is less."""
    there = above + rise
    pushes = rules.pushing(there) * there * there - rules.pushing(above) * above * above
    gain = -(2 * slope + bend + jnp.sum(pushes))
    return jnp.where(gain > 0, jnp.ones(()), jnp.zeros(()))


def best_step(slope: Array, bend: Array, above: Array, rise: Array, rules: Constraints) -> Array:
    """The t ≥ 0 for which `slope`·t + ½ `bend`·t² + ½ Σ kᵢ min(aboveᵢ + t·riseᵢ, 0)² is least, nearly.

    Its derivative is a rising chain of straight lines. Each look follows the line that it is on to where that
    is 0, or, if this is outside of the interval that is left, the line between its ends. Along a way of
    Newton's method the first line is 0 at 1, where the looking begins.
    """
    low, high, t = jnp.zeros(()), jnp.full((), jnp.inf), jnp.ones(())
    at_low, at_high = slope + jnp.sum(rules.pushing(above) * rise * above), jnp.zeros(())
    for _ in range(LOOKS):
        there = above + t * rise
        push = rules.pushing(there) * rise
        value, steep = slope + t * bend + jnp.sum(push * there), bend + jnp.sum(push * rise)
        below = value <= 0
        low, at_low = jnp.where(below, t, low), jnp.where(below, value, at_low)
        high, at_high = jnp.where(below, high, t), jnp.where(below, at_high, value)
        ahead = t - value / jnp.maximum(steep, TINY)
        between = low - at_low * (high - low) / jnp.maximum(at_high - at_low, TINY)
        t = jnp.where((ahead >= low) & (ahead <= high), ahead, between)
    return t


def solve(matrix: Array, right: Array) -> Array:
    """x [D] with Ax = b for a positive definite A [D, D]."""
    # A CPU's library is quick with small matrices, a GPU's is not.
    return jax.lax.platform_dependent(matrix, right, cpu=_by_library, default=eliminated)


def _by_library(matrix: Array, right: Array) -> Array:
    return cho_solve(cho_factor(matrix), right)


def eliminated(matrix: Array, right: Array) -> Array:
    """The same, a block of rows and columns after the other."""
    size = matrix.shape[0]
    left = jnp.concatenate([matrix, right[:, None]], axis=1)
    for first in range(0, size, BLOCK):
        count = min(BLOCK, size - first)
        here = slice(first, first + count)
        pivot = _inverse_of_few(left[here, :count])
        columns, rest = left[:, :count], left[:, count:]
        rows = _product(pivot, rest[here])
        cleared = rest - _product(columns, rows)
        left = jnp.concatenate([cleared[:first], rows, cleared[first + count :]])
    return left[:, 0]


def _product(a: Array, b: Array) -> Array:
    """ab as a sum of few terms, which merges with what is around it."""
    return sum((a[:, k, None] * b[k] for k in range(1, a.shape[1])), a[:, 0, None] * b[0])


def _inverse_of_few(matrix: Array) -> Array:
    """The inverse of a small matrix, entry by entry: one kernel."""
    size = range(matrix.shape[0])
    entries = [[matrix[i, j] for j in size] for i in size]
    for k in size:
        scale = 1 / entries[k][k]
        row = [entry * scale for entry in entries[k]]
        entries = [
            [entries[i][j] - entries[i][k] * row[j] if j != k else -entries[i][k] * scale for j in size]
            if i != k
            else [row[j] if j != k else scale for j in size]
            for i in size
        ]
    return jnp.stack([jnp.stack(row) for row in entries])


def inverse(matrix: Array) -> Array:
    """Of a positive definite matrix [D, D], one row and column after the other; no pivot can be zero."""
    for k in range(matrix.shape[0]):
        pivot = matrix[k, k]
        row, column = matrix[k] / pivot, matrix[:, k]
        cross = matrix - column[:, None] * row[None, :]
        here = jnp.arange(matrix.shape[0]) == k
        cross = jnp.where(here[:, None], row[None, :], cross)
        cross = jnp.where(here[None, :], -column[:, None] / pivot, cross)
        matrix = jnp.where(here[:, None] & here[None, :], 1 / pivot, cross)
    return matrix


class Sums(NamedTuple):
    """How sums of products are formed: by XLA, or inside a kernel."""

    times: Callable[[Array, Array], Array]  # vA
    product: Callable[[Array, Array], Array]  # AᵀB


SUMS = Sums(lambda vector, matrix: vector @ matrix, lambda a, b: a.T @ b)


def contact_forces(
    rows: Array, inverse_mass: Array, softness: Array, force: Array, wanted: Array, by: Sums = SUMS
) -> Array:
    """On the coordinates [D], of contacts and limits [C] that only push: Jᵀx with the x ≥ 0 for which

    (J M⁻¹ Jᵀ + diag(softness)) x + J M⁻¹ f − b is as near to 0 as may be.
    """
    moved = by.product(inverse_mass, rows.T)  # M⁻¹Jᵀ [D, C]
    places = jnp.arange(len(softness))
    soft = jnp.where(places[:, None] == places[None, :], softness[:, None], 0.0)
    x = non_negative(by.product(moved, rows.T) + soft, by.times(force, moved) - wanted, by=by)
    return by.times(x, rows)


def non_negative(matrix: Array, offset: Array, iterations: int = ITERATIONS, by: Sums = SUMS) -> Array:
    """The x ≥ 0 [C] for which ½|Ax + b|² is least, nearly: projected gradients with momentum.

    Columns of A are scaled to equal length first, which takes a tenth of the iterations for the same error;
    columns of zeros (contacts that do not touch) get x = 0. The step length is a bound: no line search.
    """
    length = jnp.sqrt(jnp.sum(matrix * matrix, axis=0))
    scale = jnp.where(length > 0, 1 / jnp.maximum(length, TINY), 0.0)
    columns = matrix * scale[None, :]
    curvature = by.product(columns, columns)
    slope = by.times(offset, columns)
    # No eigenvalue is larger than a row's sum of sizes, nor than the root of the sum of squares.
    largest = jnp.minimum(
        jnp.max(jnp.sum(jnp.abs(curvature), axis=1)), jnp.sqrt(jnp.sum(curvature * curvature))
    )
    step = 1 / jnp.maximum(largest, TINY)
    x = ahead = jnp.zeros_like(offset)
    for momentum in _momenta(iterations):  # no loop, and no product: an iteration is one kernel or two
        gradient = jnp.sum(curvature * ahead[None, :], axis=1) + slope
        after = jnp.maximum(ahead - step * gradient, 0.0)
        x, ahead = after, after + momentum * (after - x)
    return scale * x


def _momenta(iterations: int) -> list[float]:
    """(tₖ − 1)/tₖ₊₁ with tₖ₊₁ = (1 + √(1 + 4tₖ²))/2."""
    found, t = [], 1.0
    for _ in range(iterations):
        after = (1 + (1 + 4 * t * t) ** 0.5) / 2
        found.append((t - 1) / after)
        t = after
    return found
