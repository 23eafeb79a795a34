"""The tanh-squashed Gaussian policy."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from homing.types import Array, Key, Metrics

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0
MIN_STD = 1e-3
MAX_ACTION = 0.999


def mean_and_log_std(head: Array) -> tuple[Array, Array]:
    """Mean and log standard deviation from a policy's head, the latter squashed into [LOG_STD_MIN, LOG_STD_MAX]."""
    mean, x = jnp.split(head, 2, axis=-1)
    return mean, LOG_STD_MIN + (LOG_STD_MAX - LOG_STD_MIN) / 2 * (jnp.tanh(x) + 1)


def softplus_gaussian(head: Array) -> tuple[Array, Array]:
    """Mean and log standard deviation from a policy's head, with std = softplus(x) + 0.001."""
    mean, x = jnp.split(head, 2, axis=-1)
    return mean, jnp.log(nn.softplus(x) + MIN_STD)


def squashed_sample(mean: Array, log_std: Array, key: Key) -> tuple[Array, Array]:
    """An action tanh(x), x ~ N(mean, std²), and its log-density."""
    return squash(mean, log_std, jax.random.normal(key, mean.shape, mean.dtype))


def squash(mean: Array, log_std: Array, noise: Array) -> tuple[Array, Array]:
    """The action tanh(mean + std · noise) and its log-density, for noise ~ N(0, 1)."""
    x = mean + jnp.exp(log_std) * noise
    return jnp.tanh(x), _log_density(log_std, noise, x)


def log_density(mean: Array, log_std: Array, x: Array) -> Array:
    """Log-density of the action tanh(x), x ~ N(mean, std²)."""
    return _log_density(log_std, (x - mean) * jnp.exp(-log_std), x)


def log_likelihood(mean: Array, log_std: Array, action: Array) -> Array:
    """Log-density of given actions; those at ±1, where it is infinite, count as MAX_ACTION."""
    return log_density(mean, log_std, jnp.arctanh(jnp.clip(action, -MAX_ACTION, MAX_ACTION)))


def log_slope(x: Array) -> Array:
    """log(1 − tanh² x) = 2 (log 2 − x − softplus(−2x)), which is accurate where tanh saturates."""
    return 2 * (jnp.log(2.0).astype(x.dtype) - x - nn.softplus(-2 * x))


def _log_density(log_std: Array, noise: Array, x: Array) -> Array:
    gaussian = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2 * jnp.pi).astype(x.dtype)
    return jnp.sum(gaussian - log_slope(x), axis=-1)


def temperature_loss(
    log_alpha: Array, log_prob: Array, target_entropy: float | Array
) -> tuple[Array, Metrics]:
    """Moves the temperature α until the policy, with log-densities [B], has its target entropy."""
    alpha = jnp.exp(log_alpha)
    loss = alpha * lax.stop_gradient(-jnp.mean(log_prob) - target_entropy)
    return loss, {"alpha_loss": loss, "alpha": alpha}
