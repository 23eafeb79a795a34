"""brax's generalized pipeline with faster solvers for contact forces and the mass matrix.

Each physics step solves for contact and joint-limit forces and inverts the mass matrix. brax does both in
`while` loops of many small kernels, the first with a line search in each iteration; batched, the loop runs
until the slowest environment converges. Here both take a fixed number of cheap iterations and are more
accurate.
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
MAX_KERNEL_CONSTRAINTS = 64
"""Largest number of contacts and limits of the kernel: its matrices are kept in the registers of four warps."""


class Generalized(BraxEngine):
    """Generalized coordinates with a mass matrix; contacts and limits as non-negative constraint forces."""

    def _start(self, system: base.System, q: Array, qd: Array) -> State:
        return pipeline.init(system, q, qd)

    def _frame(self, system: base.System, state: State, ctrl: Array) -> State:
        # The GPU default is TF32, with a mantissa of ten bits.
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
    """brax's own step, for comparison."""

    def _frame(self, system: base.System, state: State, ctrl: Array) -> State:
        return pipeline.step(system, state, ctrl)


def _constraint_force(state: State) -> Array:
    """Generalized force [D] of the contacts and limits [C]."""
    jacobian = state.con_jac
    if not jacobian.shape[0]:
        return jnp.zeros_like(state.qd)
    given = (jacobian, state.mass_mx_inv, state.con_diag, state.qf_smooth, state.con_aref)
    if not xla.kernels() or max(jacobian.shape) > MAX_KERNEL_CONSTRAINTS:
        return contact_forces(*given)
    from homing.physics import kernels

    return jax.lax.platform_dependent(*given, cuda=kernels.contact_forces, default=contact_forces)
