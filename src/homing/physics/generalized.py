"""brax's generalized pipeline with solvers of our own for what took most of its time.

A frame has two systems to solve: forces that keep contacts and joint limits, and the inverse of the mass
matrix. brax solves both by loops of many small kernels, the first with a line search in each turn, which all
lanes leave when the last one is done. Here both take a fixed number of short steps, and are more exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from homing.compile import xla
from homing.physics.brax_pipelines import BraxEngine
from homing.physics.quiet import quietly
from homing.physics.solvers import contact_forces, inverse

with quietly():
    from brax import actuator, base, kinematics
    from brax.generalized import base as generalized_base
    from brax.generalized import constraint, dynamics, integrator, mass, pipeline

Array = jax.Array
State = generalized_base.State
MOST_ROWS = 64
"""Contacts and limits of a kernel: their matrices lie in the registers of four warps."""


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
    """On the coordinates [D], of contacts and limits [C]."""
    rows = state.con_jac
    if not rows.shape[0]:
        return jnp.zeros_like(state.qd)
    given = (rows, state.mass_mx_inv, state.con_diag, state.qf_smooth, state.con_aref)
    if not xla.kernels() or max(rows.shape) > MOST_ROWS:
        return contact_forces(*given)
    from homing.physics import kernels

    return jax.lax.platform_dependent(*given, cuda=kernels.contact_forces, default=contact_forces)
