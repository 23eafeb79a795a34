"""Contrastive objectives: losses of logits f [B, B], f_ij = f(s_i, a_i, g_j); positives on the diagonal."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax, nn

from homing.losses.log_sums import LogSums
from homing.types import Array, Metrics

Objective = Callable[[Array], Array]

EXP_CAP = 30.0


def positives_of(logits: Array) -> Array:
    """The diagonal [B], by a mask: so is its gradient, where that of an indexed diagonal is a scatter."""
    return jnp.sum(jnp.where(jnp.eye(logits.shape[0], dtype=bool), logits, 0), axis=1)


def log_sums(logits: Array) -> LogSums:
    """All that InfoNCE needs of logits."""
    return LogSums(nn.logsumexp(logits, axis=1), nn.logsumexp(logits, axis=0), positives_of(logits))


# Objectives that see only log-sums and positives.
OF_SUMS: dict[str, Callable[[LogSums], Array]] = {
    "infonce": lambda sums: jnp.mean(sums.rows - sums.positives),
    "infonce_backward": lambda sums: jnp.mean(sums.columns - sums.positives),
    "infonce_symmetric": lambda sums: jnp.mean(sums.rows + sums.columns - 2 * sums.positives),
}


def infonce(logits: Array) -> Array:
    """−mean_i [f_ii − log Σ_j e^{f_ij}]: which goal belongs to this state and action?"""
    return OF_SUMS["infonce"](log_sums(logits))


def infonce_backward(logits: Array) -> Array:
    """−mean_i [f_ii − log Σ_j e^{f_ji}]: which state and action belong to this goal?"""
    return OF_SUMS["infonce_backward"](log_sums(logits))


def infonce_symmetric(logits: Array) -> Array:
    """The sum of both directions."""
    return OF_SUMS["infonce_symmetric"](log_sums(logits))


def binary_nce(logits: Array) -> Array:
    """mean_ij of −log σ(f_ii) on the diagonal and −log(1 − σ(f_ij)) off it."""
    signs = 1 - 2 * jnp.eye(logits.shape[0], dtype=logits.dtype)
    return jnp.mean(nn.softplus(signs * logits))


def flatnce(logits: Array) -> Array:
    """mean_i S_i / detach(S_i), S_i = Σ_j e^{f_ij − f_ii}: always 1, with the gradient of mean_i log S_i."""
    log_s = nn.logsumexp(logits, axis=1) - positives_of(logits)
    return jnp.mean(jnp.exp(log_s - lax.stop_gradient(log_s)))


def flatnce_backward(logits: Array) -> Array:
    """FlatNCE with S_i = Σ_j e^{f_ji − f_ii}."""
    return flatnce(logits.T)


def _exp(x: Array) -> Array:
    # Past the cap the exponential goes on as its tangent: no overflow, and the slope still points back.
    low = jnp.minimum(x, EXP_CAP)
    return jnp.exp(low) * (1 + x - low)


def forward_backward(logits: Array) -> Array:
    """mean_i [−e^{f_ii} + 1/(2(B−1)) Σ_{j≠i} e^{2 f_ij}]."""
    count = logits.shape[0]
    positives = positives_of(logits)
    off_diagonal = 1 - jnp.eye(count, dtype=logits.dtype)
    negatives = jnp.sum(off_diagonal * _exp(2 * logits), axis=1) / (2 * max(count - 1, 1))
    return jnp.mean(negatives - _exp(positives))


def dpo(logits: Array) -> Array:
    """−mean_ij log σ(f_ii − f_ij)."""
    return jnp.mean(nn.softplus(logits - positives_of(logits)[:, None]))


def ipo(logits: Array) -> Array:
    """mean_ij (f_ii − f_ij − 1)²."""
    return jnp.mean(jnp.square(positives_of(logits)[:, None] - logits - 1))


def sppo(logits: Array) -> Array:
    """mean_i (f_ii − 1)² + 1/B² Σ_{i≠j} (f_ij + 1)²."""
    off_diagonal = 1 - jnp.eye(logits.shape[0], dtype=logits.dtype)
    return jnp.mean(jnp.square(positives_of(logits) - 1)) + jnp.mean(off_diagonal * jnp.square(logits + 1))


OBJECTIVES: dict[str, Objective] = {
    "infonce": infonce,
    "infonce_backward": infonce_backward,
    "infonce_symmetric": infonce_symmetric,
    "binary_nce": binary_nce,
    "flatnce": flatnce,
    "flatnce_backward": flatnce_backward,
    "forward_backward": forward_backward,
    "dpo": dpo,
    "ipo": ipo,
    "sppo": sppo,
}


def logsumexp_penalty(logits: Array) -> Array:
    """mean_i (log Σ_j e^{f_ij})²: keeps the logits of a row from drifting together."""
    return jnp.mean(jnp.square(nn.logsumexp(logits, axis=1)))


def loss(logits: Array, objective: str, penalty_weight: float | Array) -> Array:
    """An objective by its name, plus the weighted penalty."""
    return OBJECTIVES[objective](logits) + penalty_weight * logsumexp_penalty(logits)


def loss_of_sums(sums: LogSums, objective: str, penalty_weight: float | Array) -> Array:
    """`loss`, for those in OF_SUMS, without logits."""
    return OF_SUMS[objective](sums) + penalty_weight * jnp.mean(jnp.square(sums.rows))


def describe(logits: Array) -> Metrics:
    """Means on and off the diagonal, and how often a row's own goal scores highest."""
    count = logits.shape[0]
    positives = positives_of(logits)
    total = jnp.sum(positives)
    metrics = {
        "categorical_accuracy": jnp.mean((positives >= jnp.max(logits, axis=1)).astype(jnp.float32)),
        "logits_pos": total / count,
        "logsumexp": jnp.mean(nn.logsumexp(logits, axis=1)),
    }
    if count > 1:
        metrics["logits_neg"] = (jnp.sum(logits) - total) / (count * (count - 1))
    return metrics
