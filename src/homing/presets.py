"""Tuned settings, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

from homing.agents.crl import CRLConfig
from homing.config import TrainConfig
from homing.errors import unknown
from homing.nets import NetConfig


@dataclasses.dataclass(frozen=True)
class Preset:
    """Settings that belong together."""

    about: str
    train: TrainConfig
    agent: Any


_WIDE = NetConfig(width=1024, depth=4, layer_norm=True)
_DEEP = NetConfig(width=256, depth=16, layer_norm=True, residual="blocks")
_SMALL = NetConfig(width=128, depth=2)

PRESETS: dict[str, dict[str, Preset]] = {
    "crl": {
        "paper": Preset("settings of the paper's main experiments", TrainConfig(), CRLConfig()),
        "fast": Preset(
            "a first curve in minutes on one GPU: 10 M steps, fewer evaluations",
            TrainConfig(total_steps=10_000_000, evaluations=50),
            CRLConfig(),
        ),
        "large": Preset(
            "the paper's large networks: 4 layers of 1024 units with LayerNorm",
            TrainConfig(total_steps=300_000_000),
            CRLConfig(critic_net=_WIDE, actor_net=_WIDE),
        ),
        "deep": Preset(
            "residual networks of depth 16 with batches of 512 rows",
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
            "minutes on two CPU cores, for the smallest environments",
            TrainConfig(
                total_steps=160_000,
                num_envs=128,
                unroll_length=50,
                updates_per_step=1 / 16,
                replay_rows=2_000,
                prefill_rows=300,
                evaluations=8,
                eval_envs=128,
            ),
            # The entropy's weight starts at 1, which is far too much here: a short run must lower it quickly.
            CRLConfig(critic_net=_SMALL, actor_net=_SMALL, alpha_lr=3e-3),
        ),
    }
}


def preset(agent: str, name: str) -> Preset:
    """The preset called `name` of an agent."""
    if agent not in PRESETS:
        raise unknown("agent", agent, PRESETS)
    if name not in PRESETS[agent]:
        raise unknown(f"preset of {agent}", name, PRESETS[agent])
    return PRESETS[agent][name]
