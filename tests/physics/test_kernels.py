"""Kernels of our own: run step by step on the CPU, each beside its plain twin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solving_helpers import positive_definite, single

from homing.compile import xla
from homing.compile.jitted import UNCHECKED
from homing.physics import kernels, solvers
from homing.physics.generalized.constraints import Rows
from homing.physics.generalized.engine import MAX_KERNEL_CONSTRAINTS, Equations

ENVS = 3


def masses(rng, size):
    return np.stack([positive_definite(rng, size) for _ in range(ENVS)])


def arms(rows, size):
    """Contacts of which some do not touch, on a robot with so many joints."""
    rng = np.random.default_rng(rows)
    jac = rng.normal(size=(ENVS, rows, size)) * (rng.random((ENVS, rows, 1)) < 0.7)
    soft = np.where(jac.any(axis=2), rng.uniform(0.05, 0.5, (ENVS, rows)), 0.0)
    inverse = np.linalg.inv(masses(rng, size))
    wanted = np.where(jac.any(axis=2), rng.normal(size=(ENVS, rows)), 0.0)
    return single(jac, inverse, soft, rng.normal(size=(ENVS, size)), wanted)


@pytest.mark.parametrize(("rows", "size"), [(3, 2), (16, 16), (45, 9)])
def test_forces_are_those_of_the_twin(rows, size):
    given = arms(rows, size)
    plain = jax.jit(jax.vmap(solvers.contact_forces))(*given)
    found = jax.jit(jax.vmap(functools.partial(kernels.contact_forces, cpu=True)))(*given)
    assert np.abs(plain).max() > 0.1, "something pushes"
    np.testing.assert_allclose(found, plain, atol=2e-5, rtol=1e-4)


def test_kernels_are_translated_for_a_gpu_and_kept():
    """By JAX alone, without a GPU: what Triton does not know is found here."""
    given = arms(5, 3)
    run = jax.jit(jax.vmap(kernels.contact_forces))
    exporting = functools.partial(jax.export.export, run, platforms=["cuda"])
    try:
        exported = exporting(disabled_checks=UNCHECKED)(*given)
    except RuntimeError as error:
        pytest.skip(f"newer versions of JAX ask a GPU: {error}")
    again = jax.export.deserialize(bytearray(exported.serialize()))
    assert again.mlir_module().count("xla.gpu.triton") >= 1
    with pytest.raises(ValueError, match="custom call"):
        exporting()(*given).serialize()


def test_seeds_and_lanes_may_lie_along_two_axes():
    given = arms(3, 2)
    twice = [jnp.stack([x, 2 * x]) for x in given]
    run = jax.vmap(functools.partial(kernels.contact_forces, cpu=True))
    np.testing.assert_allclose(jax.vmap(run)(*twice)[0], run(*given), atol=1e-6)


@pytest.mark.parametrize("rows", [5, 70])
def test_a_cpu_beside_a_gpu_has_the_twin(monkeypatch, rows):
    jac, inverse, soft, force, wanted = (x[0] for x in arms(rows, 3))
    equations = Equations(inverse, force, Rows(jac, soft, wanted))
    plain = equations.constraint_force()
    monkeypatch.setattr(xla, "kernels", lambda: True)
    traced = str(jax.make_jaxpr(equations.constraint_force)())
    assert ("pallas_call" in traced) == (rows < MAX_KERNEL_CONSTRAINTS), "large matrices have no kernel"
    np.testing.assert_allclose(jax.jit(equations.constraint_force)(), plain, atol=1e-5)
