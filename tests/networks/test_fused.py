"""Fused networks: the CUDA source on an emulated device, and the operation around it against plain layers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fused_cases import distance, example, from_registers, plain_order
from fused_reference import REFERENCE, Kept
from kernel_emulator import emulated_call

from homing.compile import cuda
from homing.networks import MLP, Member, NetConfig, Stack, fused, fused_passes
from homing.networks.fused_passes import KERNELS, FusedShape, Saved

RESIDUAL = NetConfig(width=64, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16")
CONFIGS = {
    "residual": RESIDUAL,
    "two blocks": dataclasses.replace(RESIDUAL, depth=8),
    "plain": NetConfig(width=128, depth=2, dtype="bfloat16"),
    "plain norm": NetConfig(width=64, depth=3, layer_norm=True, dtype="bfloat16"),
    "blocks without norm": dataclasses.replace(RESIDUAL, layer_norm=False),
}
# Shape, networks, batch, warpgroups of a block.
CASES = [
    (FusedShape(width=64, input=11, layers=4, norm=True, block=4, output=5), 2, 128, 1),
    (FusedShape(width=64, input=70, layers=8, norm=True, block=4, output=65), 1, 256, 2),
    (FusedShape(width=128, input=64, layers=1, norm=False, block=0, output=3), 1, 128, 2),
    (FusedShape(width=192, input=200, layers=2, norm=True, block=0, output=161), 1, 128, 2),
    (FusedShape(width=256, input=300, layers=4, norm=True, block=4, output=64), 1, 128, 2),
]


# The CUDA source itself, on a CPU.


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """`cuda.call` on an emulated device."""
    return emulated_call(tmp_path_factory.mktemp("emulated"))


@pytest.fixture
def hopper(monkeypatch, emulated):
    """Kernels are launched on an emulated card."""
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    monkeypatch.setattr(cuda, "call", emulated)
    return monkeypatch


@pytest.mark.parametrize(("shape", "networks", "batch", "groups"), CASES, ids=lambda value: str(value))
def test_the_kernels_compute_what_their_reference_does(hopper, shape, networks, batch, groups):
    hopper.setattr(fused_passes, "groups_of", lambda networks, batch, weights: groups)
    x, weights, vectors, bias, gradient = example(shape, networks, batch)
    packed, exact = KERNELS.pack(shape, weights), REFERENCE.pack(shape, weights)
    for own, other in zip(packed, exact, strict=True):
        np.testing.assert_array_equal(plain_order(own), other.astype(jnp.float32))

    out, saved = KERNELS.forward(shape, True, x, packed, vectors, bias)
    expected, kept = REFERENCE.forward(shape, True, x, exact, vectors, bias)
    np.testing.assert_array_equal(KERNELS.apply(shape, x, packed, vectors, bias), out)
    own = Kept(from_registers(saved.normed), saved.inverse, *map(plain_order, saved[2:]))
    assert distance(out, expected) < 2e-3
    for name, made, other in zip(Kept._fields, own, kept, strict=True):
        if name != "inverse" or shape.norm:  # without a LayerNorm there is no deviation to keep
            assert distance(made, other) < 2e-3, name

    same = Kept(*(jnp.asarray(a, b.dtype) for a, b in zip(own, kept, strict=True)))
    dx, made = KERNELS.backward(shape, True, True, gradient, packed, vectors, saved)
    exact_dx, exact_made = REFERENCE.backward(shape, True, True, gradient, exact, vectors, same)
    assert distance(dx, exact_dx) < 2e-3
    assert distance(made.vectors, exact_made.vectors) < 2e-3
    for a, b in zip(*map(jax.tree.leaves, (made.weights, exact_made.weights)), strict=True):
        assert a.shape == b.shape
        assert distance(a, b) < 2e-3

    alone, nothing = KERNELS.backward(
        shape, False, True, gradient, packed, vectors, Saved(saved.normed, saved.inverse)
    )
    assert nothing is None
    np.testing.assert_array_equal(alone, dx)
    nothing, again = KERNELS.backward(shape, True, False, gradient, packed, vectors, saved)
    assert nothing is None
    jax.tree.map(np.testing.assert_array_equal, again.weights, made.weights)


# The operation, with the reference in place of the kernels.


@pytest.fixture
def whole(monkeypatch):
    """Networks use fused passes, as on a GPU; the shapes they were asked for."""
    asked = []
    monkeypatch.setattr(fused, "passes", lambda shape: asked.append(shape) or REFERENCE)
    return asked


def loss_of(module: MLP):
    def loss(params, x):
        out = module.apply({"params": params}, x)
        return jnp.sum(jnp.sin(out) * jnp.arange(out.shape[-1])), out

    return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)


def in_float32(config: NetConfig) -> NetConfig:
    return dataclasses.replace(config, dtype="float32")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_fused_network_is_as_exact_as_its_layers_one_by_one(name, whole, monkeypatch):
    config = CONFIGS[name]
    x = jax.random.normal(jax.random.key(1), (130, 11), jnp.float32)  # neither is a multiple of a tile
    params = jax.jit(MLP(config, 5).init)(jax.random.key(0), x)["params"]
    params = jax.tree.map(lambda p: p + 0.1 * jnp.sin(jnp.arange(p.size)).reshape(p.shape), params)
    (_, out), grads = jax.jit(loss_of(MLP(config, 5)))(params, x)
    assert whole, "the network was not fused"
    monkeypatch.undo()
    (_, layers_out), layers_grads = jax.jit(loss_of(MLP(config, 5)))(params, x)
    (_, exact_out), exact_grads = jax.jit(loss_of(MLP(in_float32(config), 5)))(params, x)
    assert distance(out, exact_out) < max(0.02, 1.5 * distance(layers_out, exact_out))
    jax.tree.map_with_path(
        lambda path, made, layers, exact: _as_exact(str(path), made, layers, exact),
        grads,
        layers_grads,
        exact_grads,
    )


def _as_exact(path: str, made, layers, exact) -> None:
    assert made.shape == exact.shape and made.dtype == exact.dtype
    assert distance(made, exact) < max(0.03, 1.5 * distance(layers, exact)), path


def test_members_and_seeds_are_computed_as_each_alone(whole):
    stack = Stack({"a": Member(RESIDUAL, 9, 5), "b": Member(RESIDUAL, 4, 3)})
    keys = jax.random.split(jax.random.key(3), 3)
    params = jax.jit(jax.vmap(stack.init))(keys)
    a = jax.random.normal(jax.random.key(1), (3, 128, 9), jnp.float32)
    b = jax.random.normal(jax.random.key(2), (3, 128, 4), jnp.float32)

    def loss(params, a, b):
        out_a, out_b = stack(params, a=a, b=b)
        return jnp.sum(out_a**2) + jnp.sum(jnp.sin(out_b))

    gradients = jax.grad(loss, argnums=(0, 1, 2))
    together, of_one = jax.jit(jax.vmap(gradients))(params, a, b), jax.jit(gradients)
    for seed in range(3):
        own = jax.tree.map(lambda leaf, seed=seed: leaf[seed], (params, a, b))
        of_seed = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        for x, y in zip(jax.tree.leaves(of_seed), jax.tree.leaves(of_one(*own)), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


def test_only_gradients_that_are_asked_for_are_made(monkeypatch):
    asked = []

    def backward(shape, weights, d_input, *given):
        asked.append((weights, d_input))
        return REFERENCE.backward(shape, weights, d_input, *given)

    monkeypatch.setattr(fused, "passes", lambda shape: REFERENCE._replace(backward=backward))
    module = MLP(RESIDUAL, 3)
    x = jax.random.normal(jax.random.key(1), (128, 7), jnp.float32)
    params = jax.jit(module.init)(jax.random.key(0), x)
    loss = lambda params, x: jnp.sum(module.apply(params, x) ** 2)
    both = jax.grad(loss, argnums=(0, 1))(params, x)
    jax.tree.map(np.testing.assert_array_equal, jax.grad(loss)(params, x), both[0])
    np.testing.assert_array_equal(jax.grad(functools.partial(loss, params))(x), both[1])
    np.testing.assert_array_equal(jax.grad(lambda x: loss(jax.lax.stop_gradient(params), x))(x), both[1])
    assert asked == [(True, True), (True, False), (False, True), (False, True)]


def test_a_batch_of_batches_is_rows_of_one(whole):
    module = MLP(RESIDUAL, 3)
    x = jax.random.normal(jax.random.key(1), (4, 128, 7), jnp.float32)
    params = jax.jit(module.init)(jax.random.key(0), x)
    mapped = jax.jit(jax.vmap(module.apply, in_axes=(None, 0)))(params, x)
    np.testing.assert_array_equal(jax.jit(module.apply)(params, x), mapped)


def test_a_nan_in_one_seed_stays_there(whole):
    module = MLP(RESIDUAL, 3)
    x = jax.random.normal(jax.random.key(1), (2, 128, 7), jnp.float32)
    keys = jax.random.split(jax.random.key(0), 2)
    params = jax.jit(jax.vmap(lambda key: module.init(key, x[0])))(keys)
    x = x.at[0, 5, 2].set(jnp.nan)
    grads = jax.jit(jax.vmap(jax.grad(lambda p, x: jnp.sum(module.apply(p, x) ** 2))))(params, x)
    for leaf in jax.tree.leaves(grads):
        assert not np.isfinite(leaf[0]).all()
        assert np.isfinite(leaf[1]).all()


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (RESIDUAL, 64),  # too few rows
        (in_float32(RESIDUAL), 128),
        (dataclasses.replace(RESIDUAL, activation="relu"), 128),
    ],
)
def test_other_networks_are_left_to_the_compiler(config, rows, whole):
    x = jnp.ones((rows, 7), jnp.float32)
    MLP(config, 3).apply(MLP(config, 3).init(jax.random.key(0), x), x)
    assert not whole


def test_which_networks_and_cards_there_are_kernels_for(monkeypatch):
    deep = FusedShape(width=256, input=45, layers=4, norm=True, block=4, output=64)
    assert fused.passes(deep) is None, "no GPU"
    monkeypatch.setattr(cuda, "library", lambda: "NVRTC")
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    monkeypatch.setattr(fused.xla, "_allowed", lambda asked_for=False: not asked_for)
    assert fused.passes(deep) is None, "they must be asked for"
    monkeypatch.setattr(fused.xla, "_allowed", lambda asked_for=False: True)
    assert fused.passes(deep) is KERNELS
    assert fused.passes(deep._replace(layers=1, block=0)) is KERNELS
    assert fused.passes(deep._replace(output=256)) is KERNELS
    assert fused.passes(deep._replace(output=257)) is None
    assert fused.passes(deep._replace(width=224)) is None
    assert fused.passes(deep._replace(layers=0)) is None
    for other in ((8, 9), (10, 0)):
        monkeypatch.setattr(cuda, "capability", lambda other=other: other)
        assert fused.passes(deep) is None, "the matrix units are those of Hopper"


def test_every_shape_fits_into_shared_memory(monkeypatch):
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    for width in fused_passes.WIDTHS:
        for output in (1, 256):
            shape = FusedShape(width, 45, 4, True, 4, output)
            for tiles in (
                fused_passes.forward_tiling(shape, 2),
                fused_passes.backward_tiling(shape, 2, True),
                fused_passes.weights_tiling(shape, 2),
            ):
                assert tiles.shared_bytes <= cuda.shared_memory()
                assert tiles.stages >= max(width, shape.outputs) // 64, "a turn's tiles"
