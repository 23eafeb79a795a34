"""Networks: sizes, initial law, LayerNorm, residual blocks, one gradient step."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.agents import CRLConfig, make_agent
from homing.errors import ConfigError, UnknownNameError
from homing.networks import ADAM, MLP, Fit, Member, NetConfig, Stack, adam, depth_of

X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def params_of(config, outputs=3):
    params = jax.jit(MLP(config, outputs).init)(jax.random.key(0), X)["params"]
    return jax.tree.map(np.asarray, params)


def shapes_of(config, outputs=3):
    return jax.eval_shape(MLP(config, outputs).init, jax.random.key(0), X)["params"]


def any_params(shapes):
    """About as large as initial ones, with biases that are not zero."""
    rng = np.random.default_rng(1)
    size = lambda x: np.sqrt(x.shape[-2:][0])
    return jax.tree.map(lambda x: (rng.uniform(-1, 1, x.shape) / size(x)).astype(x.dtype), shapes)


def outputs_of(config, params):
    return jax.jit(MLP(config, 3).apply)({"params": params}, X)


def dense_kernels(params):
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    return [leaf for path, leaf in flat if path[-1].key == "kernel"]


def test_weights_are_uniform_within_one_over_root_fan_in_and_biases_zero():
    params = params_of(NetConfig(width=200, depth=3), outputs=50)
    kernels = dense_kernels(params)
    assert len(kernels) == 4
    for kernel in kernels:
        bound = 1 / np.sqrt(kernel.shape[0])
        assert 0.97 * bound < np.abs(kernel).max() <= bound
        assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.06)
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    assert all((leaf == 0).all() for path, leaf in flat if path[-1].key == "bias")


def test_plain_network_equals_matrix_products():
    config = NetConfig(width=4, depth=2, activation="relu")
    params = any_params(shapes_of(config))
    layers = [params["Layer_0"]["Dense_0"], params["Layer_1"]["Dense_0"]]
    x = X
    for layer in layers:
        x = np.maximum(x @ layer["kernel"] + layer["bias"], 0)
    expected = x @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(outputs_of(config, params), expected, rtol=1e-5, atol=1e-6)


def test_layer_norm_stands_before_every_activation():
    plain = shapes_of(NetConfig(width=4, depth=3))
    normed = shapes_of(NetConfig(width=4, depth=3, layer_norm=True))
    assert not any("LayerNorm_0" in plain[f"Layer_{i}"] for i in range(3))
    assert all("LayerNorm_0" in normed[f"Layer_{i}"] for i in range(3))


def test_residual_blocks_equal_a_loop():
    config = NetConfig(width=8, depth=24, layer_norm=True, residual="blocks", activation="tanh")
    params = any_params(shapes_of(config))

    def layer(p, x):
        x = x @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return np.tanh(x * p["LayerNorm_0"]["scale"] + p["LayerNorm_0"]["bias"])

    x = layer(params["stem"], X)
    for b in range(6):
        block = jax.tree.map(lambda leaf, b=b: leaf[b], params["blocks"])
        y = x
        for i in range(4):
            y = layer(block[f"Layer_{i}"], y)
        x = x + y
    expected = x @ params["head"]["kernel"] + params["head"]["bias"]
    np.testing.assert_allclose(outputs_of(config, params), expected, rtol=1e-3, atol=1e-4)


def test_residual_blocks_start_from_different_weights():
    params = params_of(NetConfig(width=8, depth=8, layer_norm=True, residual="blocks"))
    kernels = params["blocks"]["Layer_0"]["Dense_0"]["kernel"]
    assert not np.allclose(kernels[0], kernels[1])


def test_a_thousand_layers_have_finite_gradients_and_few_instructions():
    def lines(depth):
        module = MLP(NetConfig(width=8, depth=depth, layer_norm=True, residual="blocks"), 3)
        params = jax.eval_shape(module.init, jax.random.key(0), X)["params"]
        grad = jax.jit(jax.grad(lambda p: module.apply({"params": p}, X).sum()))
        return module, grad, grad.lower(params).as_text().count("\n")

    module, grad, deep = lines(1024)
    assert deep <= 1.1 * lines(68)[2], "blocks beyond 64 layers are traced once"
    assert deep < lines(64)[2]
    grads = grad(jax.jit(module.init)(jax.random.key(0), X)["params"])
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def test_bfloat16_arithmetic_keeps_float32_parameters_and_outputs():
    config = NetConfig(width=32, depth=2, layer_norm=True, dtype="bfloat16")
    params = params_of(config)
    out = outputs_of(config, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    assert out.dtype == jnp.float32
    exact = outputs_of(NetConfig(width=32, depth=2, layer_norm=True), params)
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
    @jax.jit
    def step():
        params = {"a": jnp.full((2, 3), 2.0), "b": jnp.float32(-1.0)}
        fit = Fit(params=params, opt_state=ADAM.init(params))
        rates = {"a": jnp.asarray([1e-2, 1e-3]), "b": jnp.float32(0.1)}
        return adam(fit, lambda p: (jnp.sum(p["a"] ** 2) + p["b"] ** 2, {"b": p["b"]}), rates)

    new, metrics = step()
    np.testing.assert_allclose(new.params["a"], [[1.99] * 3, [1.999] * 3], rtol=1e-6)
    np.testing.assert_allclose(new.params["b"], -0.9, rtol=1e-6)
    assert float(metrics["b"]) == -1
    assert int(new.opt_state.count) == 1


def test_members_of_a_stack_compute_what_they_would_alone():
    config, other = NetConfig(width=8, layer_norm=True), NetConfig(width=6)
    stack = Stack({"a": Member(config, 5, 3), "b": Member(config, 2, 4), "c": Member(other, 5, 1)})
    params = any_params(jax.eval_shape(stack.init, jax.random.key(0)))
    assert {group: len(jax.tree.leaves(p)[0]) for group, p in params.items()} == {"a_b": 2, "c": 1}
    inputs = {"c": X, "a": X + 1, "b": X[:, :2]}

    def by_itself(params, name):
        member = stack.members[name]
        group = next(group for group, names in stack.groups.items() if name in names)
        place = stack.groups[group].index(name)
        own = jax.tree.map(lambda leaf: leaf[place], params[group])
        own["Layer_0"]["Dense_0"]["kernel"] = own["Layer_0"]["Dense_0"]["kernel"][: member.inputs]
        own["head"] = {k: leaf[..., : member.outputs] for k, leaf in own["head"].items()}
        return MLP(member.config, member.outputs).apply({"params": own}, inputs[name])

    @jax.jit
    def found(params):
        together = dict(zip(inputs, stack(params, **inputs), strict=True))
        one = {name: stack(params, **{name: x})[0] for name, x in inputs.items()}
        return together, one, {name: by_itself(params, name) for name in inputs}

    together, one, expected = found(params)
    for name in inputs:
        assert together[name].shape == (len(X), stack.members[name].outputs)
        np.testing.assert_allclose(together[name], expected[name], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(one[name], expected[name], rtol=1e-5, atol=1e-6)


def test_what_fills_up_a_stack_stays_zero_and_weights_keep_their_law():
    config = NetConfig(width=64, depth=1)
    stack = Stack({"wide": Member(config, 50, 40), "narrow": Member(config, 3, 2)})
    fit = jax.jit(lambda key: Fit.start(stack.init(key)))(jax.random.key(0))
    params, x = fit.params, np.random.default_rng(0).normal(size=(16, 50)).astype(np.float32)

    def loss(params):
        wide, narrow = stack(params, wide=x, narrow=x[:, :3])
        return jnp.mean(wide**2) + jnp.mean(narrow**2), {}

    step = jax.jit(lambda fit: adam(fit, loss, stack.rates(wide=1e-2, narrow=1e-3))[0])
    for _ in range(3):
        fit = step(fit)
    kernel = np.asarray(fit.params["wide_narrow"]["Layer_0"]["Dense_0"]["kernel"])
    assert not kernel[1, 3:].any()
    assert not np.asarray(fit.params["wide_narrow"]["head"]["kernel"])[1, :, 2:].any()
    first = np.asarray(params["wide_narrow"]["Layer_0"]["Dense_0"]["kernel"])
    assert 0.9 / np.sqrt(3) < np.abs(first[1]).max() <= 1 / np.sqrt(3)
    assert 0.9 / np.sqrt(50) < np.abs(first[0]).max() <= 1 / np.sqrt(50)
    assert np.abs(kernel - first)[0].max() == pytest.approx(3e-2, rel=0.2)
    assert np.abs(kernel - first)[1].max() == pytest.approx(3e-3, rel=0.2)
