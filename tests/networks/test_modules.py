"""Networks: sizes, initial law, LayerNorm, residual blocks, one gradient step."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.agents import CRLConfig, make_agent
from homing.errors import ConfigError, UnknownNameError
from homing.networks import ADAM, MLP, Fit, Member, NetConfig, Stack, adam, depth_of

X = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)), jnp.float32)


def params_of(config, outputs=3):
    return MLP(config, outputs).init(jax.random.key(0), X)["params"]


def dense_kernels(params):
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    return [leaf for path, leaf in flat if path[-1].key == "kernel"]


def test_weights_are_uniform_within_one_over_root_fan_in_and_biases_zero():
    params = params_of(NetConfig(width=200, depth=3), outputs=50)
    kernels = dense_kernels(params)
    assert len(kernels) == 4
    for kernel in kernels:
        bound = 1 / np.sqrt(kernel.shape[0])
        assert 0.97 * bound < float(jnp.abs(kernel).max()) <= bound
        assert float(kernel.std()) == pytest.approx(bound / np.sqrt(3), rel=0.06)
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    assert all(bool((leaf == 0).all()) for path, leaf in flat if path[-1].key == "bias")


def test_plain_network_equals_matrix_products():
    config = NetConfig(width=4, depth=2, activation="relu")
    params = params_of(config)
    layers = [params["Layer_0"]["Dense_0"], params["Layer_1"]["Dense_0"]]
    x = np.asarray(X)
    for layer in layers:
        x = np.maximum(x @ layer["kernel"] + layer["bias"], 0)
    expected = x @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(MLP(config, 3).apply({"params": params}, X), expected, rtol=1e-5, atol=1e-6)


def test_layer_norm_stands_before_every_activation():
    plain = params_of(NetConfig(width=4, depth=3))
    normed = params_of(NetConfig(width=4, depth=3, layer_norm=True))
    assert not any("LayerNorm_0" in plain[f"Layer_{i}"] for i in range(3))
    assert all("LayerNorm_0" in normed[f"Layer_{i}"] for i in range(3))


def test_residual_blocks_equal_a_loop():
    config = NetConfig(width=8, depth=24, layer_norm=True, residual="blocks", activation="tanh")
    params = params_of(config)

    def layer(p, x):
        x = x @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return np.tanh(x * p["LayerNorm_0"]["scale"] + p["LayerNorm_0"]["bias"])

    x = layer(params["stem"], np.asarray(X))
    for b in range(6):
        block = jax.tree.map(lambda leaf, b=b: np.asarray(leaf[b]), params["blocks"])
        y = x
        for i in range(4):
            y = layer(block[f"Layer_{i}"], y)
        x = x + y
    expected = x @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(MLP(config, 3).apply({"params": params}, X), expected, rtol=1e-3, atol=1e-4)
    kernels = np.asarray(params["blocks"]["Layer_0"]["Dense_0"]["kernel"])
    assert not np.allclose(kernels[0], kernels[1]), "blocks must start from different weights"


def test_a_thousand_layers_have_finite_gradients_and_few_instructions():
    def lines(depth):
        module = MLP(NetConfig(width=8, depth=depth, layer_norm=True, residual="blocks"), 3)
        params = jax.eval_shape(module.init, jax.random.key(0), X)["params"]
        grad = jax.jit(jax.grad(lambda p: module.apply({"params": p}, X).sum()))
        return module, grad, grad.lower(params).as_text().count("\n")

    module, grad, deep = lines(1024)
    assert deep <= 1.1 * lines(68)[2], "blocks beyond 64 layers are traced once"
    assert deep < lines(64)[2]
    grads = grad(module.init(jax.random.key(0), X)["params"])
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grads))


def test_bfloat16_arithmetic_keeps_float32_parameters_and_outputs():
    config = NetConfig(width=32, depth=2, layer_norm=True, dtype="bfloat16")
    params = params_of(config)
    out = MLP(config, 3).apply({"params": params}, X)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    assert out.dtype == jnp.float32
    exact = MLP(NetConfig(width=32, depth=2, layer_norm=True), 3).apply({"params": params}, X)
    assert not np.array_equal(out, exact)
    np.testing.assert_allclose(out, exact, atol=0.05)


def test_the_deepest_network_counts():
    spec = SimpleNamespace(state_dim=3, action_dim=2, goal_dim=1)
    deep = CRLConfig(actor_net=NetConfig(depth=16, residual="blocks"), normalise_observations=True)
    assert depth_of(make_agent(deep, spec)) == 16
    assert depth_of(make_agent(CRLConfig(), spec)) == 2
    assert depth_of(SimpleNamespace(config=None)) == depth_of(object()) == 0


def test_wrong_settings_are_answered_with_right_ones():
    with pytest.raises(ConfigError, match="nearest: 8"):
        NetConfig(depth=7, residual="blocks")
    with pytest.raises(UnknownNameError, match="swish"):
        NetConfig(activation="swisch")


def test_a_step_of_adam_moves_each_leaf_by_its_rate():
    params = {"a": jnp.full((2, 3), 2.0), "b": jnp.float32(-1.0)}
    fit = Fit(params=params, opt_state=ADAM.init(params))
    rates = {"a": jnp.asarray([1e-2, 1e-3]), "b": jnp.float32(0.1)}
    new, metrics = adam(fit, lambda p: (jnp.sum(p["a"] ** 2) + p["b"] ** 2, {"b": p["b"]}), rates)
    np.testing.assert_allclose(new.params["a"], [[1.99] * 3, [1.999] * 3], rtol=1e-6)
    np.testing.assert_allclose(new.params["b"], -0.9, rtol=1e-6)
    assert float(metrics["b"]) == -1
    assert int(new.opt_state.count) == 1


def test_members_of_a_stack_compute_what_they_would_alone():
    config, other = NetConfig(width=8, layer_norm=True), NetConfig(width=6)
    stack = Stack({"a": Member(config, 5, 3), "b": Member(config, 2, 4), "c": Member(other, 5, 1)})
    params = stack.init(jax.random.key(0))
    assert {group: len(jax.tree.leaves(p)[0]) for group, p in params.items()} == {"a_b": 2, "c": 1}
    inputs = {"c": X, "a": X + 1, "b": X[:, :2]}
    together = dict(zip(inputs, stack(params, **inputs), strict=True))
    for name, x in inputs.items():
        member = stack.members[name]
        group = next(group for group, names in stack.groups.items() if name in names)
        place = stack.groups[group].index(name)
        own = jax.tree.map(lambda leaf, place=place: leaf[place], params[group])
        own["Layer_0"]["Dense_0"]["kernel"] = own["Layer_0"]["Dense_0"]["kernel"][: member.inputs]
        own["head"] = {k: leaf[..., : member.outputs] for k, leaf in own["head"].items()}
        expected = MLP(member.config, member.outputs).apply({"params": own}, x)
        assert together[name].shape == (len(X), member.outputs)
        np.testing.assert_allclose(together[name], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(stack(params, **{name: x})[0], expected, rtol=1e-5, atol=1e-6)


def test_what_fills_up_a_stack_stays_zero_and_weights_keep_their_law():
    config = NetConfig(width=64, depth=1)
    stack = Stack({"wide": Member(config, 50, 40), "narrow": Member(config, 3, 2)})
    params = stack.init(jax.random.key(0))
    fit = Fit(params=params, opt_state=ADAM.init(params))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(16, 50)), jnp.float32)

    def loss(params):
        wide, narrow = stack(params, wide=x, narrow=x[:, :3])
        return jnp.mean(wide**2) + jnp.mean(narrow**2), {}

    for _ in range(3):
        fit, _ = adam(fit, loss, stack.rates(wide=1e-2, narrow=1e-3))
    kernel = np.asarray(fit.params["wide_narrow"]["Layer_0"]["Dense_0"]["kernel"])
    assert not kernel[1, 3:].any()
    assert not np.asarray(fit.params["wide_narrow"]["head"]["kernel"])[1, :, 2:].any()
    first = np.asarray(params["wide_narrow"]["Layer_0"]["Dense_0"]["kernel"])
    assert 0.9 / np.sqrt(3) < np.abs(first[1]).max() <= 1 / np.sqrt(3)
    assert 0.9 / np.sqrt(50) < np.abs(first[0]).max() <= 1 / np.sqrt(50)
    assert np.abs(kernel - first)[0].max() == pytest.approx(3e-2, rel=0.2)
    assert np.abs(kernel - first)[1].max() == pytest.approx(3e-3, rel=0.2)
