"""Policies and critics of every agent, with every kind of network, run by Node and compared with JAX."""

import jax
import numpy as np
import pytest
from agent_helpers import SPEC, any_learner
from share_helpers import check_same, needs_node

from homing.agents import CRLConfig, PPOConfig, SACConfig, SRLConfig, TD3Config, make_agent
from homing.networks import NetConfig
from homing.types import Obs

pytestmark = needs_node
DEEP = NetConfig(width=12, depth=8, activation="elu", layer_norm=True, residual="blocks")
SMALL = NetConfig(width=12)
BOTH = {"critic_net": SMALL, "actor_net": SMALL}
CASES = {
    "crl, residual blocks": CRLConfig(critic_net=DEEP, actor_net=DEEP),
    "crl, chunks, normalised": CRLConfig(chunk=3, normalise_observations=True, **BOTH),
    "sac, gelu": SACConfig(critic_net=SMALL, actor_net=NetConfig(width=12, activation="gelu")),
    "td3, tanh": TD3Config(critic_net=SMALL, actor_net=NetConfig(width=12, activation="tanh")),
    "srl": SRLConfig(encoder_net=SMALL, head_net=SMALL, actor_net=SMALL),
    "srl, goals of three positions": SRLConfig(
        dwell=5, goal_points=3, encoder_net=SMALL, head_net=SMALL, actor_net=SMALL
    ),
    "ppo": PPOConfig(),
}


@pytest.mark.parametrize("name", CASES)
def test_actions_and_values_are_jax_s(name):
    agent = make_agent(CASES[name], SPEC)
    learner = jax.device_put(any_learner(agent))
    rng = np.random.default_rng(0)
    state, goal = (rng.normal(size=(3, n)).astype(np.float32) for n in (SPEC.state_dim, SPEC.goal_dim))
    act = lambda s, g: agent.act(learner, Obs(s, g), jax.random.key(0), explore=False)
    cases = [(act, state, goal)]
    if agent.has_critic:
        cases.append((lambda s, g: agent.value(learner, Obs(s, g), act(s, g)), state, goal))
    check_same(*cases, atol=2e-5)
