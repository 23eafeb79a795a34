"""Whole-network kernels on a real GPU: `make test-gpu`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_cases import distance
from trunk_reference import REFERENCE

from homing.compile import xla
from homing.networks import trunk_passes
from homing.networks.trunk_passes import KERNELS, TrunkShape

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "gpu" or not xla.cuda_kernels(), reason="needs a Hopper GPU"
)

SHAPES = [
    (TrunkShape(width=256, inputs=64, layers=4, norm=True, block=4), 3, 512),
    (TrunkShape(width=256, inputs=64, layers=4, norm=True, block=4), 15, 1024),
    (TrunkShape(width=256, inputs=64, layers=1, norm=False, block=0), 4, 256),
    (TrunkShape(width=224, inputs=64, layers=4, norm=True, block=4), 6, 1024),
    (TrunkShape(width=64, inputs=64, layers=8, norm=True, block=4), 2, 128),
    (TrunkShape(width=512, inputs=320, layers=4, norm=True, block=4), 2, 256),
    (TrunkShape(width=1024, inputs=64, layers=4, norm=True, block=4), 1, 256),
]


@pytest.mark.parametrize(("shape", "networks", "batch"), SHAPES, ids=str)
def test_kernels_compute_what_their_reference_does(shape, networks, batch):
    rng = np.random.default_rng(0)
    rows = shape.inputs + shape.layers * shape.width
    x = jnp.asarray(rng.normal(size=(networks, batch, shape.inputs)), jnp.bfloat16)
    weights = rng.normal(size=(networks, rows, shape.width)) / np.sqrt(shape.width)
    weights = jnp.asarray(weights, jnp.bfloat16)
    vectors = rng.normal(size=(networks, 1 + shape.layers, 3, shape.width)) * 0.3
    vectors = jnp.asarray(vectors + np.array([0, 1, 0])[:, None], jnp.float32)
    gradient = jnp.asarray(rng.normal(size=(networks, batch, shape.width)), jnp.bfloat16)
    forward = lambda passes: jax.jit(functools.partial(passes.forward, shape))(x, weights, vectors)
    (out, saved), (expected, kept) = forward(KERNELS), forward(REFERENCE)
    assert distance(out, expected) < 1e-2
    assert distance(saved.inputs, kept.inputs) < 1e-2
    applied = jax.jit(functools.partial(KERNELS.apply, shape))(x, weights, vectors)
    np.testing.assert_array_equal(applied, out)

    backward = jax.jit(functools.partial(KERNELS.backward, shape))(gradient, weights, vectors, saved)
    same = saved._replace(normed=saved.normed[..., : shape.width])
    reference = jax.jit(functools.partial(REFERENCE.backward, shape))(gradient, weights, vectors, same)
    for made, exact in zip(backward, reference, strict=True):
        assert distance(made, exact) < 1e-2
    assert trunk_passes.tiling(shape, networks * batch) is not None
