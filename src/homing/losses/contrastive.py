"""Contrastive objectives: losses of logits f [B, B], f_ij = f(s_i, a_i, g_j); positives on the diagonal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jax import lax, nn

from homing.losses.log_sums import LogSums
from homing.types import Array, Metrics


@dataclasses.dataclass(frozen=True)
class Objective:
    """A contrastive loss of logits [B, B], called like a function."""

    loss: Callable[[Array], Array]
    from_log_sums: Callable[[LogSums], Array] | None = None
    """The same loss from the log-sums of rows and columns, without storing the logits; optional."""

    def __call__(self, logits: Array) -> Array:
        return self.loss(logits)


EXP_CAP = 30.0


def positives_of(logits: Array) -> Array:
    """The diagonal [B], by a mask, so that its gradient is a mask instead of a scatter."""
    return jnp.sum(jnp.where(jnp.eye(logits.shape[0], dtype=bool), logits, 0), axis=1)


def log_sums(logits: Array) -> LogSums:
    """Log-sums and positives of logits, the inputs of InfoNCE."""
    return LogSums(nn.logsumexp(logits, axis=1), nn.logsumexp(logits, axis=0), positives_of(logits))


def _infonce(sums: LogSums) -> Array:
    return jnp.mean(sums.rows - sums.positives)


def _infonce_backward(sums: LogSums) -> Array:
    return jnp.mean(sums.columns - sums.positives)


def _infonce_symmetric(sums: LogSums) -> Array:
    return jnp.mean(sums.rows + sums.columns - 2 * sums.positives)


def infonce(logits: Array) -> Array:
    """−mean_i [f_ii − log Σ_j e^{f_ij}]: which goal belongs to this state and action?"""
    return _infonce(log_sums(logits))


def infonce_backward(logits: Array) -> Array:
    """−mean_i [f_ii − log Σ_j e^{f_ji}]: which state and action belong to this goal?"""
    return _infonce_backward(log_sums(logits))


def infonce_symmetric(logits: Array) -> Array:
    """The sum of both directions."""
    return _infonce_symmetric(log_sums(logits))


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
    # Linear extrapolation above the cap: no overflow, and the gradient keeps its sign.
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
    "infonce": Objective(infonce, _infonce),
    "infonce_backward": Objective(infonce_backward, _infonce_backward),
    "infonce_symmetric": Objective(infonce_symmetric, _infonce_symmetric),
    "binary_nce": Objective(binary_nce),
    "flatnce": Objective(flatnce),
    "flatnce_backward": Objective(flatnce_backward),
    "forward_backward": Objective(forward_backward),
    "dpo": Objective(dpo),
    "ipo": Objective(ipo),
    "sppo": Objective(sppo),
}


def register_objective(
    name: str, loss: Callable[[Array], Array], from_log_sums: Callable[[LogSums], Array] | None = None
) -> None:
    """Register a loss by name, or replace one together with its log-sum form."""
    OBJECTIVES[name] = Objective(loss, from_log_sums)


def logsumexp_penalty(logits: Array) -> Array:
    """mean_i (log Σ_j e^{f_ij})²: prevents a common drift of the logits of a row."""
    return jnp.mean(jnp.square(nn.logsumexp(logits, axis=1)))


def loss(logits: Array, objective: Objective, penalty_weight: float | Array) -> Array:
    """An objective plus the weighted logsumexp penalty."""
    return objective(logits) + penalty_weight * logsumexp_penalty(logits)


def loss_of_sums(sums: LogSums, objective: Objective, penalty_weight: float | Array) -> Array:
    """`loss` from log-sums, for an objective with `from_log_sums`."""
    assert objective.from_log_sums is not None
    return objective.from_log_sums(sums) + penalty_weight * jnp.mean(jnp.square(sums.rows))


def describe(logits: Array) -> Metrics:
    """Metrics of logits: means on and off the diagonal, and the accuracy of identifying the positive goal."""
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
