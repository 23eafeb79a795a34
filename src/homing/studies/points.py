"""The runs of a study: each grid point as a validated `RunConfig`."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from homing.config.parsing import parse_count, parse_ratio
from homing.config.presets import DEFAULT
from homing.config.run import RunConfig, SaveConfig, parse_seeds, run_config, setting_names
from homing.errors import ConfigError, HomingError, shown, unknown
from homing.networks import NetConfig
from homing.studies.spec import Changes, Labels, Study

# Fields of a RunConfig that a study may set, besides the settings of training and agent.
RUN_FIELDS = (
    "agent",
    "env",
    "preset",
    "seeds",
    "eval_env",
    "episode_length",
    "physics",
    "reward",
    "env_options",
)
NAMES = ("agent", "env", "preset", "eval_env", "physics", "reward")
"""The fields that hold a name."""
# A study has many runs: checkpoints are only kept for resuming.
SAVE: Changes = {"keep_checkpoints": 1, "final_checkpoint": False, "tensorboard": "off"}

PART = ".seeds_"
"""Between a run's name and the seeds of a part of it."""
MIN_ITERATIONS = 16
MIN_ENVS, MIN_EVAL_ENVS = 16, 8
MIN_EVALUATIONS = 4


@dataclasses.dataclass(frozen=True)
class Point:
    """One run: its labels in the grid, the name of its folder, and its config."""

    labels: Labels
    name: str
    config: RunConfig


@dataclasses.dataclass(frozen=True)
class Choice:
    """Overrides of a study: its scale, seeds and settings."""

    scale: float = 1.0
    seeds: int | None = None
    """Overrides the study's number of seeds."""
    changes: Changes = dataclasses.field(default_factory=dict)
    """Settings that override all others."""

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise ConfigError(f"scale {self.scale:g} must be above 0 and at most 1, for instance 0.02")
        if self.seeds is not None and self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}; it must be at least 1")


def points(study: Study, choice: Choice | None = None) -> list[Point]:
    """All runs of a study in grid order; raises for the first invalid setting."""
    choice = choice or Choice()
    made: list[Point] = []
    known: dict[str, None] = {}
    for labels, changes in study.points():
        try:
            known |= (has := dict.fromkeys(_known(changes)))
            # Agents have different settings: each gets those that it has.
            above = {name: value for name, value in choice.changes.items() if name.partition(".")[0] in has}
            config = _config({**changes, **above}, choice)
        except HomingError as error:
            where = ", ".join(f"{axis} = {label}" for axis, label in labels.items())
            raise ConfigError(f"study {study.name} at {where}: {error}") from None
        made.append(Point(labels, slug(labels), config))
    if not made:
        raise ConfigError(f"study {study.name} has no runs: its [[skip]] rules leave out the whole grid")
    for name in choice.changes:
        if name.partition(".")[0] not in known:
            raise unknown("setting", name, known)
    if len({point.name for point in made}) < len(made):
        raise ConfigError(f"study {study.name}: two runs would have the same folder; rename their labels")
    return made


def selected(made: Sequence[Point], only: Mapping[str, Sequence[str]]) -> list[Point]:
    """The points with the given labels; raises for a label that no point has."""
    for axis, wanted in only.items():
        axes = sorted({name for point in made for name in point.labels})
        if axis not in axes:
            raise unknown("axis", axis, axes)
        known = dict.fromkeys(str(point.labels[axis]) for point in made if axis in point.labels)
        for label in wanted:
            if label not in known:
                raise unknown(f"value of {axis}", label, known)
    chosen = [
        point for point in made if all(str(point.labels.get(axis)) in wanted for axis, wanted in only.items())
    ]
    if not chosen:
        raise ConfigError("no run matches all of these labels")
    return chosen


def parse_only(asked: Sequence[str]) -> dict[str, list[str]]:
    """Parse `("objective=dpo,ipo", "env=ant")` into labels by axis."""
    only: dict[str, list[str]] = {}
    for text in asked:
        axis, equals, labels = text.partition("=")
        if not equals or not labels:
            raise ConfigError(f"--only takes AXIS=LABEL[,LABEL], for instance env=ant, not {text!r}")
        only.setdefault(axis.strip(), []).extend(label.strip() for label in labels.split(","))
    return only


def part_of(point: Point, seeds: tuple[int, ...]) -> Point:
    """The point with some of its seeds, in a folder of its own; the point itself if they are all."""
    if seeds == point.config.seeds:
        return point
    name = f"{base_of(point.name)}{PART}{seeds[0]}-{seeds[-1]}"
    return Point(point.labels, name, dataclasses.replace(point.config, seeds=seeds))


def base_of(name: str) -> str:
    """The name of the run that a folder is of, or is a part of."""
    return name.partition(PART)[0]


def slug(labels: Labels) -> str:
    """A folder name from labels, such as ant-dpo."""
    text = "-".join(_readable(axis, label) for axis, label in labels.items())
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", text.replace("×", "x")).strip("_")


def _readable(axis: str, label: Any) -> str:
    plain = isinstance(label, str) and not label[:1].isdigit()
    return label if plain else f"{axis}={label}".replace("=", "_")


def _known(changes: Changes) -> list[str]:
    """Names that can be set for a run with these changes; `net` addresses all its networks."""
    if "agent" not in changes:
        return [*RUN_FIELDS]
    return [*RUN_FIELDS, "net", *setting_names(changes["agent"], changes.get("preset", DEFAULT))]


def _config(changes: Changes, choice: Choice) -> RunConfig:
    fields = {name: value for name, value in changes.items() if name in RUN_FIELDS}
    settings = {name: value for name, value in changes.items() if name not in RUN_FIELDS}
    for needed in ("agent", "env"):
        if needed not in fields:
            raise ConfigError(f"no {needed} is given, neither in [run] nor in the grid")
    for name in NAMES:
        if isinstance(fields.get(name), list):
            raise ConfigError(f"{name} is a list; [run] takes one name, and [grid] a list of them")
        if not isinstance(fields.get(name, ""), str):
            raise ConfigError(f"{name} must be a string, not {shown(fields[name])}")
    requested = fields.pop("seeds", 1)
    seeds = parse_seeds(requested if choice.seeds is None else choice.seeds)
    agent, env, name = fields.pop("agent"), fields.pop("env"), fields.pop("preset", DEFAULT)
    base = run_config(agent, env, preset_name=name, seeds=seeds, changes=SAVE, **fields)
    config = run_config(
        agent,
        env,
        preset_name=name,
        seeds=seeds,
        changes=SAVE | changed_parts(base, settings),
        **fields,
    )
    return scaled(config, choice.scale)


def changed_parts(config: RunConfig, settings: Mapping[str, Any]) -> Changes:
    """Changes by field; `critic_net.width` changes one network, `net.width` all networks of the agent.

    A table of settings, `critic_net = { width = 64 }`, does the same.
    """
    changes: Changes = {}
    nets: dict[str, Changes] = {name: {} for name in _networks(config)}
    for name, value in settings.items():
        head, _, tail = name.partition(".")
        if not tail and not (isinstance(value, Mapping) and head in ("net", *nets)):
            changes[name] = _typed(config, name, value)
            continue
        if head != "net" and head not in nets:
            raise unknown("network", head, ["net", *nets])
        given = _net_settings({tail: value} if tail else value)
        for field in nets if head == "net" else (head,):
            nets[field] |= given
    # All settings of a network at once: one alone may not go with the preset's others.
    replaced = {
        field: dataclasses.replace(getattr(config.settings, field), **given)
        for field, given in nets.items()
        if given
    }
    return replaced | changes


def _net_settings(given: Mapping[str, Any]) -> Changes:
    """Settings of a network, checked and converted to their types."""
    known = typing.get_type_hints(NetConfig)
    for name in given:
        if name not in known:
            raise unknown("setting of a network:", name, known)
    return {name: _number(known[name], value, name) for name, value in given.items()}


def _networks(config: RunConfig) -> list[str]:
    fields = dataclasses.fields(config.settings)
    return [field.name for field in fields if isinstance(getattr(config.settings, field.name), NetConfig)]


def _typed(config: RunConfig, name: str, value: Any) -> Any:
    """A value converted to its field's type: `50M` to an int, `1/16` to a ratio."""
    for part in (config.train, config.settings, SaveConfig()):
        kind = typing.get_type_hints(type(part)).get(name)
        if kind is not None:
            return _number(kind, value, name)
    return value  # `run_config` raises for unknown names


def _number(kind: Any, value: Any, name: str = "") -> Any:
    if kind not in (int, float, bool, str):
        return value
    try:
        if isinstance(value, str) and kind in (int, float):
            return parse_count(value) if kind is int else parse_ratio(value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
        raise ConfigError(f"{name or 'a setting'} is {value!r}; it must be a {kind.__name__}")
    return value


def scaled(config: RunConfig, scale: float) -> RunConfig:
    """The run with its length, replay, prefill and evaluations scaled; learning settings are unchanged.

    If it would have too few iterations, the number of environments is reduced instead.
    """
    if scale == 1:
        return config
    train = config.train
    unroll = train.unroll_length
    changes: Changes = {
        "total_steps": max(round(train.total_steps * scale), MIN_ITERATIONS * MIN_ENVS * unroll),
        "evaluations": min(train.evaluations, max(MIN_EVALUATIONS, round(train.evaluations * scale))),
        "eval_envs": min(train.eval_envs, max(MIN_EVAL_ENVS, round(train.eval_envs * scale))),
    }
    for name in ("replay_size", "prefill_steps"):
        if getattr(train, name, 0):
            changes[name] = max(unroll, round(getattr(train, name) * scale))
    num_envs = max(MIN_ENVS, changes["total_steps"] // (MIN_ITERATIONS * unroll))
    if num_envs < train.num_envs:
        changes["num_envs"] = 2 ** int(math.log2(num_envs))  # batches and minibatches divide powers of two
    return dataclasses.replace(config, train=dataclasses.replace(train, **changes))
