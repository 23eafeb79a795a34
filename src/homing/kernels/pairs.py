"""Sums over all pairs of φ and ψ without ever storing the pairs: a contrastive loss in two kernels.

`log_sums` gives what the InfoNCE family needs of the logits f [B, B]: log-sum-exps of rows and columns, and
the diagonal. One program of the grid takes a block of rows, of φ against all ψ (side 0) or of ψ against all φ
(side 1), and goes through the other side in chunks. Backwards the logits are computed again: that is cheaper
than reading them. XLA needs about fifteen kernels for the same, each passing over [B, B].
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from homing.types import Array

ROOT_EPSILON = 1e-6  # under the root of L2: the slope at distance zero stays finite
ROWS, CHUNK = 16, 128

KINDS = ("l2", "l2_squared", "dot")


class Form(NamedTuple):
    """What is fixed when a kernel is compiled."""

    kind: str
    interpret: bool

    def product(self, a: Array, b: Array) -> Array:
        # Three passes of reduced precision: as exact as float32, on the units that are made for products.
        passes = lax.DotAlgorithmPreset.TF32_TF32_F32_X3
        precision = lax.Precision.HIGHEST if self.interpret else passes
        return lax.dot_general(a, b, (((1,), (0,)), ((), ())), precision=precision)


class LogSums(NamedTuple):
    """Of logits f [B, B]."""

    rows: Array  # [B]  log Σ_j e^{f_ij}
    columns: Array  # [B]  log Σ_j e^{f_ji}
    diagonal: Array  # [B]  f_ii


def supported(phi: Array) -> bool:
    """Whether the kernels take representations of this shape."""
    rows, dim = phi.shape
    return rows % CHUNK == 0 and dim in (16, 32, 64, 128) and phi.dtype == jnp.float32


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def log_sums(phi: Array, psi: Array, kind: str, interpret: bool = False) -> LogSums:
    """Log-sum-exps and diagonal of the logits of φ [B, D] and ψ [B, D]; see `supported`."""
    return _forward(phi, psi, kind, interpret)[0]


def _forward(phi: Array, psi: Array, kind: str, interpret: bool) -> tuple[LogSums, tuple[Array, Array]]:
    both = jnp.stack([phi, psi])
    count = len(phi)
    sums, diagonal = pl.pallas_call(
        functools.partial(_sums_kernel, form=Form(kind, interpret)),
        out_shape=[jax.ShapeDtypeStruct((2, count), jnp.float32)] * 2,
        grid=(2, count // ROWS),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name="pairs_log_sums",
    )(both)
    return LogSums(sums[0], sums[1], diagonal[0]), (both, sums)


def _backward(kind: str, interpret: bool, saved: tuple[Array, Array], slopes: LogSums) -> tuple[Array, Array]:
    both, sums = saved
    slope = pl.pallas_call(
        functools.partial(_slopes_kernel, form=Form(kind, interpret)),
        out_shape=jax.ShapeDtypeStruct(both.shape, jnp.float32),
        grid=(2, both.shape[1] // ROWS),
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name="pairs_slopes",
    )(both, sums, jnp.stack([slopes.rows, slopes.columns, slopes.diagonal]))
    return slope[0], slope[1]


log_sums.defvjp(_forward, _backward)


def _sums_kernel(both, sums, diagonal, *, form: Form) -> None:
    side, rows = pl.program_id(0), pl.ds(pl.program_id(1) * ROWS, ROWS)
    x, centre = _centred(both[side, rows, :], form)

    def chunk(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        top, total = carry
        f, _ = _logits(x, both[1 - side, pl.ds(j * CHUNK, CHUNK), :] - centre, form)
        higher = jnp.maximum(top, jnp.max(f, axis=1))
        return higher, total * jnp.exp(top - higher) + jnp.sum(jnp.exp(f - higher[:, None]), axis=1)

    start = jnp.full((ROWS,), -jnp.inf, jnp.float32), jnp.zeros((ROWS,), jnp.float32)
    top, total = lax.fori_loop(0, both.shape[1] // CHUNK, chunk, start)
    sums[side, rows] = top + jnp.log(total)
    diagonal[side, rows] = _paired(x, both[1 - side, rows, :] - centre, form)


def _slopes_kernel(both, sums, slopes, out, *, form: Form) -> None:
    side, first = pl.program_id(0), pl.program_id(1) * ROWS
    rows = pl.ds(first, ROWS)
    x, centre = _centred(both[side, rows, :], form)
    own, own_slope, pair_slope = sums[side, rows], slopes[side, rows], slopes[2, rows]

    def chunk(j: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        weights, weighted = carry
        others = pl.ds(j * CHUNK, CHUNK)
        y = both[1 - side, others, :] - centre
        f, scale = _logits(x, y, form)
        slope = own_slope[:, None] * jnp.exp(f - own[:, None])
        slope += slopes[1 - side, others][None, :] * jnp.exp(f - sums[1 - side, others][None, :])
        shape = (ROWS, CHUNK)
        i, k = lax.broadcasted_iota(jnp.int32, shape, 0), lax.broadcasted_iota(jnp.int32, shape, 1)
        slope += jnp.where(i + first == k + j * CHUNK, pair_slope[:, None], 0.0)
        slope *= scale
        return weights + jnp.sum(slope, axis=1), weighted + form.product(slope, y)

    start = jnp.zeros((ROWS,), jnp.float32), jnp.zeros(x.shape, jnp.float32)
    weights, weighted = lax.fori_loop(0, both.shape[1] // CHUNK, chunk, start)
    out[side, rows, :] = weighted if form.kind == "dot" else weighted - weights[:, None] * x


def _centred(x: Array, form: Form) -> tuple[Array, Array]:
    """A block's rows, and what to take off the other side: distances stay, small numbers are exacter."""
    centre = jnp.sum(x, axis=0) * (0.0 if form.kind == "dot" else 1.0 / ROWS)
    return x - centre, centre


def _logits(x: Array, y: Array, form: Form) -> tuple[Array, Array | float]:
    """f [R, C], and the factor c for which ∂f_ij/∂x_i = c_ij (y_j − x_i), or c_ij y_j for the dot product."""
    products = form.product(x, y.T)
    if form.kind == "dot":
        return products, 1.0
    squares = jnp.maximum(jnp.sum(x * x, axis=1)[:, None] + jnp.sum(y * y, axis=1)[None, :] - 2 * products, 0)
    if form.kind == "l2_squared":
        return -squares, 2.0
    inverse = lax.rsqrt(squares + ROOT_EPSILON)
    return -(squares + ROOT_EPSILON) * inverse, inverse


def _paired(x: Array, y: Array, form: Form) -> Array:
    """f of rows paired one to one [R]."""
    if form.kind == "dot":
        return jnp.sum(x * y, axis=1)
    squares = jnp.sum((x - y) * (x - y), axis=1)
    return -squares if form.kind == "l2_squared" else -jnp.sqrt(squares + ROOT_EPSILON)
