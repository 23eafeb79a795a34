"""brax's generalized pipeline with solvers of our own for what took most of its time.

A frame has two systems to solve: forces that keep contacts and joint limits, and the inverse of the mass
matrix. brax solves both by loops of many small kernels, the first with a line search in each turn, which all
lanes leave when the last one is done. Here both take a fixed number of short steps, and are more exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from homing.physics.brax_engine import BraxEngine
from homing.physics.quiet import quietly

with quietly():
    from brax import actuator, base, kinematics
    from brax.generalized import base as generalized_base
    from brax.generalized import constraint, dynamics, integrator, mass, pipeline

Array = jax.Array
State = generalized_base.State
TURNS = 24
TINY = 1e-9


class Generalized(BraxEngine):
    """Joint coordinates with a mass matrix; contacts and limits by forces that only push."""

    def _start(self, system: base.System, q: Array, qd: Array) -> State:
        return pipeline.init(system, q, qd)

    def _frame(self, system: base.System, state: State, ctrl: Array) -> State:
        # A GPU would otherwise multiply with ten bits.
        with jax.default_matmul_precision("highest"):
            tau = actuator.to_tau(system, ctrl, state.q, state.qd)
            state = state.replace(qf_smooth=dynamics.forward(system, state, tau))
            state = integrator.integrate(system, state.replace(qf_constraint=_constraint_force(state)))
            x, xd = kinematics.forward(system, state.q, state.qd)
            state = dynamics.transform_com(system, state.replace(x=x, xd=xd))
            masses = mass.matrix(system, state)
            state = state.replace(mass_mx=masses, mass_mx_inv=inverse(masses))
            return constraint.jacobian(system, state)

    def _open(self, state: State) -> State:
        return state

    def _close(self, state: State) -> State:
        return state


class GeneralizedBrax(Generalized):
    """The same as brax steps it, to compare."""

    def _frame(self, system: base.System, state: State, ctrl: Array) -> State:
        return pipeline.step(system, state, ctrl)


def _constraint_force(state: State) -> Array:
    """On the coordinates [D], of contacts and limits [C]: with Ax + b = 0 as nearly as x ≥ 0 allows."""
    rows = state.con_jac
    if not rows.shape[0]:
        return jnp.zeros_like(state.qd)
    moved = rows @ state.mass_mx_inv
    matrix = moved @ rows.T + jnp.diag(state.con_diag)
    return rows.T @ non_negative(matrix, moved @ state.qf_smooth - state.con_aref)


def non_negative(matrix: Array, offset: Array, turns: int = TURNS) -> Array:
    """The x ≥ 0 [C] for which ½|Ax + b|² is least, nearly: projected gradients with momentum.

    Columns of A are made equally long first, which takes a tenth of the turns for the same error; columns of
    zeros, contacts that do not touch, get x = 0. The length of a step is a bound, so nothing is searched.
    """
    length = jnp.sqrt(jnp.sum(matrix * matrix, axis=0))
    scale = jnp.where(length > 0, 1 / jnp.maximum(length, TINY), 0.0)
    columns = matrix * scale
    curvature = columns.T @ columns
    slope = columns.T @ offset
    # No eigenvalue is larger than a row's sum of sizes, nor than the root of the sum of squares.
    largest = jnp.minimum(
        jnp.max(jnp.sum(jnp.abs(curvature), axis=1)), jnp.sqrt(jnp.sum(curvature * curvature))
    )
    step = 1 / jnp.maximum(largest, TINY)
    x = ahead = jnp.zeros_like(offset)
    for momentum in _momenta(turns):  # no loop, and no product: a turn is one kernel or two
        gradient = jnp.sum(curvature * ahead[None, :], axis=1) + slope
        after = jnp.maximum(ahead - step * gradient, 0.0)
        x, ahead = after, after + momentum * (after - x)
    return scale * x


def _momenta(turns: int) -> list[float]:
    """(tₖ − 1)/tₖ₊₁ with tₖ₊₁ = (1 + √(1 + 4tₖ²))/2."""
    found, t = [], 1.0
    for _ in range(turns):
        after = (1 + (1 + 4 * t * t) ** 0.5) / 2
        found.append((t - 1) / after)
        t = after
    return found


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
