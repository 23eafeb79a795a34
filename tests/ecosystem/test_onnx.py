"""Policies as ONNX models: onnxruntime computes the same actions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.agents import AGENTS, Agent, make_agent
from homing.errors import HomingError
from homing.networks import NetConfig
from homing.policies import EnvChoice, Policies, find_policies
from homing.policies.onnx_export import export_onnx
from homing.policies.store import Spaces
from homing.types import Obs

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
SPEC = Spaces("walk", 5, 3, 2)
NETS = {
    "swish": NetConfig(width=16, depth=2),
    "relu": NetConfig(width=16, depth=2, activation="relu"),
    "elu": NetConfig(width=16, depth=2, activation="elu", layer_norm=True),
    "gelu": NetConfig(width=16, depth=1, activation="gelu"),
    "tanh": NetConfig(width=16, depth=1, activation="tanh"),
    "blocks": NetConfig(width=16, depth=8, layer_norm=True, residual="blocks"),
    "bfloat16": NetConfig(width=16, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16"),
}


def policies_of(settings, name="crl"):
    agent = make_agent(settings, SPEC)
    with jax.debug_key_reuse(False):
        learner = jax.vmap(agent.init)(jax.random.split(jax.random.key(3), 2))
    return Policies("x", name, agent, settings, learner, (0, 1), SPEC, EnvChoice("walk"), 0, {"scores": []})


def ours(policies, state, goal, seed=1):
    agent, learner = policies.in_float32().agent, policies.one(seed)
    act = jax.jit(lambda state, goal: agent.act(learner, Obs(state, goal), jax.random.key(0), explore=False))
    return np.asarray(act(jnp.asarray(state), jnp.asarray(goal)))


def theirs(path, state, goal):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["action"], {"state": state, "goal": goal})[0]


def observations(spec, count=64):
    draw = np.random.default_rng(0)
    sizes = (spec.state_dim, spec.goal_dim)
    return [draw.normal(size=(count, size)).astype(np.float32) for size in sizes]


def assert_same_actions(policies, path):
    state, goal = observations(policies.spec)
    expected = ours(policies, state, goal)
    found = theirs(export_onnx(policies, path, seed=1), state, goal)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5, rtol=0)
    assert np.std(expected) > 1e-3
    return found


@pytest.mark.parametrize("net", NETS)
def test_every_network_computes_the_same_actions(net, tmp_path):
    settings = AGENTS["crl"][0](actor_net=NETS[net], critic_net=NETS["tanh"], representation_dim=8)
    found = assert_same_actions(policies_of(settings), tmp_path / "x.onnx")
    assert found.shape == (64, 3)


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_is_exported(name, tmp_path):
    """Observation normalisation and action chunks included."""
    kind = AGENTS[name][0]
    known = {field.name for field in dataclasses.fields(kind)}
    nets = {n: NETS["swish"] for n in known if n.endswith("_net")}
    small = {"representation_dim": 8, "horizon": 20, "hazard_bins": 8, "occupancy_bins": 4, "chunk": 4}
    chosen = {n: v for n, v in small.items() if n in known} | nets
    policies = policies_of(kind(**chosen, normalise_observations=True), name)
    found = assert_same_actions(policies, tmp_path / "x.onnx")
    assert found.shape == ((64, 4, 3) if "chunk" in known else (64, 3))


@pytest.mark.parametrize("name", ["ant", "point_u_maze"])
def test_shipped_policies_are_exported(name, tmp_path):
    policies = find_policies(name)
    state, goal = observations(policies.spec)
    path = export_onnx(policies, tmp_path / "x.onnx")
    agent = policies.in_float32().agent
    expected = agent.act(
        policies.one(None), Obs(jnp.asarray(state), jnp.asarray(goal)), jax.random.key(0), explore=False
    )
    found = theirs(path, state, goal)
    assert found.shape == (
        64,
        *((policies.agent.chunk,) * (policies.agent.chunk > 1)),
        policies.spec.action_dim,
    )
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5, rtol=0)
    model = onnx.load(path)
    assert [x.name for x in model.graph.input] == ["state", "goal"]
    assert path.stat().st_size < 4e6  # critics are not in it


def test_a_batch_may_have_any_size(tmp_path):
    policies = policies_of(AGENTS["td3"][0](actor_net=NETS["elu"], critic_net=NETS["tanh"]), "td3")
    path = export_onnx(policies, tmp_path / "x.onnx", seed=1)
    state, goal = observations(SPEC, 7)
    for count in (1, 7):
        np.testing.assert_allclose(
            theirs(path, state[:count], goal[:count]), ours(policies, state, goal)[:count], atol=1e-5
        )


def test_what_cannot_be_translated_is_one_message(tmp_path):
    class Sorting(Agent):
        chunk, spec = 1, SPEC

        def act(self, learner, obs, key, *, explore):
            return jnp.sort(obs.state)[..., :3]

    policies = policies_of(AGENTS["td3"][0](actor_net=NETS["tanh"], critic_net=NETS["tanh"]), "sorting")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(policies), "in_float32", lambda self: dataclasses.replace(self, agent=Sorting()))
        with pytest.raises(HomingError, match=r"the policy of sorting cannot be written as ONNX: .*sort"):
            export_onnx(policies, tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())
