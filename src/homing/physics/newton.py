"""`solvers.constrained` as one CUDA kernel, in which each environment iterates until it has converged itself."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from homing.compile import cuda
from homing.physics.solvers import LINE_SEARCH_POINTS, Constraints

Array = jax.Array
WARP = 32
MAX_WARPS = 4  # environments of a block
SHARED_BYTES = 48 * 1024  # of a block, on any card


def fits(coordinates: int, constraints: int) -> bool:
    """Whether the kernel can solve such systems: a lane has a coordinate, a block's memory the matrices."""
    return coordinates <= WARP and constraints > 0 and shared_bytes(coordinates, constraints) <= SHARED_BYTES


def shared_bytes(coordinates: int, constraints: int) -> int:
    """Shared memory for one environment."""
    stride = coordinates | 1
    return 4 * (constraints * stride + 2 * coordinates * stride + coordinates + 2 * constraints)


def constrained(
    mass: Array, force: Array, constraints: Constraints, warm_start: Array, iterations: int
) -> tuple[Array, Array]:
    """`solvers.constrained` as a kernel; axes of vmap become environments of one launch."""
    over_envs = cuda.over_leading_axis(functools.partial(_launch, iterations))
    given = (mass, force, *constraints, warm_start)
    a, push = over_envs(*(array[None] for array in given))
    return a[0], push[0]


def defines(coordinates: int, constraints: int, envs: int, iterations: int) -> dict[str, int]:
    """What newton.cu is compiled with."""
    room = SHARED_BYTES // shared_bytes(coordinates, constraints)
    warps = next(count for count in (MAX_WARPS, 2, 1) if count <= room and envs % count == 0)
    sizes = {"D": coordinates, "C": constraints, "WARPS": warps}
    return {**sizes, "ITERATIONS": iterations, "POINTS": LINE_SEARCH_POINTS}


def _launch(iterations: int, *given: Array) -> tuple[Array, Array]:
    envs, rows, size = given[2].shape
    chosen = defines(size, rows, envs, iterations)
    warps = chosen["WARPS"]
    launch = cuda.Launch((envs // warps, 1, 1), WARP * warps, warps * shared_bytes(size, rows))
    outputs = [jax.ShapeDtypeStruct((envs, size), jnp.float32)] * 2
    a, push = cuda.call(cuda.kernel("homing.physics", "newton.cu", "newton", chosen), launch, outputs, *given)
    return a, push
