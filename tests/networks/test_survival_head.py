"""The survival head against its definition, layer by layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.networks import MLP, NetConfig
from homing.networks.survival_head import FILM_SCALE, FIRST_HAZARD, HAZARD_RANK, SurvivalHead

CONFIG, DIM, BINS, OCCUPANCY = NetConfig(width=16, depth=1), 6, 10, 4
HEAD = SurvivalHead(CONFIG, DIM, BINS, OCCUPANCY)


@pytest.fixture(scope="module")
def first():
    """Initial parameters."""
    return jax.tree.map(np.asarray, jax.jit(HEAD.init)(jax.random.key(0)))


def by_layers(params, phi, psi):
    """Trunk, then the basis of hazards, one after the other."""
    film = FILM_SCALE * (psi @ params["film"]["kernel"] + params["film"]["bias"])
    z = (1 + film[:, :DIM]) * phi + film[:, DIM:]
    features = jnp.concatenate([z, psi, z - psi, z * psi], axis=-1)
    out = MLP(CONFIG, HAZARD_RANK + OCCUPANCY + 1).apply({"params": params["trunk"]}, features)
    hazard = out[:, :HAZARD_RANK] @ params["basis"] + params["bias"]
    return out[:, -1], hazard, out[:, HAZARD_RANK:-1]


def test_values_and_gradients_are_those_of_the_layers_one_after_the_other(first):
    rng = np.random.default_rng(7)
    normal = lambda shape: rng.normal(size=shape).astype(np.float32)
    params = jax.tree.map(lambda x: x + np.float32(0.1) * normal(x.shape), first)
    phi, psi = normal((2, 5, DIM))
    weights = [normal(x.shape) for x in jax.eval_shape(HEAD, params, phi, psi)]

    def total(head):
        return lambda *given: sum(jnp.sum(w * x) for w, x in zip(weights, head(*given), strict=True))

    @jax.jit
    def both(*given):
        return [jax.value_and_grad(total(head), argnums=(0, 1, 2))(*given) for head in (HEAD, by_layers)]

    found, wanted = both(params, phi, psi)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


def test_goals_are_expected_late_at_first(first):
    made = jax.jit(HEAD)(first, *np.zeros((2, 3, DIM), np.float32))
    assert made.hazard.shape == (3, BINS) and made.occupancy.shape == (3, OCCUPANCY)
    np.testing.assert_allclose(made.hazard, FIRST_HAZARD, atol=0.5)
