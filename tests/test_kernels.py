"""Own kernels against their twins in plain JAX. Here they are interpreted; `make test-gpu` compiles them."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ProbeSpec

from homing import kernels
from homing.agents.crl import CRL, CRLConfig
from homing.errors import UnknownNameError
from homing.kernels import dense, pairs
from homing.nets import NetConfig
from homing.objectives import contrastive
from homing.objectives.energies import ENERGIES
from homing.types import Batch, Obs

# On a GPU kernels are compiled, and products have ten bits: pytest runs this file there too.
ON_GPU = jax.default_backend() == "gpu"
INTERPRET = not ON_GPU
MODE = "compiled" if ON_GPU else "interpreted"


def normal(*shape, seed=0, shift=0.0):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape) + shift, jnp.float32)


def assert_near(a, b, tolerance):
    """As far apart as this share of the largest entry."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        scale = float(jnp.abs(y).max()) + 1e-12
        np.testing.assert_allclose(np.asarray(x) / scale, np.asarray(y) / scale, atol=tolerance)


@pytest.mark.parametrize("kind", pairs.KINDS)
def test_sums_over_pairs_and_their_gradient(kind):
    phi = 0.1 * normal(2, 128, 16, shift=3.0)
    psi = phi + 0.03 * normal(2, 128, 16, seed=1)

    def plain(phi, psi):
        f = ENERGIES[kind].pairs(phi, psi)
        return pairs.LogSums(nn.logsumexp(f, axis=1), nn.logsumexp(f, axis=0), jnp.diagonal(f))

    def run(sums):
        def loss(phi, psi):
            s = sums(phi, psi)
            return jnp.sum(jnp.sin(s.rows) + 2 * jnp.cos(s.columns) - 3 * s.diagonal)

        return jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 1))))(phi, psi)

    assert_near(run(lambda a, b: pairs.log_sums(a, b, kind, INTERPRET)), run(plain), 1e-4)


@pytest.mark.parametrize(
    ("activation", "inputs"), [(None, 40), (nn.swish, 64), (nn.relu, 40), (nn.elu, 64), (nn.gelu, 64)]
)
def test_a_layer_and_its_gradient(activation, inputs):
    x, kernel, bias = normal(64, inputs), normal(3, inputs, 64, seed=1), normal(3, 64, seed=2)
    act = activation or (lambda x: x)

    def run(layer):
        def loss(x, kernel, bias):
            return jnp.sum(jnp.sin(0.1 * layer(x, kernel, bias)))

        return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(x, kernel, bias)

    form = dense.Form(activation, jnp.float32, INTERPRET)
    tolerance = 5e-3 if ON_GPU else 1e-5
    plain = run(lambda x, kernel, bias: act(x) @ kernel[1] + bias[1])
    assert_near(run(lambda x, k, b: dense.dense(x, k, b, form._replace(member=1))), plain, tolerance)
    assert_near(run(lambda x, k, b: dense.dense(x, k[1], b[1], form)), plain, tolerance)


def test_an_update_by_kernels_is_the_plain_update():
    spec = ProbeSpec(state_dim=5, action_dim=2, goal_dim=3, goal_indices=(0, 1, 2), threshold=0.1)
    small = NetConfig(width=64)
    agent = CRL(CRLConfig(critic_net=small, actor_net=small, representation_dim=64), spec)
    obs = Obs(state=normal(128, 5), goal=normal(128, 3, seed=1))
    ones = jnp.ones(128, jnp.float32)
    batch = Batch(obs, jnp.tanh(normal(128, 2, seed=2)), obs, ones, ones, ones)
    learner = jax.jit(agent.init)(jax.random.key(0))

    def run(mode):
        with kernels.using(mode):
            program = jax.jit(lambda learner: agent.update(learner, batch, jax.random.key(1), jnp.int32(0)))
            text = program.lower(learner).as_text() if ON_GPU else str(jax.make_jaxpr(program)(learner))
            return program(learner), text.count("pallas_call") + text.count("triton")

    (plain, told), none = run("off")
    (fast, told_fast), some = run(MODE)
    assert none == 0 and some > 0
    assert_near(fast.opt_state.mu, plain.opt_state.mu, 1e-2 if ON_GPU else 1e-4)
    assert_near(told_fast, told, 1e-2 if ON_GPU else 1e-4)


@pytest.mark.parametrize("objective", contrastive.SUMMED)
def test_objectives_of_sums_equal_those_of_logits(objective):
    logits = normal(9, 9)
    sums = pairs.LogSums(nn.logsumexp(logits, axis=1), nn.logsumexp(logits, axis=0), jnp.diagonal(logits))
    expected = contrastive.OBJECTIVES[objective](logits)
    assert float(contrastive.SUMMED[objective](sums)) == pytest.approx(float(expected), rel=1e-5)


def test_kernels_are_off_without_a_gpu_and_a_wrong_wish_is_answered(monkeypatch):
    if not ON_GPU:
        assert kernels.mode() == "off"
    monkeypatch.setenv(kernels.VARIABLE, "off")
    assert kernels.mode() == "off"
    monkeypatch.setenv(kernels.VARIABLE, "of")
    with pytest.raises(UnknownNameError, match="off"):
        kernels.mode()
