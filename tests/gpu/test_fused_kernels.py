"""Fused networks on a real GPU: `make test-gpu`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fused_reference import REFERENCE, Kept
from kernel_cases import distance, example, from_registers, plain_order

from homing.compile import xla
from homing.networks import MLP, NetConfig, fused_passes
from homing.networks.fused_passes import KERNELS, Division, FusedShape

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "gpu" or not xla.cuda_kernels(newest=xla.HOPPER), reason="needs a Hopper GPU"
)

CASES = [
    (FusedShape(width=256, input=48, layers=4, norm=True, block=4, output=64), 15, 1024),
    (FusedShape(width=256, input=256, layers=4, norm=True, block=4, output=122), 5, 1024),
    (FusedShape(width=256, input=310, layers=16, norm=True, block=4, output=64), 3, 512),
    (FusedShape(width=256, input=48, layers=1, norm=False, block=0, output=64), 3, 256),
    (FusedShape(width=256, input=48, layers=1, norm=False, block=0, output=64), 96, 256),
    (FusedShape(width=192, input=70, layers=2, norm=True, block=0, output=256), 24, 512),
    (FusedShape(width=128, input=11, layers=8, norm=True, block=4, output=3), 2, 192),
    (FusedShape(width=64, input=11, layers=4, norm=False, block=4, output=65), 40, 512),
]
# By the rule, and each case that a division fits divided so.
DIVISIONS = [Division(1, 4), Division(2, 2), Division(1, 2, 2), Division(1, 2, 4)]
DIVIDED = [(*case, None) for case in CASES] + [
    (*CASES[i], division)
    for division in DIVISIONS
    for i in (0, 2, 6)
    if CASES[i][2] % (64 * division.groups) == 0
]
RESIDUAL = NetConfig(width=256, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16")


def jitted(call, shape, *flags):
    return jax.jit(functools.partial(call, shape, *flags))


@pytest.mark.parametrize(("shape", "networks", "batch", "division"), DIVIDED, ids=str)
def test_kernels_compute_what_their_reference_does(monkeypatch, shape, networks, batch, division):
    if division:
        monkeypatch.setattr(fused_passes, "division_of", lambda shape, networks, batch: division)
    x, weights, vectors, bias, gradient = example(shape, networks, batch)
    packed, exact = jitted(KERNELS.pack, shape)(weights), jitted(REFERENCE.pack, shape)(weights)
    for own, other in zip(packed, exact, strict=True):
        np.testing.assert_array_equal(plain_order(own), np.asarray(other, np.float32))

    out, saved = jitted(KERNELS.forward, shape, True)(x, packed, vectors, bias)
    expected, kept = jitted(REFERENCE.forward, shape, True)(x, exact, vectors, bias)
    assert distance(out, expected) < 1e-2
    np.testing.assert_array_equal(jitted(KERNELS.apply, shape)(x, packed, vectors, bias), out)
    own = Kept(from_registers(saved.normed), saved.inverse, *map(plain_order, saved[2:]))
    for name, made, other in zip(Kept._fields, own, kept, strict=True):
        if name != "inverse" or shape.norm:  # without a LayerNorm there is no deviation to keep
            assert distance(made, other) < 1e-2, name

    same = Kept(*(jnp.asarray(a, b.dtype) for a, b in zip(own, kept, strict=True)))
    dx, made = jitted(KERNELS.backward, shape, True, True)(gradient, packed, vectors, saved)
    exact_dx, exact_made = jitted(REFERENCE.backward, shape, True, True)(gradient, exact, vectors, same)
    assert distance(dx, exact_dx) < 1e-2
    assert distance(made.vectors, exact_made.vectors) < 1e-2
    for a, b in zip(*map(jax.tree.leaves, (made.weights, exact_made.weights)), strict=True):
        assert distance(a, b) < 1e-2
    alone, nothing = jitted(KERNELS.backward, shape, False, True)(gradient, packed, vectors, saved)
    assert nothing is None
    np.testing.assert_array_equal(alone, dx)
    again = jitted(KERNELS.backward, shape, True, False)(gradient, packed, vectors, saved)[1]
    jax.tree.map(np.testing.assert_array_equal, again.weights, made.weights)


@pytest.mark.parametrize("wanted", ["1", "all"], ids=["hidden layers", "whole networks"])
def test_a_hundred_updates_with_and_without_kernels_agree_and_repeat(monkeypatch, wanted):
    monkeypatch.setenv(xla.KERNELS, wanted)
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
