"""Everything that defines a run, as one frozen object that is written to JSON and read back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol

from homing.agents import AGENTS, make_agent
from homing.envs import make
from homing.envs.registry import resolve
from homing.errors import ConfigError, unknown
from homing.presets import DEFAULT, preset
from homing.training.loops import make_loop, make_plan

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


class Parts(NamedTuple):
    """What a run is made of; nothing is allocated or compiled yet."""

    env: Any
    eval_env: Any
    agent: Any
    plan: Any  # a Schedule, of the loop's kind

    @property
    def loop(self) -> Any:
        """The training loop of one seed."""
        return make_loop(self.env, self.agent, self.plan)


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


def build(config: RunConfig) -> Parts:
    """Environments, agent and plan; every impossible setting is found here."""
    env = environment(config, config.env, config.train.num_envs)
    if config.eval_env in (None, config.env):
        eval_env = env
    else:
        eval_env = environment(config, config.eval_env, config.train.eval_envs)
    eval_env = eval_env.of_size(config.train.eval_envs, restarts=False)
    check_alike(env, eval_env)
    env = _cut_short(env, config)
    agent = make_agent(config.settings, env.spec)
    check_relabelled_reward(config, env, agent)
    return Parts(env, eval_env, agent, make_plan(config.train, env, agent, seeds=len(config.seeds)))


def _cut_short(env: Any, config: RunConfig) -> Any:
    """The environment to train in, whose episodes may end sooner than the evaluation's."""
    length = getattr(config.train, "restart_after", None)
    if length is None or length >= config.episode_length:
        return env
    return env.of_size(config.train.num_envs, episode_length=length)


class InEnvironment(Protocol):
    """The settings by which an environment is made; a RunConfig has them."""

    @property
    def env(self) -> str: ...
    @property
    def episode_length(self) -> int: ...
    @property
    def physics(self) -> str | None: ...
    @property
    def reward(self) -> str: ...
    @property
    def options(self) -> Mapping[str, Any]: ...


def environment(config: InEnvironment, id: str, num_envs: int) -> Any:
    """An environment of the run; its options hold for the one that is trained in."""
    return make(
        id,
        num_envs=num_envs,
        episode_length=config.episode_length,
        physics=config.physics,
        reward=config.reward,
        options=config.options if id == config.env else None,
    )


def check_relabelled_reward(config: RunConfig, env: Any, agent: Any) -> None:
    """A dense reward is computed anew from stored states: narrow ones would drown it in rounding."""
    storage = getattr(config.train, "storage", "float32")
    relabels = getattr(agent, "goal_sampler", "commanded") != "commanded"
    if env.shaping is not None and relabels and storage != "float32":
        raise ConfigError(
            f"a dense reward for other goals needs --storage float32, not {storage}; "
            "or train with the sparse reward, or without --her"
        )


def check_alike(env: Any, other: Any) -> None:
    """Refuse to evaluate a policy where its states, goals or actions have other sizes."""
    for name in ("state_dim", "goal_dim", "action_dim"):
        ours, theirs = getattr(env.spec, name), getattr(other.spec, name)
        if ours != theirs:
            raise ConfigError(
                f"a policy of {env.spec.id} cannot act in {other.spec.id}: "
                f"{name} is {theirs} there and {ours} here"
            )


def to_json(config: RunConfig) -> dict[str, Any]:
    """Plain values only."""
    return dataclasses.asdict(config)


def identity(config: RunConfig) -> dict[str, Any]:
    """What the programs of a run follow from: not which seeds they are, nor what is saved."""
    known = to_json(config) | {"seeds": len(config.seeds)}
    return {name: value for name, value in known.items() if name != "save"}


def from_json(content: Mapping[str, Any]) -> RunConfig:
    """The inverse of `to_json`; settings that this version does not know are an error."""
    agent = content["agent"]
    if agent not in AGENTS:
        raise unknown("agent", agent, AGENTS)
    settings = decode(AGENTS[agent][0], content["settings"])
    train = decode(type(preset(agent, DEFAULT).train), content["train"])
    return decode(RunConfig, {**content, "settings": settings, "train": train})


def decode(kind: type, content: Mapping[str, Any]) -> Any:
    """A dataclass from the plain values of its fields, nested ones too."""
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in content.items():
        if name not in hints:
            raise unknown(f"setting of {kind.__name__} in a run's config:", name, hints)
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, Mapping):
            value = decode(hints[name], value)  # type: ignore[arg-type]
        elif typing.get_origin(hints[name]) is tuple:
            value = tuple(value)
        values[name] = value
    return kind(**values)
