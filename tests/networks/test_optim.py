"""The Adam step that all learners share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax

from homing.networks import Fit, adam

RATES = {
    "nets": {"critic": jnp.asarray([1e-2, 2e-2]), "actor": jnp.asarray([3e-2])},
    "scale": jnp.float32(0.1),
}


def parameters(key: jax.Array) -> dict[str, object]:
    k_critic, k_actor, k_bias = jax.random.split(key, 3)
    critic = {"kernel": jax.random.normal(k_critic, (2, 3, 4)), "bias": jax.random.normal(k_bias, (2, 4))}
    return {
        "nets": {"critic": critic, "actor": {"kernel": jax.random.normal(k_actor, (1, 5))}},
        "scale": jnp.ones(()),
    }


def loss(params):
    value = sum(jnp.sum(jnp.sin(leaf) * (i + 1)) for i, leaf in enumerate(jax.tree.leaves(params)))
    return value, {"value": value}


def test_a_step_is_optax_adam_with_a_rate_for_each_network():
    params = parameters(jax.random.key(0))
    fit, metrics = adam(Fit.start(params), loss, RATES)
    optimiser = optax.scale_by_adam()
    directions, _ = optimiser.update(jax.grad(loss, has_aux=True)(params)[0], optimiser.init(params))
    critic, directed = params["nets"]["critic"], directions["nets"]["critic"]
    rates = np.array([1e-2, 2e-2])
    np.testing.assert_allclose(
        fit.params["nets"]["critic"]["kernel"],
        critic["kernel"] - rates[:, None, None] * directed["kernel"],
        rtol=1e-6,
    )
    np.testing.assert_allclose(
        fit.params["nets"]["critic"]["bias"], critic["bias"] - rates[:, None] * directed["bias"], rtol=1e-6
    )
    np.testing.assert_allclose(fit.params["scale"], params["scale"] - 0.1 * directions["scale"], rtol=1e-6)
    assert metrics["value"] == loss(params)[0]
