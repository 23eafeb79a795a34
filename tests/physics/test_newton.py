"""Newton's method in one CUDA kernel: its source on an emulated warp, beside its twin in JAX."""

import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solving_helpers import positive_definite, random_rules, single

from homing.compile import cuda, xla
from homing.physics import mjx, newton, solvers
from homing.physics.solvers import Constraints

ENVS = 4


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """The kernel as a function of what `solvers.constrained` takes, with a leading axis."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("newton")

    def run(mass, force, constraints, warm_start, iterations):
        envs, rows, size = constraints.jacobian.shape
        chosen = newton.defines(size, rows, envs, iterations)
        source, out = Path(newton.__file__).with_name("newton.cu"), folder / f"{size}_{rows}_{iterations}.so"
        flags = ["-O1", "-shared", "-fPIC", "-std=c++17", "-w", f'-DKERNEL="{source}"']
        flags += [f"-D{name}={value}" for name, value in chosen.items()]
        emulator = Path(__file__).with_name("emulated_newton.cpp")
        subprocess.run([compiler, *flags, emulator, "-o", out], check=True)
        library = ctypes.CDLL(str(out))
        assert library.shared_floats() * 4 == newton.shared_bytes(size, rows)
        given = [np.ascontiguousarray(x) for x in (mass, force, *constraints, warm_start)]
        outputs = [np.full((envs, size), np.nan, np.float32) for _ in range(2)]
        arrays = given + outputs
        library.run(envs // chosen["WARPS"], (ctypes.c_void_p * 9)(*(x.ctypes.data for x in arrays)))
        return outputs

    return run


def robots(rows, size, seed=0):
    """Systems [ENVS] of so many constraints and coordinates, and a warm start of each."""
    rng = np.random.default_rng(seed)
    masses = np.stack([positive_definite(rng, size) for _ in range(ENVS)])
    mass, force, warm = single(masses, rng.normal(size=(ENVS, size)), rng.normal(size=(ENVS, size)))
    lanes = [random_rules(seed, rows, size, always=1) for seed in range(ENVS)]
    return mass, force, jax.tree.map(lambda *x: jnp.stack(x), *lanes), warm


def twin(*given, iterations):
    return jax.jit(jax.vmap(functools.partial(solvers.constrained, iterations=iterations)))(*given)


@pytest.mark.parametrize(
    ("rows", "size", "iterations"), [(40, 4, 1), (40, 4, 3), (70, 15, 16), (8, 7, 16), (1, 2, 2), (33, 23, 8)]
)
def test_accelerations_are_those_of_the_twin(emulated, rows, size, iterations):
    given = robots(rows, size)
    for found, expected in zip(
        emulated(*given, iterations), twin(*given, iterations=iterations), strict=True
    ):
        assert np.abs(expected).max() > 0.1
        np.testing.assert_allclose(found, expected, atol=2e-4, rtol=1e-3)


def test_the_kernel_begins_where_the_twin_begins(emulated):
    mass, force, rules, _ = robots(rows=5, size=3)
    best, _ = twin(mass, force, rules, 0 * force, iterations=6)
    np.testing.assert_allclose(emulated(mass, force, rules, best, 0)[0], best, atol=1e-5)
    free = np.linalg.solve(np.asarray(mass), np.asarray(force)[..., None])[..., 0]
    np.testing.assert_allclose(emulated(mass, force, rules, best + 100, 0)[0], free, atol=1e-4)


def test_an_environment_that_is_broken_breaks_no_other(emulated):
    mass, force, rules, warm = robots(rows=5, size=3)
    whole = emulated(mass, force, rules, warm, 5)[0]
    found = emulated(mass, force.at[1].set(jnp.nan), rules, warm, 5)[0]
    np.testing.assert_array_equal(np.delete(found, 1, axis=0), np.delete(whole, 1, axis=0))
    assert not np.isfinite(found[1]).any()


def test_axes_of_vmap_are_environments_of_one_launch(monkeypatch):
    """Seeds and environments; what all share is repeated."""
    launches = []

    def call(kernel, launch, outputs, mass, force, jacobian, target, stiffness, equality, warm_start):
        launches.append(launch.grid[0] * launch.threads // newton.WARP)
        rules = Constraints(jacobian, target, stiffness, equality)
        return jax.vmap(functools.partial(solvers.constrained, iterations=4))(mass, force, rules, warm_start)

    monkeypatch.setattr(cuda, "call", call)
    mass, force, rules, warm = robots(rows=5, size=3)
    seeds = jax.vmap(jax.vmap(functools.partial(newton.constrained, iterations=4)), (None, 0, None, None))
    found = seeds(mass, jnp.stack([force, 2 * force]), rules, warm)[0]
    assert launches[-1] == 2 * ENVS, "the others were traced, with fewer axes"
    for k in range(2):
        expected = twin(mass, (1 + k) * force, rules, warm, iterations=4)[0]
        np.testing.assert_allclose(found[k], expected, atol=1e-5)


@pytest.mark.parametrize("rows", [5, 4000])
def test_a_cpu_beside_a_gpu_has_the_twin(monkeypatch, rows):
    given = jax.tree.map(lambda x: x[0], robots(rows, size=3))
    run = functools.partial(mjx._constrained, iterations=1)
    plain = run(*given)
    monkeypatch.setattr(xla, "cuda_kernels", lambda asked_for=False, oldest=xla.HOPPER: True)
    assert ("cuda_kernel" in str(jax.make_jaxpr(run)(*given))) == (rows == 5), "large systems have no kernel"
    np.testing.assert_allclose(jax.jit(run)(*given)[0], plain[0], atol=1e-5)
