"""Networks by kernels of our own, with their references in JAX in place of the kernels, against plain layers."""

import dataclasses
import functools

import fused_reference
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import trunk_reference
from kernel_cases import distance, normal

from homing.networks import MLP, Member, NetConfig, Stack, fused, trunk

RESIDUAL = NetConfig(width=64, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16")
CONFIGS = {
    "residual": RESIDUAL,
    "two blocks": dataclasses.replace(RESIDUAL, depth=8),
    "plain": NetConfig(width=128, depth=2, dtype="bfloat16"),
    "plain norm": NetConfig(width=64, depth=3, layer_norm=True, dtype="bfloat16"),
    "blocks without norm": dataclasses.replace(RESIDUAL, layer_norm=False),
}
OPERATIONS = {"hidden layers": (trunk, trunk_reference), "whole network": (fused, fused_reference)}


@pytest.fixture(params=OPERATIONS)
def asked(request, monkeypatch):
    """Networks are one operation, as on a GPU; the shapes that kernels were asked for."""
    module, reference = OPERATIONS[request.param]
    shapes = []
    monkeypatch.setattr(module, "passes", lambda shape, *rows: shapes.append(shape) or reference.REFERENCE)
    return shapes


def in_float32(config: NetConfig) -> NetConfig:
    return dataclasses.replace(config, dtype="float32")


def gradients(config: NetConfig):
    """Output and gradients of a network with these settings, of parameters and input."""
    module = MLP(config, 5)

    def loss(params, x):
        out = module.apply({"params": params}, x)
        return jnp.sum(jnp.sin(out) * jnp.arange(out.shape[-1])), out

    def run(params, x):
        (_, out), grads = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)(params, x)
        return out, grads

    return jax.jit(run)


@functools.cache
def parameters(config: NetConfig, outputs: int, rows: int, inputs: int):
    return jax.jit(MLP(config, outputs).init)(jax.random.key(0), jnp.zeros((rows, inputs), jnp.float32))


@functools.cache
def one_by_one(name: str):
    """Parameters and input, then output and gradients as XLA computes the layers, in bfloat16 and in float32."""
    config, x = CONFIGS[name], normal(130, 11)  # neither is a multiple of a tile
    params = jax.tree.map(
        lambda p: p + 0.1 * np.sin(np.arange(p.size, dtype=np.float32)).reshape(p.shape),
        jax.tree.map(np.asarray, parameters(config, 5, 130, 11)["params"]),
    )
    with pytest.MonkeyPatch.context() as without:
        for module, _ in OPERATIONS.values():
            without.setattr(module, "passes", lambda shape, *rows: None)
        return (params, x), gradients(config)(params, x), gradients(in_float32(config))(params, x)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_network_is_as_exact_as_its_layers_one_by_one(name, asked):
    given, (layers_out, layers_grads), (exact_out, exact_grads) = one_by_one(name)
    out, grads = gradients(CONFIGS[name])(*given)
    assert asked, "the network was computed layer by layer"
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


def test_members_and_seeds_are_computed_as_each_alone(asked):
    stack = Stack({"a": Member(RESIDUAL, 9, 5), "b": Member(RESIDUAL, 4, 3)})
    params = jax.jit(lambda key: jax.vmap(stack.init)(jax.random.split(key, 3)))(jax.random.key(3))
    given = jax.tree.map(np.asarray, params), normal(3, 128, 9), normal(3, 128, 4)

    def loss(params, a, b):
        out_a, out_b = stack(params, a=a, b=b)
        return jnp.sum(out_a**2) + jnp.sum(jnp.sin(out_b))

    grads = jax.grad(loss, argnums=(0, 1, 2))
    together, of_one = jax.tree.map(np.asarray, jax.jit(jax.vmap(grads))(*given)), jax.jit(grads)
    assert asked
    for seed in range(3):
        own, of_seed = (jax.tree.map(lambda leaf, seed=seed: leaf[seed], tree) for tree in (given, together))
        for x, y in zip(jax.tree.leaves(of_seed), jax.tree.leaves(of_one(*own)), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-3)


def test_a_batch_of_batches_is_rows_of_one(asked):
    module, x, params = MLP(RESIDUAL, 3), normal(4, 128, 7), parameters(RESIDUAL, 3, 128, 7)
    mapped = jax.jit(jax.vmap(module.apply, in_axes=(None, 0)))(params, x)
    np.testing.assert_array_equal(jax.jit(module.apply)(params, x), mapped)
    assert asked


def test_a_nan_in_one_seed_stays_there(asked):
    module, x = MLP(RESIDUAL, 3), normal(2, 128, 7)
    params = jax.tree.map(lambda p: np.stack([p, p]), parameters(RESIDUAL, 3, 128, 7))
    x[0, 5, 2] = np.nan
    grad = jax.vmap(jax.grad(lambda p, x: jnp.sum(module.apply(p, x) ** 2)))
    for leaf in map(np.asarray, jax.tree.leaves(jax.jit(grad)(params, x))):
        assert not np.isfinite(leaf[0]).all()
        assert np.isfinite(leaf[1]).all()
    assert asked


@pytest.mark.parametrize(
    ("config", "rows"),
    [
        (RESIDUAL, 64),  # too few rows
        (in_float32(RESIDUAL), 128),
        (dataclasses.replace(RESIDUAL, activation="relu"), 128),
    ],
)
def test_other_networks_are_left_to_the_compiler(config, rows, asked):
    x = jnp.zeros((rows, 7), jnp.float32)
    jax.eval_shape(lambda key: MLP(config, 3).init_with_output(key, x)[0], jax.random.key(0))
    jax.eval_shape(MLP(config, 3).apply, parameters(config, 3, rows, 7), x)
    assert not asked


def test_only_gradients_that_are_asked_for_are_made(monkeypatch):
    asked, reference = [], fused_reference.REFERENCE

    def backward(shape, weights, d_input, *given):
        asked.append((weights, d_input))
        return reference.backward(shape, weights, d_input, *given)

    monkeypatch.setattr(fused, "passes", lambda shape, rows: reference._replace(backward=backward))
    module, x, params = MLP(RESIDUAL, 3), normal(128, 7), parameters(RESIDUAL, 3, 128, 7)
    loss = lambda params, x: jnp.sum(module.apply(params, x) ** 2)
    both = jax.jit(jax.grad(loss, argnums=(0, 1)))(params, x)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(jax.grad(loss))(params, x), both[0])
    of_input = jax.grad(functools.partial(loss, params))
    np.testing.assert_array_equal(jax.jit(of_input)(x), both[1])
    stopped = jax.grad(lambda x: loss(jax.lax.stop_gradient(params), x))
    np.testing.assert_array_equal(jax.jit(stopped)(x), both[1])
    assert asked == [(True, True), (True, False), (False, True), (False, True)]
