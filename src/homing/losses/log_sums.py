"""Memory-efficient InfoNCE for the L2 energy: log-sums over rows and columns of the logits, with their gradient.

Automatic differentiation stores six arrays [B, B]. Here only the products of φ and ψ are stored, and both
directions share one array of gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.losses.energies import ROOT_EPSILON
from homing.types import Array

LOWEST = -80.0
"""Lower bound of the reference that is subtracted from logits, otherwise the positive. Logits are never above 0,
so no summand exceeds e^80; the log-sum of a row or column is at least about −165."""
TINY = 1e-37


class LogSums(NamedTuple):
    """Log-sums of logits f, all [B]."""

    rows: Array  # log Σ_j e^{f_ij}
    columns: Array  # log Σ_j e^{f_ji}
    positives: Array  # f_ii


class _Saved(NamedTuple):
    phi: Array  # [B, D], shifted
    psi: Array
    products: Array  # [B, B]
    positives: Array  # [B]
    rows: Array  # [B]  Σ_j e^{f_ij − r_i}, with the reference r_i
    columns: Array  # [B]  Σ_j e^{f_ji − r_i}


@jax.custom_vjp
def l2_log_sums(phi: Array, psi: Array) -> LogSums:
    """Log-sums of f_ij = −√(‖φ_i − ψ_j‖² + ε), for φ and ψ [B, D]."""
    return _forward(phi, psi)[0]


def _forward(phi: Array, psi: Array) -> tuple[LogSums, _Saved]:
    # A common shift preserves distances and reduces the norms to the spread of the batch.
    phi, psi = phi - psi[:1], psi - psi[:1]
    positives = -jnp.sqrt(jnp.sum(jnp.square(phi - psi), axis=-1) + ROOT_EPSILON)
    # Full float32, since distances are differences of these.
    products = lax.optimization_barrier(jnp.matmul(phi, psi.T, precision=lax.Precision.HIGHEST))
    below, beside = _ratios(_logits(phi, psi, products, positives), positives)
    rows = jnp.maximum(jnp.sum(below, axis=1), TINY)
    columns = jnp.maximum(jnp.sum(beside, axis=0), TINY)
    reference = _reference(positives)
    sums = LogSums(reference + jnp.log(rows), reference + jnp.log(columns), positives)
    return sums, _Saved(phi, psi, products, positives, rows, columns)


def _reference(positives: Array) -> Array:
    return jnp.maximum(positives, LOWEST)


def _logits(phi: Array, psi: Array, products: Array, positives: Array) -> Array:
    squares = jnp.sum(phi * phi, axis=-1)[:, None] + jnp.sum(psi * psi, axis=-1)[None, :]
    logits = -jnp.sqrt(jnp.maximum(squares - 2 * products, 0) + ROOT_EPSILON)
    # Positives can be so close that their distance cannot be computed from products.
    return jnp.where(_diagonal(logits), positives[:, None], logits)


def _diagonal(pairs: Array) -> Array:
    return jnp.eye(pairs.shape[0], dtype=bool)


def _ratios(logits: Array, positives: Array) -> tuple[Array, Array]:
    """e^{f_ij − r_i} and e^{f_ij − r_j}."""
    reference = _reference(positives)
    return jnp.exp(logits - reference[:, None]), jnp.exp(logits - reference[None, :])


def _backward(saved: _Saved, grads: LogSums) -> tuple[Array, Array]:
    phi, psi = saved.phi, saved.psi
    logits = _logits(phi, psi, saved.products, saved.positives)
    below, beside = _ratios(logits, saved.positives)
    per_row, per_column = grads.rows / saved.rows, grads.columns / saved.columns
    on_logits = per_row[:, None] * below + per_column[None, :] * beside
    # The gradient of f_ij is (ψ_j − φ_i)/|f_ij| in φ_i, and its negative in ψ_j; on the diagonal it is computed
    # from the difference, elsewhere from matrix products.
    pull = lax.optimization_barrier(jnp.where(_diagonal(logits), 0, on_logits / -logits))
    own = (per_row + per_column) * jnp.exp(saved.positives - _reference(saved.positives)) + grads.positives
    own = (own / -saved.positives)[:, None] * (psi - phi)
    on_phi = pull @ psi - jnp.sum(pull, axis=1)[:, None] * phi + own
    on_psi = pull.T @ phi - jnp.sum(pull, axis=0)[:, None] * psi - own
    return on_phi, on_psi


l2_log_sums.defvjp(_forward, _backward)
