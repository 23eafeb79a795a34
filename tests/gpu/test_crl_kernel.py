"""Updates of contrastive RL in one kernel, on a real GPU: `make test-gpu`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_cases import distance
from probes import ProbeSpec

from homing.agents import crl_kernel
from homing.agents.crl import CRL, CRLBatch, CRLConfig
from homing.compile import xla
from homing.networks import NetConfig
from homing.types import Obs, UpdateContext

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "gpu" or not xla.cuda_kernels(newest=xla.HOPPER), reason="needs a Hopper GPU"
)

# Entries of state, goal and action; width and depth; batch; seeds.
CASES = [
    (29, 2, 8, 256, 2, 256, 1),
    (29, 2, 8, 256, 2, 256, 10),
    (29, 2, 8, 256, 2, 256, 32),
    (268, 3, 17, 256, 2, 256, 3),
    (29, 2, 24, 128, 4, 128, 5),
    (10, 2, 2, 64, 2, 192, 2),
]


def agent_of(state: int, goal: int, action: int, width: int, depth: int) -> CRL:
    net = NetConfig(width=width, depth=depth, dtype="bfloat16")
    spec = ProbeSpec(state, action, goal, tuple(range(goal)), 0.1)
    return CRL(CRLConfig(critic_net=net, actor_net=net), spec)


def given(agent: CRL, batch: int, updates: int, key):
    """Batches, draws and contexts in which goals can be told from states."""
    k_state, k_action, k_draw = jax.random.split(key, 3)
    spec = agent.spec
    state = jax.random.normal(k_state, (updates, batch, spec.state_dim), jnp.float32)
    action = jnp.tanh(jax.random.normal(k_action, (updates, batch, agent.action_size), jnp.float32))
    goal = state[..., : spec.goal_dim] + 0.1 * action[..., :1]
    draws = jax.vmap(lambda key: agent.draw(key, batch))(jax.random.split(k_draw, updates))
    contexts = UpdateContext(jnp.arange(updates), jnp.ones((updates,), jnp.float32))
    return CRLBatch(Obs(state, goal), action, jnp.ones((updates, batch), jnp.float32)), draws, contexts


@pytest.mark.parametrize(("state", "goal", "action", "width", "depth", "batch", "seeds"), CASES)
def test_updates_are_those_of_the_layers_and_repeat(
    monkeypatch, state, goal, action, width, depth, batch, seeds
):
    monkeypatch.setenv(xla.KERNELS, "all")
    agent, updates = agent_of(state, goal, action, width, depth), 100
    keys, k_batches = jax.random.split(jax.random.key(0), (2, seeds))
    learner = jax.jit(jax.vmap(agent.init))(keys)
    args = jax.jit(jax.vmap(lambda key: given(agent, batch, updates, key)))(k_batches)
    shape = crl_kernel.shape_of(agent, jax.tree.map(lambda x: x[0], args[0]))
    assert shape is not None

    def train(count, learner, args):
        used = jax.tree.map(lambda x: x[:, :count], args)
        return jax.vmap(agent.updates)(learner, *used)

    run = lambda count: jax.jit(functools.partial(train, count))(learner, args)
    one, hundred, again = run(1), run(updates), run(updates)
    with xla.without_kernels():
        plain_one, plain_hundred = run(1), run(updates)
    for a, b in zip(*(map(jax.tree.leaves, (one.opt_state.mu, plain_one.opt_state.mu))), strict=True):
        assert distance(a, b) < 0.02
    jax.tree.map(np.testing.assert_array_equal, hundred, again)

    def loss(fit):
        last = jax.tree.map(lambda x: x[:, -1], args)
        return jax.vmap(lambda learner, given: agent.update(learner, *given)[1]["critic_loss"])(fit, last)

    with xla.without_kernels():
        losses, plain_losses = jax.jit(loss)(hundred), jax.jit(loss)(plain_hundred)
        before = jax.jit(loss)(learner)
    assert float(jnp.max(losses - before)) < -0.5
    np.testing.assert_allclose(losses, plain_losses, rtol=0.05)
