"""Agents: one file for each paper, by name in one table."""

from __future__ import annotations

from typing import Any

from homing import plugins
from homing.agents.base import Agent, OffPolicyAgent, OnPolicyAgent, ReplayView, SpaceSpec
from homing.agents.crl import CRL, CRLConfig
from homing.agents.gcbc import GCBC, GCBCConfig
from homing.agents.normalised import normalised
from homing.agents.ppo import PPO, PPOConfig
from homing.agents.sac import SAC, SACConfig
from homing.agents.srl import SRL, SRLConfig
from homing.agents.td3 import TD3, TD3Config
from homing.errors import ConfigError, unknown

AGENTS: dict[str, tuple[type, type]] = {
    "crl": (CRLConfig, CRL),
    "srl": (SRLConfig, SRL),
    "sac": (SACConfig, SAC),
    "td3": (TD3Config, TD3),
    "ppo": (PPOConfig, PPO),
    "gcbc": (GCBCConfig, GCBC),
}


def agent_names() -> tuple[str, ...]:
    """All agents: the package's, registered ones and those of installed plugins."""
    plugins.load_entry_points(plugins.AGENTS)
    return tuple(AGENTS)


def agent_types(name: str) -> tuple[type, type]:
    """Config and class of the agent called `name`."""
    if not isinstance(name, str) or name not in agent_names():
        raise unknown("agent", name, AGENTS)
    return AGENTS[name]


def check_settings(name: str, settings: Any) -> None:
    """Refuse settings that are those of another agent."""
    expected = agent_types(name)[0]
    if type(settings) is not expected:
        raise ConfigError(
            f"settings of {name} are a {expected.__name__}, not a {type(settings).__name__}; "
            f"pass {expected.__name__}(...) or name the agent that they belong to"
        )


def make_agent(config: Any, spec: SpaceSpec) -> OffPolicyAgent | OnPolicyAgent:
    """The agent that `config` describes, for environments like `spec`."""
    for config_type, agent_type in AGENTS.values():
        if type(config) is config_type:
            agent = agent_type(config, spec)
            return normalised(agent) if getattr(config, "normalise_observations", False) else agent
    raise TypeError(f"{type(config).__name__} is not the config of any agent")


__all__ = [
    "AGENTS",
    "CRL",
    "GCBC",
    "PPO",
    "SAC",
    "SRL",
    "TD3",
    "Agent",
    "CRLConfig",
    "GCBCConfig",
    "OffPolicyAgent",
    "OnPolicyAgent",
    "PPOConfig",
    "ReplayView",
    "SACConfig",
    "SRLConfig",
    "SpaceSpec",
    "TD3Config",
    "agent_names",
    "agent_types",
    "check_settings",
    "make_agent",
]
