"""What agents share: the squashed Gaussian policy."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from homing.nets import MLP, NetConfig
from homing.types import Array, Key, Obs

LOG_STD_MIN, LOG_STD_MAX = -5.0, 2.0


class Actor(nn.Module):
    """Mean and log-deviation of the Gaussian under the tanh."""

    config: NetConfig
    action_dim: int

    @nn.compact
    def __call__(self, obs: Obs) -> tuple[Array, Array]:
        out = MLP(self.config, 2 * self.action_dim)(jnp.concatenate([obs.state, obs.goal], axis=-1))
        return mean_and_log_std(out)


def mean_and_log_std(head: Array) -> tuple[Array, Array]:
    """The two halves of a policy's head; log-deviations are squashed into their range."""
    mean, x = jnp.split(head, 2, axis=-1)
    return mean, LOG_STD_MIN + (LOG_STD_MAX - LOG_STD_MIN) / 2 * (jnp.tanh(x) + 1)


def squashed_sample(mean: Array, log_std: Array, key: Key) -> tuple[Array, Array]:
    """An action tanh(x), x ~ N(mean, std²), and its log-density.

    log(1 − tanh² x) = 2 (log 2 − x − softplus(−2x)) holds its precision where the tanh saturates.
    """
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    x = mean + jnp.exp(log_std) * noise
    gaussian = -0.5 * jnp.square(noise) - log_std - 0.5 * jnp.log(2 * jnp.pi).astype(mean.dtype)
    squash = 2 * (jnp.log(2.0).astype(mean.dtype) - x - nn.softplus(-2 * x))
    return jnp.tanh(x), jnp.sum(gaussian - squash, axis=-1)
