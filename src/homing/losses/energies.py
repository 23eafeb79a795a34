"""Energies: similarity of the representations φ(s, a) and ψ(g); larger is more similar.

Each has an elementwise form `rows`, [..., D], [..., D] -> [...], and an all-pairs form `pairs`,
[A, D], [B, D] -> [A, B].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.types import Array

ROOT_EPSILON = 1e-6  # under the root of L2, for a finite gradient at distance zero
NORM_EPSILON = 1e-12  # added to squared norms of the cosine, for the same reason


class Energy(NamedTuple):
    """The two forms of an energy."""

    rows: Callable[[Array, Array], Array]
    pairs: Callable[[Array, Array], Array]


@jax.custom_vjp
def _products(phi: Array, psi: Array) -> Array:
    """⟨φ_i, ψ_j⟩ in full float32: differences of logits would suffer from the default precision of accelerators.

    Gradients are as exact as those of any layer; in full float32 they took at least twice as long.
    """
    return jnp.matmul(phi, psi.T, precision=lax.Precision.HIGHEST)


def _products_forward(phi: Array, psi: Array) -> tuple[Array, tuple[Array, Array]]:
    return _products(phi, psi), (phi, psi)


def _products_backward(saved: tuple[Array, Array], grad: Array) -> tuple[Array, Array]:
    phi, psi = saved
    return grad @ psi, grad.T @ phi


_products.defvjp(_products_forward, _products_backward)


def _unit(x: Array) -> Array:
    return x * lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + NORM_EPSILON)


def _squared_distances(phi: Array, psi: Array) -> Array:
    """‖φ_i − ψ_j‖² as ‖φ_i‖² + ‖ψ_j‖² − 2⟨φ_i, ψ_j⟩: one matrix product, without an array [A, B, D].

    The error is a few times 1e-7·(‖φ_i‖² + ‖ψ_j‖²), so both are first centred on the mean of ψ, which preserves
    distances and reduces the norms to the spread of the batch.
    """
    # The barrier prevents XLA from recomputing the mean for every entry.
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
