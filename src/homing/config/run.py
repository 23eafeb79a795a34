"""Everything that defines a run, as one frozen object that is written to JSON and read back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from homing import bounds, plugins
from homing.agents import agent_types, check_settings
from homing.bounds import MAX_SEEDS
from homing.config.decoding import decode
from homing.config.offpolicy import COLLECTION, TrainConfig, offline
from homing.config.presets import preset, train_kind
from homing.envs.registry import resolve
from homing.errors import ConfigError, HomingError, shown, unknown
from homing.networks import NetConfig
from homing.values import plain

MAX_SEED = bounds.SEED.high


@dataclasses.dataclass(frozen=True)
class SaveConfig:
    """What a run writes, beside its metrics, and how often."""

    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints to resume from (they hold the replay); 0 makes one at every evaluation."""
    keep_checkpoints: int = 2
    """Checkpoints kept; an older one serves where the newest is damaged."""
    final_checkpoint: bool = True
    """Make one more checkpoint at the end of the run."""
    eval_at_start: bool = True
    """Evaluate before the first step too, so that curves begin with the untrained policy."""
    tensorboard: Literal["auto", "on", "off"] = "auto"
    """TensorBoard events; auto writes them where tensorboardX is installed."""
    wandb: Literal["off", "offline", "online"] = "off"
    """Weights & Biases; offline needs no account."""

    def __post_init__(self) -> None:
        bounds.check(self)


@dataclasses.dataclass(frozen=True)
class DataFile:
    """The dataset that a run learns from instead of collecting."""

    path: str
    sha256: str = ""
    """Digest of the file; empty until it is read."""


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """One run: an agent in an environment, for some seeds, by these settings."""

    agent: str
    env: str
    train: Any
    """Settings of the training loop: a TrainConfig, or an OnPolicyConfig for an on-policy agent."""
    settings: Any
    """Settings of the agent."""
    seeds: tuple[int, ...] = (0,)
    preset: str = "paper"
    eval_env: str | None = None
    episode_length: int = 1000
    physics: str | None = None
    reward: Literal["sparse", "dense"] = "sparse"
    env_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Settings of body, task or arena by dotted name."""
    imports: tuple[str, ...] = ()
    """Modules that register what the run needs; whatever reads the run imports them first."""
    save: SaveConfig = dataclasses.field(default_factory=SaveConfig)
    data: DataFile | None = None
    """Learn from a dataset; a step is then an update."""
    init_from: str | None = None
    """The run, policy file or shipped policy whose parameters the learners start with; the run has a copy of them."""

    def __post_init__(self) -> None:
        bounds.check(self)
        resolve(self.env)
        if self.eval_env is not None:
            resolve(self.eval_env)
        check_settings(self.agent, self.settings)
        self._check_loop()
        _check_seeds(self.seeds)
        for module in self.imports:
            plugins.check_name(module)
        if not isinstance(self.env_options, Mapping):
            raise ConfigError(f"env_options must be a mapping by name, not {shown(self.env_options)}")
        object.__setattr__(self, "env_options", _plain_options(self.env_options))

    def _check_loop(self) -> None:
        """Refuse settings of a loop that is not the agent's."""
        kind, agent = train_kind(agent_types(self.agent)[1]), agent_types(self.agent)[1]
        if type(self.train) is not kind:
            raise ConfigError(f"{self.agent} is trained by a {kind.__name__}, not by {shown(self.train)}")
        least = getattr(agent, "min_batch_size", 1)
        if getattr(self.train, "batch_size", least) < least:
            raise ConfigError(
                f"batch_size must be at least {least} for {self.agent}, not {self.train.batch_size}: "
                "it learns from the differences between the transitions of a batch"
            )
        if self.data is not None:
            self._check_offline(kind)

    def _check_offline(self, kind: type) -> None:
        """Refuse a dataset for a loop or a reward that cannot use it."""
        if kind is not TrainConfig:
            raise ConfigError(
                f"{self.agent} learns from rollouts of its own policy, not from data; "
                "use an off-policy agent such as gcbc or crl"
            )
        if self.reward != "sparse":
            raise ConfigError("a dataset has no rewards: with --data only the sparse reward can be used")
        if self.train != offline(self.train):
            raise ConfigError(
                "these settings collect transitions, and with data nothing is collected; "
                "make them with homing.config.offpolicy.offline"
            )


def _plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options that a run's file can hold and give back: no parts, which are of Python alone."""
    try:
        return {name: plain(f"option {name!r} of a run", value) for name, value in options.items()}
    except ConfigError as error:
        raise ConfigError(f"{error}; for another part, register an environment of your own") from None


def _check_seeds(seeds: tuple[int, ...]) -> None:
    if not seeds:
        raise ConfigError("a run needs at least one seed")
    if len(seeds) > MAX_SEEDS:
        raise ConfigError(f"seeds must be at least 1 and at most {MAX_SEEDS}, not {len(seeds)}")
    for seed in seeds:
        bounds.check_value("seed", seed)
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"seeds {shown(seeds)}: one of them is named twice")


def parse_seeds(seeds: Any) -> tuple[int, ...]:
    """Seeds 0, 1, … for a number of them, or the seeds themselves for a sequence."""
    if isinstance(seeds, (str, bytes, bool)) or not isinstance(seeds, (int, Sequence)):
        raise ConfigError(f"seeds is a number of seeds or a list of them, not {shown(seeds)}")
    if isinstance(seeds, int):
        if seeds < 1:
            raise ConfigError(f"a run needs at least one seed, not {seeds}")
        bounds.check_value("seeds", seeds)
        return tuple(range(seeds))
    return tuple(seeds)


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
    if fields.get("data") is not None:
        check_offline_changes(changes or {})
        parts["train"] = _offline(agent, parts["train"], (changes or {}).get("total_steps"))
    owned: dict[str, dict[str, Any]] = {}
    for name, value in (changes or {}).items():
        owned.setdefault(_owner(parts, name), {})[name] = value
    for owner, values in owned.items():  # all at once: one alone may not go with the preset's others
        values = {name: _whole_net(getattr(parts[owner], name), value) for name, value in values.items()}
        parts[owner] = dataclasses.replace(parts[owner], **values)
        bounds.check(parts[owner])  # also where a user's own config does not check itself
    fields.setdefault("imports", plugins.modules_for(agent, (env, fields.get("eval_env"))))
    return RunConfig(agent=agent, env=env, seeds=seeds, preset=preset_name, **parts, **fields)


def _whole_net(preset_net: Any, value: Any) -> Any:
    """A network of the preset with some settings changed, where `value` is a mapping of them."""
    if not isinstance(preset_net, NetConfig) or not isinstance(value, Mapping):
        return value
    known = [field.name for field in dataclasses.fields(NetConfig)]
    for name in value:
        if name not in known:
            raise unknown("setting of a network:", name, known)
    return dataclasses.replace(preset_net, **value)


def check_offline_changes(names: Iterable[str]) -> None:
    """Refuse settings of collection beside a dataset."""
    for name in names:
        if name in COLLECTION:
            raise ConfigError(
                f"{name} has no meaning with data, which is learned from as it is: leave it out; "
                "total_steps counts updates"
            )


def _offline(agent: str, train: Any, updates: Any) -> Any:
    """A preset's settings for a dataset; those of another loop are refused later, with the agent's name."""
    if not isinstance(train, TrainConfig):
        return train
    if updates is not None:
        train = dataclasses.replace(train, total_steps=updates)  # checks it
        updates = train.total_steps
    return offline(train, updates)


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
    """What the programs of a run follow from: not which seeds they are, what they start with, nor what is saved."""
    known = to_json(config) | {"seeds": len(config.seeds)}
    return {name: value for name, value in known.items() if name not in ("save", "init_from")}


def from_json(content: Any) -> RunConfig:
    """The inverse of `to_json`, after the modules that the run needs; unknown settings are an error."""
    if not isinstance(content, Mapping):
        raise HomingError(f"a run's config is a JSON object, not {shown(content)}")
    if missing := [name for name in ("agent", "env", "train", "settings") if name not in content]:
        raise HomingError(f"a run's config needs {missing[0]!r}, and this one has none")
    for name in ("train", "settings"):
        if not isinstance(content[name], Mapping):
            raise HomingError(f"{name} in a run's config is a JSON object, not {shown(content[name])}")
    imports = content.get("imports", ())
    if not isinstance(imports, (list, tuple)):
        raise HomingError(f"imports in a run's config is a list of modules, not {shown(imports)}")
    plugins.require(imports)
    config, agent = agent_types(content["agent"])
    settings = decode(config, content["settings"])
    train = decode(train_kind(agent), content["train"])
    return decode(RunConfig, {**content, "settings": settings, "train": train})
