"""Energies: how well a representation φ(s, a) fits a representation ψ(g); larger is nearer.

Each comes as `rows` (φ and ψ paired, [..., D] with [..., D] -> [...]) and as `pairs` (each with each,
[A, D] with [B, D] -> [A, B]).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from homing.types import Array

ROOT_EPSILON = 1e-6  # under the root of L2: the slope at distance zero stays finite
NORM_EPSILON = 1e-12  # beside a squared norm of the cosine, for the same reason


class Energy(NamedTuple):
    rows: Callable[[Array, Array], Array]
    pairs: Callable[[Array, Array], Array]


def _products(phi: Array, psi: Array) -> Array:
    # Full float32: the reduced precision that accelerators prefer would be lost in differences of logits.
    return jnp.matmul(phi, psi.T, precision=lax.Precision.HIGHEST)


def _unit(x: Array) -> Array:
    return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + NORM_EPSILON)


def _squared_distances(phi: Array, psi: Array) -> Array:
    """‖φ_i − ψ_j‖² as ‖φ_i‖² + ‖ψ_j‖² − 2⟨φ_i, ψ_j⟩, which needs one matrix product instead of [A, B, D].

    Its error is a few times 1e-7·(‖φ_i‖² + ‖ψ_j‖²), so both are first moved to put the mean of ψ at the
    origin, which leaves distances alone and makes the norms as small as the spread of the batch.
    """
    # The barrier keeps a GPU from taking the mean anew for every entry that it is subtracted from.
    centre = lax.optimization_barrier(lax.stop_gradient(jnp.mean(psi, axis=0)))
    phi, psi = phi - centre, psi - centre
    squares = jnp.sum(phi * phi, axis=-1)[:, None] + jnp.sum(psi * psi, axis=-1)[None, :]
    return jnp.maximum(squares - 2 * _products(phi, psi), 0)


def _l1_pairs(phi: Array, psi: Array) -> Array:
    return -jnp.sum(jnp.abs(phi[:, None, :] - psi[None, :, :]), axis=-1)


ENERGIES: dict[str, Energy] = {
    "cosine": Energy(
        rows=lambda phi, psi: jnp.sum(_unit(phi) * _unit(psi), axis=-1),
        pairs=lambda phi, psi: _products(_unit(phi), _unit(psi)),
    ),
    "dot": Energy(
        rows=lambda phi, psi: jnp.sum(phi * psi, axis=-1),
        pairs=_products,
    ),
    "l1": Energy(
        rows=lambda phi, psi: -jnp.sum(jnp.abs(phi - psi), axis=-1),
        pairs=_l1_pairs,
    ),
    "l2": Energy(
        rows=lambda phi, psi: -jnp.sqrt(jnp.sum(jnp.square(phi - psi), axis=-1) + ROOT_EPSILON),
        pairs=lambda phi, psi: -jnp.sqrt(_squared_distances(phi, psi) + ROOT_EPSILON),
    ),
    "l2_squared": Energy(
        rows=lambda phi, psi: -jnp.sum(jnp.square(phi - psi), axis=-1),
        pairs=lambda phi, psi: -_squared_distances(phi, psi),
    ),
}
