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
from homing.physics.solvers import MatrixOps

Array = jax.Array
Ref = Any
MIN_SIDE = 16  # smallest side of a matrix in a Triton product


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
