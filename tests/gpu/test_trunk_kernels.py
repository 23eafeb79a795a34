"""Whole-network kernels on a real GPU: `make test-gpu`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trunk_reference import REFERENCE

from homing.compile import xla
from homing.networks import MLP, NetConfig
from homing.networks.trunk_passes import KERNELS, TrunkShape, Wanted, Weights

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "gpu" or not xla.cuda_kernels(), reason="needs a Hopper GPU"
)

SHAPES = [
    (TrunkShape(width=256, inputs=64, layers=4, norm=True, block=4, outputs=64), 3, 512),
    (TrunkShape(width=256, inputs=128, layers=4, norm=True, block=4, outputs=192), 15, 1024),
    (TrunkShape(width=256, inputs=64, layers=1, norm=False, block=0, outputs=64), 4, 256),
    (TrunkShape(width=224, inputs=64, layers=4, norm=True, block=4, outputs=64), 6, 1024),
    (TrunkShape(width=64, inputs=64, layers=8, norm=True, block=4, outputs=64), 2, 128),
    (TrunkShape(width=512, inputs=320, layers=4, norm=True, block=4, outputs=64), 2, 256),
    (TrunkShape(width=1024, inputs=64, layers=4, norm=True, block=4, outputs=64), 1, 256),
]
RESIDUAL = NetConfig(width=256, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16")


def distance(a, b) -> float:
    """‖a − b‖ / ‖b‖."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("wanted", [Wanted(True, True), Wanted(True, False)], ids=["all", "inputs"])
@pytest.mark.parametrize(("shape", "networks", "batch"), SHAPES, ids=str)
def test_kernels_compute_what_their_reference_does(shape, networks, batch, wanted):
    rng = np.random.default_rng(0)
    normal = lambda *size: rng.normal(size=size)
    x = jnp.asarray(normal(networks, batch, shape.inputs), jnp.bfloat16)
    layers = jnp.asarray(normal(networks, shape.rows, shape.width) / np.sqrt(shape.width), jnp.bfloat16)
    head = normal(networks, 2, shape.width, shape.outputs) / np.sqrt(shape.width)
    head = jnp.asarray(head * np.array([1, 1 / 300])[:, None, None], jnp.bfloat16)
    vectors = normal(networks, 1 + shape.layers, 3, shape.width) * 0.3 + np.array([0, 1, 0])[:, None]
    vectors = np.concatenate([vectors.reshape(networks, -1), normal(networks, shape.outputs)], axis=1)
    weights = Weights(layers, head, jnp.asarray(vectors, jnp.float32))
    gradient = jnp.asarray(normal(networks, batch, shape.outputs), jnp.float32)

    forward = lambda passes: jax.jit(functools.partial(passes.forward, shape, wanted))(x, weights)
    (out, saved), (expected, kept) = forward(KERNELS), forward(REFERENCE)
    assert distance(out, expected) < 1e-2
    none = Wanted(False, False)
    applied, _ = jax.jit(functools.partial(KERNELS.forward, shape, none))(x, weights)
    np.testing.assert_array_equal(applied, out)
    if wanted.weights:
        assert distance(saved.inputs, kept.inputs) < 1e-2

    backward = lambda passes: jax.jit(functools.partial(passes.backward, shape, wanted))(
        gradient, weights, saved
    )
    (dx, products), (expected_dx, exact) = backward(KERNELS), backward(REFERENCE)
    assert distance(dx, expected_dx) < 1e-2
    if not wanted.weights:
        assert products is None
        return
    made = products._replace(vectors=products.vectors.sum(axis=1))
    for own, reference in zip(made, exact._replace(vectors=exact.vectors.sum(axis=1)), strict=True):
        assert distance(own, reference) < 1e-2
    made = jax.jit(functools.partial(KERNELS.weights, shape))(x, saved, products)
    for own, reference in zip(made, REFERENCE.weights(shape, x, saved, products), strict=True):
        assert distance(own, reference) < 1e-4


def test_a_hundred_updates_with_and_without_kernels_agree_and_repeat():
    module = MLP(RESIDUAL, 8)
    x = jax.random.normal(jax.random.key(1), (512, 40), jnp.float32)
    goal = jnp.sin(x[:, :8])
    start = module.init(jax.random.key(0), x)

    def updates(params):
        def step(params, _):
            loss = lambda p: jnp.mean((module.apply(p, x) - goal) ** 2)
            value, grads = jax.value_and_grad(loss)(params)
            return jax.tree.map(lambda p, g: p - 0.05 * g, params, grads), value

        return jax.lax.scan(step, params, length=100)

    with_kernels, losses = jax.jit(lambda p: updates(p))(start)
    again, _ = jax.jit(lambda p: updates(p))(start)
    with xla.without_kernels():
        plain, plain_losses = jax.jit(lambda p: updates(p))(start)
    assert float(losses[-1]) < 0.5 * float(losses[0])
    np.testing.assert_allclose(losses, plain_losses, rtol=0.03)
    for a, b, c in zip(*map(jax.tree.leaves, (with_kernels, again, plain)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert distance(a, c) < 0.02 or float(jnp.abs(a - c).max()) < 5e-3


def test_a_nan_in_one_seed_stays_there(monkeypatch):
    monkeypatch.setenv("HOMING_KERNELS", "all")
    module = MLP(NetConfig(width=256, depth=2, dtype="bfloat16"), 64)
    x = jax.random.normal(jax.random.key(1), (3, 256, 40), jnp.float32)
    params = jax.vmap(lambda key: module.init(key, x[0]))(jax.random.split(jax.random.key(0), 3))
    gradients = jax.jit(jax.vmap(jax.grad(lambda p, x: jnp.sum(module.apply(p, x) ** 2))))
    before = gradients(params, x)
    after = gradients(params, x.at[1, 5, 2].set(jnp.nan))
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert np.isnan(new[1]).any()
        for seed in (0, 2):
            np.testing.assert_array_equal(old[seed], new[seed])
