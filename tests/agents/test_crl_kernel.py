"""Updates of contrastive RL in one CUDA kernel: its source on an emulated device, beside the agent's own updates."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_cases import distance
from kernel_emulator import emulated_call
from probes import ProbeSpec

from homing.agents import crl_kernel
from homing.agents.crl import CRL, CRLBatch, CRLConfig
from homing.compile import cuda, xla
from homing.networks import Fit, NetConfig
from homing.types import Obs, UpdateContext

SMALL = NetConfig(width=64, depth=2, dtype="bfloat16")


def agent_of(net: NetConfig = SMALL, state: int = 9, goal: int = 2, action: int = 3, **changes) -> CRL:
    config = CRLConfig(critic_net=net, actor_net=net, **{"representation_dim": 13, **changes})
    return CRL(config, ProbeSpec(state, action, goal, tuple(range(goal)), 0.1))


def given(agent: CRL, batch: int, updates: int, seed: int = 0):
    """Batches, draws and contexts of some updates."""
    rng, spec = np.random.default_rng(seed), agent.spec
    normal = lambda *size: jnp.asarray(rng.normal(size=(updates, batch, *size)), jnp.float32)
    obs = Obs(normal(spec.state_dim), normal(spec.goal_dim))
    batches = CRLBatch(obs, jnp.tanh(normal(agent.action_size)), jnp.abs(normal()))
    draws = jax.vmap(lambda key: agent.draw(key, batch))(jax.random.split(jax.random.key(seed), updates))
    index = jnp.arange(updates)
    return batches, draws, UpdateContext(index, 1 - 0.25 * index.astype(jnp.float32))


@functools.cache
def start(agent: CRL, seed: int = 0) -> Fit:
    return jax.jit(agent.init)(jax.random.key(seed))


def some(tree, *index):
    """Entries of every array."""
    return jax.tree.map(lambda x: x[index], tree)


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """`cuda.call` on an emulated device."""
    return emulated_call(tmp_path_factory.mktemp("emulated"))


@pytest.fixture
def hopper(monkeypatch, emulated):
    """The kernel is asked for, and launched on an emulated card."""
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    monkeypatch.setattr(cuda, "library", lambda: "NVRTC")
    monkeypatch.setattr(cuda, "call", emulated)
    monkeypatch.setattr(cuda, "over_leading_axis", lambda run: run)
    monkeypatch.setattr(xla, "_allowed", lambda asked_for=False: True)
    return monkeypatch


def plain(agent: CRL, *args):
    """What XLA makes of the updates."""
    with pytest.MonkeyPatch.context() as without:
        without.setattr(crl_kernel, "shape_of", lambda *given: None)
        without.setattr(xla, "_allowed", lambda asked_for=False: False)
        return jax.jit(agent.updates)(*args)


CASES = {
    "one layer after the first, symmetric": (agent_of(), 128),
    "wider inputs, forward": (
        agent_of(
            state=60, goal=3, action=8, objective="infonce", representation_dim=64, logsumexp_weight=0.3
        ),
        192,
    ),
    "chunks, three layers, backward": (
        agent_of(dataclasses.replace(SMALL, depth=3), action=5, chunk=2, objective="infonce_backward"),
        128,
    ),
    "wider layers, a larger batch": (
        agent_of(dataclasses.replace(SMALL, width=128), goal=12, entropy_target=-2.0),
        256,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_as_exact_as_those_of_the_layers_one_by_one(hopper, name):
    agent, batch = CASES[name]
    args = start(agent), *given(agent, batch, 1)
    made = agent.updates(*args)
    net = dataclasses.replace(agent.config.critic_net, dtype="float32")
    exact = plain(CRL(dataclasses.replace(agent.config, critic_net=net, actor_net=net), agent.spec), *args)
    # After one update a first moment is a tenth of the gradient.
    moments = (jax.tree.leaves(fit.opt_state.mu) for fit in (made, plain(agent, *args), exact))
    for own, layers, true in zip(*moments, strict=True):
        assert own.shape == true.shape
        for a, b, c in zip(*map(jnp.atleast_1d, (own, layers, true)), strict=True):
            assert distance(a, c) < max(6e-3, 1.5 * distance(b, c))
    assert int(made.opt_state.count) == 1
    for p, m, v, before in zip(
        *map(jax.tree.leaves, (made.params, made.opt_state.mu, made.opt_state.nu, args[0].params)),
        strict=True,
    ):
        np.testing.assert_allclose(v, 0.1 * m**2, rtol=1e-5)
        assert float(jnp.abs(p - before).max()) < 6.1e-4, (
            "a first step of Adam is as long as the learning rate"
        )


def test_several_updates_in_one_launch_are_those_one_after_the_other(hopper):
    agent = agent_of()
    learner, (batches, draws, contexts) = start(agent), given(agent, 128, 3)
    together, single = agent.updates(learner, batches, draws, contexts), learner
    for i in range(3):
        single = agent.updates(single, *some((batches, draws, contexts), slice(i, i + 1)))
    jax.tree.map(np.testing.assert_array_equal, together, single)
    layers = plain(agent, learner, batches, draws, contexts)
    for a, b, before in zip(
        *map(jax.tree.leaves, (together.params, layers.params, learner.params)), strict=True
    ):
        assert distance(a - before, b - before) < 0.1  # steps of Adam amplify the rounding of small gradients
    assert int(together.opt_state.count) == 3


def test_seeds_are_trained_as_each_alone_and_a_nan_stays_in_its_own(hopper):
    agent = agent_of()
    launch, launched = crl_kernel._call, []
    hopper.setattr(
        crl_kernel, "_call", lambda shape, *arrays: launched.append(arrays) or launch(shape, *arrays)
    )
    for seed, value in ((0, jnp.nan), (1, 0.0)):
        batches, draws, contexts = given(agent, 128, 2, seed)
        state = batches.obs.state.at[0, 5, 2].set(value)
        agent.updates(start(agent, seed), batches.replace(obs=Obs(state, batches.obs.goal)), draws, contexts)
    shape = crl_kernel.shape_of(agent, some_batches(agent, 128, 2))
    ill, well = launch(shape, *(jnp.concatenate(arrays) for arrays in zip(*launched, strict=True)))
    assert not np.isfinite(ill).all()
    assert np.isfinite(well).all()
    np.testing.assert_array_equal(well, launch(shape, *launched[1])[0])


def some_batches(agent: CRL, batch: int, updates: int) -> CRLBatch:
    return given(agent, batch, updates)[0]


def test_which_agents_and_batches_there_is_a_kernel_for(hopper):
    def there(agent: CRL, batch: int = 128) -> bool:
        return crl_kernel.shape_of(agent, some_batches(agent, batch, 1)) is not None

    paper = dataclasses.replace(NetConfig(), dtype="bfloat16")
    assert there(agent_of(paper, representation_dim=64), 256)
    assert there(agent_of(paper, state=268, goal=3, action=17, representation_dim=64), 256)
    for batch in (64, 100, 512):
        assert not there(agent_of(), batch)
    changes: dict[str, Any]
    for changes in (
        {"energy": "dot"},
        {"objective": "dpo"},
        {"survival_head": True},
        {"random_goal_ratio": 0.5},
        {"bc_weight": 0.1},
        {"representation_dim": 65},
        {"action": 33},
    ):
        assert not there(agent_of(**changes)), changes
    for changes in (
        {"dtype": "float32"},
        {"layer_norm": True},
        {"depth": 1},
        {"width": 224},
        {"activation": "relu"},
        {"residual": "blocks", "depth": 4},
    ):
        assert not there(agent_of(dataclasses.replace(SMALL, **changes))), changes
    hopper.setattr(xla, "_allowed", lambda asked_for=False: not asked_for)
    assert not there(agent_of()), "it must be asked for"
    hopper.setattr(xla, "_allowed", lambda asked_for=False: True)
    hopper.setattr(cuda, "capability", lambda: (10, 0))
    assert not there(agent_of()), "the matrix units are those of Hopper"


def test_a_subclass_of_its_own_is_left_to_itself(hopper):
    class Own(CRL):
        def update(self, learner, batch, draws, context):
            return learner.replace(params=jax.tree.map(jnp.zeros_like, learner.params)), {}

    agent = agent_of()
    own = Own(agent.config, agent.spec)
    hopper.setattr(cuda, "call", None)
    made = own.updates(start(agent), *given(agent, 128, 2))
    assert not any(map(np.any, jax.tree.leaves(made.params)))
