"""Whole-network kernels: the CUDA source on an emulated device, and the operation around it against plain layers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_emulator import emulated_call
from trunk_reference import REFERENCE

from homing.compile import cuda
from homing.networks import MLP, Member, NetConfig, Stack, trunk, trunk_passes
from homing.networks.trunk_passes import Tiling, TrunkShape

RESIDUAL = NetConfig(width=64, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16")
CONFIGS = {
    "residual": RESIDUAL,
    "two blocks": NetConfig(width=64, depth=8, layer_norm=True, residual="blocks", dtype="bfloat16"),
    "plain": NetConfig(width=128, depth=2, dtype="bfloat16"),
    "plain norm": NetConfig(width=64, depth=3, layer_norm=True, dtype="bfloat16"),
    "blocks without norm": NetConfig(width=64, depth=4, residual="blocks", dtype="bfloat16"),
}
TILINGS = [
    Tiling(
        TrunkShape(width=64, inputs=64, layers=4, norm=True, block=4), rows=16, span=16, depth=32, stages=3
    ),
    Tiling(
        TrunkShape(width=128, inputs=192, layers=8, norm=True, block=4), rows=16, span=16, depth=32, stages=3
    ),
    Tiling(
        TrunkShape(width=128, inputs=64, layers=1, norm=False, block=0), rows=32, span=16, depth=64, stages=2
    ),
    Tiling(
        TrunkShape(width=96, inputs=64, layers=4, norm=True, block=4), rows=16, span=16, depth=32, stages=2
    ),
    Tiling(
        TrunkShape(width=192, inputs=64, layers=2, norm=True, block=0), rows=64, span=32, depth=64, stages=3
    ),
    Tiling(
        TrunkShape(width=576, inputs=64, layers=1, norm=True, block=0), rows=16, span=16, depth=32, stages=3
    ),
]


def distance(a, b) -> float:
    """‖a − b‖ / ‖b‖."""
    a, b = (np.asarray(x, np.float64).ravel() for x in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# The CUDA source itself, on a CPU.


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """`cuda.call` on an emulated device."""
    return emulated_call(tmp_path_factory.mktemp("emulated"))


def example(shape: TrunkShape, networks: int, batch: int):
    rng = np.random.default_rng(sum(shape))
    rows = shape.inputs + shape.layers * shape.width
    normal = lambda *size: rng.normal(size=size)
    x = jnp.asarray(normal(networks, batch, shape.inputs), jnp.bfloat16)
    weights = jnp.asarray(normal(networks, rows, shape.width) / np.sqrt(shape.width), jnp.bfloat16)
    vectors = normal(networks, 1 + shape.layers, 3, shape.width) * 0.5 + np.array([0, 1, 0])[:, None]
    return x, weights, jnp.asarray(vectors, jnp.float32)


def padded(array):
    """Rows as the kernels keep them, with NaN where nothing may be read."""
    return jnp.pad(array, [(0, 0)] * 3 + [(0, trunk_passes.PADDING)], constant_values=jnp.nan)


@pytest.mark.parametrize("tiles", TILINGS, ids=lambda tiles: f"{tiles.shape.width}-{tiles.rows}")
def test_the_kernels_compute_what_their_reference_does(emulated, tiles):
    shape = tiles.shape
    networks, batch = (2, 2 * tiles.rows) if tiles.rows * shape.width < 5000 else (1, tiles.rows)
    x, weights, vectors = example(shape, networks, batch)
    out, saved = REFERENCE.forward(shape, x, weights, vectors)
    launch = cuda.Launch((batch // tiles.rows, networks, 1), tiles.threads, tiles.shared_bytes)
    run = lambda entry, outputs, *given: emulated(
        cuda.kernel("homing.networks", "trunk.cu", entry, tiles.defines(entry)), launch, outputs, *given
    )
    expected = out, saved.inputs, padded(saved.normed), saved.inverse
    made = run("trunk_forward", expected, x, trunk_passes._row_tiles(weights), vectors)
    for own, exact in zip(made, (out, *saved), strict=True):
        if own.ndim == 3 and not shape.norm and own.dtype == np.float32:
            continue  # without a LayerNorm there is no deviation to keep
        assert distance(own[..., : exact.shape[-1]], exact) < 2e-3

    gradient = jnp.asarray(np.random.default_rng(1).normal(size=out.shape), jnp.bfloat16)
    first, others, d_vectors = REFERENCE.backward(shape, gradient, weights, vectors, saved)
    sums = jax.ShapeDtypeStruct((networks, batch // tiles.span, *d_vectors.shape[1:]), jnp.float32)
    columns = trunk_passes._column_tiles(weights[:, shape.inputs :], shape, tiles.depth)
    given = gradient, columns, vectors, padded(saved.normed), saved.inverse
    made = run("trunk_backward", (first, others, sums), *given)
    assert distance(made[0], first) < 2e-3
    assert distance(made[1], others) < 2e-3
    assert distance(made[2].sum(axis=1), d_vectors) < 2e-3


# The operation, with the reference in place of the kernels.


@pytest.fixture
def fused(monkeypatch):
    """Networks use the trunk's passes, as on a GPU; how often they were asked for."""
    asked = []
    monkeypatch.setattr(trunk, "passes", lambda shape: asked.append(shape) or REFERENCE)
    return asked


def loss_of(module: MLP):
    def loss(params, x):
        out = module.apply({"params": params}, x)
        return jnp.sum(jnp.sin(out) * jnp.arange(out.shape[-1])), out

    return jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)


def in_float32(config: NetConfig) -> NetConfig:
    return dataclasses.replace(config, dtype="float32")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_fused_network_is_as_exact_as_its_layers_one_by_one(name, fused, monkeypatch):
    config = CONFIGS[name]
    x = jax.random.normal(jax.random.key(1), (130, 11), jnp.float32)  # neither is a multiple of a tile
    params = jax.jit(MLP(config, 5).init)(jax.random.key(0), x)["params"]
    params = jax.tree.map(lambda p: p + 0.1 * jnp.sin(jnp.arange(p.size)).reshape(p.shape), params)
    (_, out), grads = jax.jit(loss_of(MLP(config, 5)))(params, x)
    assert fused, "the network did not use the trunk"
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


def test_members_and_seeds_are_computed_as_each_alone(fused):
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
        alone = of_one(*own)
        of_seed = jax.tree.map(lambda leaf, seed=seed: leaf[seed], together)
        for x, y in zip(jax.tree.leaves(of_seed), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


def test_a_batch_of_batches_is_rows_of_one(fused):
    module = MLP(RESIDUAL, 3)
    x = jax.random.normal(jax.random.key(1), (4, 128, 7), jnp.float32)
    params = jax.jit(module.init)(jax.random.key(0), x)
    whole = jax.jit(module.apply)(params, x)
    mapped = jax.jit(jax.vmap(module.apply, in_axes=(None, 0)))(params, x)
    np.testing.assert_array_equal(whole, mapped)


def test_a_nan_in_one_seed_stays_there(fused):
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
def test_other_networks_are_left_to_the_compiler(config, rows, fused):
    x = jnp.ones((rows, 7), jnp.float32)
    MLP(config, 3).apply(MLP(config, 3).init(jax.random.key(0), x), x)
    assert not fused


def test_widths_and_shared_memory_that_a_card_does_not_have(monkeypatch):
    monkeypatch.setattr(trunk.xla, "cuda_kernels", lambda asked_for: not asked_for)
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    wide = TrunkShape(width=1024, inputs=64, layers=4, norm=True, block=4)
    assert trunk.passes(wide) is None, "not seen right on a card"
    assert trunk.passes(wide._replace(width=512)) is trunk.KERNELS
    monkeypatch.setattr(trunk.xla, "cuda_kernels", lambda asked_for: True)
    assert trunk.passes(wide) is trunk.KERNELS
    assert trunk.passes(wide._replace(width=1088)) is None
    monkeypatch.setattr(trunk.xla, "cuda_kernels", lambda asked_for: not asked_for)
    assert trunk.passes(wide._replace(width=80)) is None
    assert trunk.passes(wide._replace(width=224)) is trunk.KERNELS
    assert trunk.passes(wide._replace(layers=1)) is None, "shallow networks gain nothing"
    monkeypatch.setattr(cuda, "capability", lambda: (8, 9))
    assert trunk.passes(wide) is None
    assert trunk.passes(wide._replace(width=256)) is trunk.KERNELS
