"""Agents, by name."""

from __future__ import annotations

from typing import Any

from homing.agents.base import OffPolicyAgent, OnPolicyAgent, SpaceSpec
from homing.agents.crl import CRL, CRLConfig
from homing.agents.normalised import Normalised
from homing.agents.ppo import PPO, PPOConfig
from homing.agents.sac import SAC, SACConfig
from homing.agents.td3 import TD3, TD3Config
from homing.errors import unknown

AGENTS: dict[str, tuple[type, type]] = {
    "crl": (CRLConfig, CRL),
    "sac": (SACConfig, SAC),
    "td3": (TD3Config, TD3),
    "ppo": (PPOConfig, PPO),
}


def agent_config(name: str) -> Any:
    """The default settings of the agent called `name`."""
    if name not in AGENTS:
        raise unknown("agent", name, AGENTS)
    return AGENTS[name][0]()


def make_agent(config: Any, spec: SpaceSpec) -> Any:
    """The agent that `config` describes, for environments like `spec`."""
    for config_type, agent_type in AGENTS.values():
        if type(config) is config_type:
            agent = agent_type(config, spec)
            return Normalised(agent) if getattr(config, "normalise_observations", False) else agent
    raise TypeError(f"{type(config).__name__} is the config of no agent")


__all__ = [
    "AGENTS",
    "CRL",
    "PPO",
    "SAC",
    "TD3",
    "CRLConfig",
    "OffPolicyAgent",
    "OnPolicyAgent",
    "PPOConfig",
    "SACConfig",
    "TD3Config",
    "agent_config",
    "make_agent",
]
