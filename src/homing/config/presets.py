"""Tuned settings, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from homing import plugins
from homing.agents import (
    AGENTS,
    CRLConfig,
    GCBCConfig,
    OffPolicyAgent,
    OnPolicyAgent,
    PPOConfig,
    SACConfig,
    SRLConfig,
    TD3Config,
    agent_types,
)
from homing.config.offpolicy import TrainConfig, offline
from homing.config.onpolicy import OnPolicyConfig
from homing.errors import ConfigError, shown, unknown
from homing.networks import NetConfig

DEFAULT = "paper"


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings that belong together."""

    about: str
    train: Any
    agent: Any


_WIDE = NetConfig(width=1024, depth=4, layer_norm=True)
_DEEP = NetConfig(width=256, depth=16, layer_norm=True, residual="blocks")
_BROAD = NetConfig(width=512, dtype="bfloat16")
_SMALL = NetConfig(width=128, depth=2)
_SMALL_RELU = NetConfig(width=128, depth=2, activation="relu")

_PAPER = "settings of the paper's main experiments"
_FAST = "a first curve in minutes on one GPU: 10 M steps, fewer evaluations"
_FASTEST = (
    "highest success in little time on one GPU: 17 M steps, fewer updates, wider networks, a survival head"
)
_QUICKSTART = "minutes on two CPU cores, for the smallest environments"
_QUICK = TrainConfig(greedy_env_fraction=0.25, replay_recent_fraction=0.5, lr_final_scale=0.0)
_TEN_MILLION = dataclasses.replace(_QUICK, total_steps=10_000_000, evaluations=50)
_RATES: dict[str, Any] = {"critic_lr": 1e-3, "actor_lr": 1e-3}
_HINDSIGHT: dict[str, Any] = {"her_strategy": "future", "her_ratio": 1.0, "random_goal_ratio": 0.5}
_LITTLE = TrainConfig(
    total_steps=160_000,
    num_envs=128,
    unroll_length=50,
    updates_per_step=1 / 16,
    replay_size=2_000,
    prefill_steps=300,
    evaluations=8,
    eval_envs=128,
)

_NORMED_BLOCKS = NetConfig(width=256, depth=4, layer_norm=True, residual="blocks", dtype="bfloat16")
_SMALL_NORM = NetConfig(width=128, depth=2, layer_norm=True)
_CHRONO = SRLConfig(episode_ratio=0.1)
_CHUNKED = TrainConfig(
    total_steps=50_000_000,
    num_envs=512,
    batch_size=512,
    updates_per_step=800 / (62 * 512),
    prefill_steps=992,
    evaluations=50,
    eval_envs=512,
)

PRESETS: dict[str, dict[str, Preset]] = {
    "crl": {
        "paper": Preset(_PAPER, TrainConfig(), CRLConfig()),
        "fast": Preset(
            _FASTEST,
            dataclasses.replace(_QUICK, total_steps=17_000_000, evaluations=12, updates_per_step=1 / 32),
            CRLConfig(
                objective="infonce",
                gamma=0.98,
                survival_head=True,
                critic_net=_BROAD,
                actor_net=_BROAD,
                **_RATES,
            ),
        ),
        "large": Preset(
            "the paper's large networks: 4 layers of 1024 units with LayerNorm",
            TrainConfig(total_steps=300_000_000),
            CRLConfig(critic_net=_WIDE, actor_net=_WIDE),
        ),
        "deep": Preset(
            "residual networks of depth 16 with batches of 512 transitions",
            TrainConfig(
                total_steps=100_000_000,
                num_envs=512,
                batch_size=512,
                updates_per_step=1 / 40,
                evaluations=100,
            ),
            CRLConfig(objective="infonce", actor_lr=3e-4, critic_net=_DEEP, actor_net=_DEEP),
        ),
        "quickstart": Preset(
            _QUICKSTART,
            _LITTLE,
            # The temperature starts at 1, which is far too high here: a short run must lower it quickly.
            CRLConfig(critic_net=_SMALL, actor_net=_SMALL, alpha_lr=3e-3),
        ),
    },
    "srl": {
        "paper": Preset("survival RL with chunks, distances and occupancy (ChronoSRL)", _CHUNKED, _CHRONO),
        "chrono": Preset("the same by its name", _CHUNKED, _CHRONO),
        "fast": Preset(
            "most time at the goal for a GPU minute: 25 M steps, larger batches, half the updates, averaged policy",
            dataclasses.replace(
                _CHUNKED,
                total_steps=25_000_000,
                batch_size=1024,
                updates_per_step=1 / 80,
                greedy_env_fraction=0.25,
                replay_recent_fraction=0.5,
                lr_final_scale=0.1,
                policy_ema=0.9,
                evaluations=25,
            ),
            SRLConfig(
                critic_lr=6e-4,
                actor_lr=6e-4,
                encoder_net=_NORMED_BLOCKS,
                head_net=_NORMED_BLOCKS,
                actor_net=_NORMED_BLOCKS,
            ),
        ),
        "srl": Preset(
            "survival RL alone: hazards, single actions, farther goals, shallower encoders",
            _CHUNKED,
            SRLConfig(
                goal_gamma=0.999,
                chunk=1,
                time_weight=0.0,
                separation_weight=0.0,
                occupancy_weight=0.0,
                representation_dim=128,
                encoder_net=NetConfig(width=256, depth=2, layer_norm=True),
            ),
        ),
        "quickstart": Preset(
            _QUICKSTART,
            _LITTLE,
            SRLConfig(
                horizon=200,
                hazard_bins=64,
                encoder_net=_SMALL_NORM,
                head_net=_SMALL_NORM,
                actor_net=_SMALL_NORM,
                critic_lr=1e-3,
                actor_lr=1e-3,
                alpha_lr=3e-3,
            ),
        ),
    },
    "sac": {
        "paper": Preset(_PAPER, TrainConfig(), SACConfig()),
        "fast": Preset(_FAST, _TEN_MILLION, SACConfig(her=True, alpha_lr=3e-3, **_RATES, **_HINDSIGHT)),
        "quickstart": Preset(
            _QUICKSTART,
            _LITTLE,
            SACConfig(her=True, critic_net=_SMALL_RELU, actor_net=_SMALL_RELU, alpha_lr=3e-3),
        ),
    },
    "td3": {
        "paper": Preset(_PAPER, TrainConfig(), TD3Config()),
        "fast": Preset(_FAST, _TEN_MILLION, TD3Config(her=True, action_cost=0.3, **_RATES, **_HINDSIGHT)),
        "quickstart": Preset(
            _QUICKSTART, _LITTLE, TD3Config(her=True, critic_net=_SMALL_RELU, actor_net=_SMALL_RELU)
        ),
    },
    "ppo": {
        "paper": Preset(_PAPER, OnPolicyConfig(), PPOConfig()),
        "fast": Preset(_FAST, OnPolicyConfig(total_steps=10_000_000, evaluations=50), PPOConfig()),
        "dense": Preset(
            "for dense rewards (--reward dense): longer rollouts, used eight times, with more entropy",
            OnPolicyConfig(total_steps=50_000_000, unroll_length=20, spread_episodes=True, evaluations=50),
            PPOConfig(
                entropy_weight=0.01,
                reward_scale=0.1,
                minibatches=32,
                epochs=8,
                actor_net=_SMALL,
                value_net=_SMALL,
                normalise_observations=True,
            ),
        ),
        "quickstart": Preset(
            _QUICKSTART,
            OnPolicyConfig(total_steps=500_000, num_envs=128, unroll_length=20, evaluations=8, eval_envs=128),
            PPOConfig(minibatches=4, epochs=4, actor_net=_SMALL, value_net=_SMALL),
        ),
    },
    "gcbc": {
        "paper": Preset(
            "settings of the OGBench benchmark: a million updates of 1024 transitions, three layers of 512 units",
            offline(TrainConfig(batch_size=1024, evaluations=20), updates=1_000_000),
            GCBCConfig(),
        ),
        "quickstart": Preset(_QUICKSTART, offline(_LITTLE), GCBCConfig(actor_net=_SMALL, actor_lr=1e-3)),
    },
}

# A robot that falls has reached nothing: goals are sequences of positions to be followed for half a second.
_FOLLOWED: dict[str, Any] = {
    "batch_size": 1024,
    "updates_per_step": 484 / (62 * 512),
    "dwell": 32,
    "goal_points": 32,
}

# Exceptions of a preset for some environments: preset -> pattern of ids -> agent -> settings, of training or its own.
ENV_CHANGES: dict[str, dict[str, dict[str, dict[str, Any]]]] = {
    "paper": {
        "humanoid*": {agent: {"num_envs": 512} for agent in ("crl", "sac", "td3")} | {"srl": _FOLLOWED},
    },
    "chrono": {"humanoid*": {"srl": _FOLLOWED}},
    "srl": {"humanoid*": {"srl": _FOLLOWED}},
    # Ten metres take some hundred steps: shorter training episodes see more of the approach.
    "fast": {
        "ant": {
            **{agent: {"train_episode_length": 300} for agent in ("crl", "sac", "td3")},
            "srl": {"total_steps": 15_000_000, "evaluations": 15},
        }
    },
}


def preset(agent: str, name: str, env: str | None = None) -> Preset:
    """The preset called `name` of an agent, with its exceptions for an environment."""
    agent_types(agent)  # an unknown one is answered; plugins register theirs here
    if not isinstance(name, str) or name not in PRESETS[agent]:
        raise unknown(f"preset of {agent}", name, PRESETS[agent])
    chosen = PRESETS[agent][name]
    for pattern, changes in ENV_CHANGES.get(name, {}).items():
        if fnmatchcase(str(env or ""), pattern):
            chosen = _changed(chosen, changes.get(agent, {}))
    return chosen


def _changed(chosen: Preset, changes: Mapping[str, Any]) -> Preset:
    """A preset with other settings of training and of the agent, by their names."""
    of_agent = {field.name for field in dataclasses.fields(chosen.agent)} & set(changes)
    train = {name: value for name, value in changes.items() if name not in of_agent}
    return dataclasses.replace(
        chosen,
        train=dataclasses.replace(chosen.train, **train),
        agent=dataclasses.replace(chosen.agent, **{name: changes[name] for name in of_agent}),
    )


def register_agent(name: str, config: type, agent: type, train: Any = None) -> None:
    """Register an agent of your own by name, for `homing.train` and, with `--import`, the command line.

    config: a frozen dataclass with a default for every field
    agent:  a subclass of `OffPolicyAgent` or `OnPolicyAgent`, built as `agent(config(), spec)`
    train:  default settings of its training loop; those of the paper if not given
    """
    _check_agent(name, config, agent, train)
    AGENTS[name] = (config, agent)
    about = f"the defaults of {config.__name__}"
    PRESETS[name] = {DEFAULT: Preset(about, train or train_kind(agent)(), config())}
    plugins.note_owner(plugins.AGENTS, name, plugins.calling_module())


def _check_agent(name: str, config: type, agent: type, train: Any) -> None:
    """Refuse what could not be trained."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"an agent's name is made of letters, digits and _, not {shown(name)}")
    if name in AGENTS and AGENTS[name] != (config, agent):
        raise ConfigError(f"there is an agent {name!r} already; choose another name")
    if not isinstance(config, type) or not dataclasses.is_dataclass(config):
        raise ConfigError(f"the config of {name} must be a frozen dataclass, not {shown(config)}")
    missing = dataclasses.MISSING
    if bad := [f.name for f in dataclasses.fields(config) if f.default is f.default_factory is missing]:
        raise ConfigError(f"{config.__name__}.{bad[0]} needs a default: an agent is made from its name alone")
    if not isinstance(agent, type) or not issubclass(agent, (OffPolicyAgent, OnPolicyAgent)):
        raise ConfigError(
            f"{shown(agent)} must be a subclass of homing.agents.OffPolicyAgent or OnPolicyAgent"
        )
    if train is not None and type(train) is not train_kind(agent):
        raise ConfigError(f"{name} is trained by a {train_kind(agent).__name__}, not by {shown(train)}")
    if taken := [other for other, (kind, _) in AGENTS.items() if kind is config and other != name]:
        # An agent is made from its config alone, so the other one would be trained.
        raise ConfigError(
            f"{config.__name__} is the config of {taken[0]!r} already; give {name} one of its own, "
            f"for instance a subclass of {config.__name__}"
        )


def train_kind(agent: type) -> type:
    """The class of a training loop's settings, by the kind of agent."""
    return OnPolicyConfig if issubclass(agent, OnPolicyAgent) else TrainConfig
