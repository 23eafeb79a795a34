"""The survival head against its definition, layer by layer."""

import jax
import jax.numpy as jnp
import numpy as np

from homing.networks import MLP, NetConfig
from homing.networks.survival_head import FILM_SCALE, FIRST_HAZARD, HAZARD_RANK, SurvivalHead

CONFIG, DIM, BINS, OCCUPANCY = NetConfig(width=16, depth=1), 6, 10, 4
HEAD = SurvivalHead(CONFIG, DIM, BINS, OCCUPANCY)


def some_params():
    params = HEAD.init(jax.random.key(0))
    leaves, tree = jax.tree.flatten(params)
    noise = (0.1 * jax.random.normal(jax.random.key(i), x.shape) for i, x in enumerate(leaves))
    return jax.tree.unflatten(tree, [x + n for x, n in zip(leaves, noise, strict=True)])


def by_layers(params, phi, psi):
    """Trunk, then the basis of hazards, one after the other."""
    film = FILM_SCALE * (psi @ params["film"]["kernel"] + params["film"]["bias"])
    z = (1 + film[:, :DIM]) * phi + film[:, DIM:]
    features = jnp.concatenate([z, psi, z - psi, z * psi], axis=-1)
    out = MLP(CONFIG, HAZARD_RANK + OCCUPANCY + 1).apply({"params": params["trunk"]}, features)
    hazard = out[:, :HAZARD_RANK] @ params["basis"] + params["bias"]
    return out[:, -1], hazard, out[:, HAZARD_RANK:-1]


def test_values_and_gradients_are_those_of_the_layers_one_after_the_other():
    params = some_params()
    phi, psi = jax.random.normal(jax.random.key(7), (2, 5, DIM))
    weights = [
        jax.random.normal(jax.random.key(8 + i), x.shape) for i, x in enumerate(HEAD(params, phi, psi))
    ]

    def total(head):
        return lambda *given: sum(jnp.sum(w * x) for w, x in zip(weights, head(*given), strict=True))

    found = jax.jit(jax.value_and_grad(total(HEAD), argnums=(0, 1, 2)))(params, phi, psi)
    wanted = jax.jit(jax.value_and_grad(total(by_layers), argnums=(0, 1, 2)))(params, phi, psi)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


def test_goals_are_expected_late_at_first():
    phi, psi = jnp.zeros((2, 3, DIM))
    made = HEAD(HEAD.init(jax.random.key(1)), phi, psi)
    assert made.hazard.shape == (3, BINS) and made.occupancy.shape == (3, OCCUPANCY)
    np.testing.assert_allclose(made.hazard, FIRST_HAZARD, atol=0.5)
