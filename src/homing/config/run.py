"""Everything that defines a run, as one frozen object that is written to JSON and read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from homing.agents import AGENTS
from homing.config.decoding import decode
from homing.config.presets import DEFAULT, preset
from homing.envs.registry import resolve
from homing.errors import ConfigError, unknown

MAX_SEED = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class SaveConfig:
    """What a run writes, beside its metrics, and how often."""

    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints to resume from (they hold the replay); 0 makes one at every evaluation."""
    keep_checkpoints: int = 2
    """Checkpoints kept; an older one serves where the newest is damaged."""
    final_checkpoint: bool = True
    """Make one more checkpoint at the end of the run."""
    tensorboard: Literal["auto", "on", "off"] = "auto"
    """TensorBoard events; auto writes them where tensorboardX is installed."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Weights & Biases; offline needs no account."""

    def __post_init__(self) -> None:
        if self.keep_checkpoints < 1:
            raise ConfigError(f"keep_checkpoints is {self.keep_checkpoints}; it must be at least 1")
        if not self.checkpoint_minutes >= 0:
            raise ConfigError(f"checkpoint_minutes is {self.checkpoint_minutes}; 0 means at every evaluation")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """One run: an agent in an environment, for some seeds, by these settings."""

    agent: str
    env: str
    train: Any
    """Of the training loop: a TrainConfig, or an OnPolicyConfig for an on-policy agent."""
    settings: Any
    """Of the agent."""
    seeds: tuple[int, ...] = (0,)
    preset: str = "paper"
    eval_env: str | None = None
    episode_length: int = 1000
    physics: str | None = None
    reward: str = "sparse"
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    save: SaveConfig = dataclasses.field(default_factory=SaveConfig)

    def __post_init__(self) -> None:
        resolve(self.env)
        if self.eval_env is not None:
            resolve(self.eval_env)
        if not self.seeds:
            raise ConfigError("a run needs at least one seed")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(f"seeds {', '.join(map(str, self.seeds))}: one of them is named twice")
        if bad := [seed for seed in self.seeds if not 0 <= seed <= MAX_SEED]:
            raise ConfigError(f"seed {bad[0]} must lie between 0 and {MAX_SEED}")


def run_config(
    agent: str,
    env: str,
    *,
    preset_name: str = "paper",
    seeds: tuple[int, ...] = (0,),
    changes: Mapping[str, Any] | None = None,
    **fields: Any,
) -> RunConfig:
    """A preset with changes by field name: of the loop's config, of the agent's or of SaveConfig."""
    parts = _parts(agent, preset_name, env)
    owned: dict[str, dict[str, Any]] = {}
    for name, value in (changes or {}).items():
        owned.setdefault(_owner(parts, name), {})[name] = value
    for owner, values in owned.items():  # all at once: one alone may not go with the preset's others
        parts[owner] = dataclasses.replace(parts[owner], **values)
    return RunConfig(agent=agent, env=env, seeds=seeds, preset=preset_name, **parts, **fields)


def setting_names(agent: str, preset_name: str) -> list[str]:
    """What `changes` of `run_config` may name."""
    return [name for known in _names(_parts(agent, preset_name)).values() for name in known]


def _parts(agent: str, preset_name: str, env: str | None = None) -> dict[str, Any]:
    chosen = preset(agent, preset_name, env)
    return {"train": chosen.train, "settings": chosen.agent, "save": SaveConfig()}


def _names(parts: Mapping[str, Any]) -> dict[str, list[str]]:
    return {key: [f.name for f in dataclasses.fields(part)] for key, part in parts.items()}


def _owner(parts: Mapping[str, Any], name: str) -> str:
    names = _names(parts)
    for key, known in names.items():
        if name in known:
            return key
    raise unknown("setting", name, [n for known in names.values() for n in known])


def to_json(config: RunConfig) -> dict[str, Any]:
    """Plain values only."""
    return dataclasses.asdict(config)


def identity(config: RunConfig) -> dict[str, Any]:
    """What the programs of a run follow from: not which seeds they are, nor what is saved."""
    known = to_json(config) | {"seeds": len(config.seeds)}
    return {name: value for name, value in known.items() if name != "save"}


def from_json(content: Any) -> RunConfig:
    """The inverse of `to_json`; what is missing, unknown or of another type is a ConfigError."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"a run's settings are an object, not a {type(content).__name__}")
    for name in ("agent", "env", "settings", "train"):
        if name not in content:
            raise ConfigError(f"a run's settings have a {name!r}, and here there is none")
    agent = content["agent"]
    if not isinstance(agent, str) or agent not in AGENTS:
        raise unknown("agent", str(agent), AGENTS)
    settings = decode(AGENTS[agent][0], content["settings"])
    train = decode(type(preset(agent, DEFAULT).train), content["train"])
    return decode(RunConfig, {**content, "settings": settings, "train": train})
