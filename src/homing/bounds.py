"""What every setting may be: one table of ranges, and the check that all settings go through.

A config checks itself when it is made (`check`), so the command line, the API, studies and files refuse the same
values in the same words. Commands check the numbers that belong to no config with `check_values`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from homing.errors import ConfigError, shown, unknown

MAX_COUNT = 2**31 - 1  # counters on the device are int32
MAX_ENVS = 2**24
MAX_UNROLL = 32_767  # replay counts the transitions of a segment in int16
MAX_SEEDS = 100_000


@dataclasses.dataclass(frozen=True)
class Range:
    """An interval of numbers; NaN lies in none."""

    low: float
    high: float
    above: bool = False
    """The lower end is excluded."""
    below: bool = False
    """The upper end is excluded."""

    def __contains__(self, value: float) -> bool:
        low = self.low < value if self.above else self.low <= value
        return low and (value < self.high if self.below else value <= self.high)

    def words(self, whole: bool) -> str:
        """The interval as a message states it."""
        if whole:
            return f"at least {self.low} and at most {self.high}"
        low, high = f"{self.low:g}", f"{self.high:g}"
        if math.isinf(self.high):
            return f"above {low}" if self.above else f"{low} or more"
        if self.above:
            return f"above {low} and below {high}" if self.below else f"above {low}, up to {high}"
        return f"from {low} to below {high}" if self.below else f"from {low} to {high}"


COUNT = Range(1, MAX_COUNT)
ENVS = Range(1, MAX_ENVS)
EPISODE = COUNT
SEED = Range(0, MAX_COUNT)
UNIT = Range(0, 1)
RATE = Range(0, 10)  # 0 keeps a part of an agent as it is
WEIGHT = Range(0, 1e6)
LENGTH = Range(0, 1e6)  # metres
POSITIVE = Range(0, 1e6, above=True)
PIXELS = Range(16, 8192)

_LOOP = {
    "total_steps": COUNT,
    "num_envs": ENVS,
    "unroll_length": Range(1, MAX_UNROLL),
    "evaluations": Range(1, 1_000_000),
    "eval_envs": ENVS,
}
_ACTOR = {"actor_lr": RATE, "entropy_target": Range(-1e3, 1e3), "alpha_lr": RATE, "chunk": Range(1, 1024)}
_CRITIC = {"critic_lr": RATE, "random_goal_ratio": UNIT}

FRICTION = Range(0, 100, above=True)
_PANDA = {
    "frames": Range(
        10, 1000
    ),  # of a control step of 0.05 s; grips are not stable with longer ones than 0.005 s
    "friction": FRICTION,
    "impratio": Range(0, 1000, above=True),
    "iterations": Range(1, 100),
    "contacts": Range(1, 1000),
}

# By class of settings (a subclass has its base's) and name; `command` holds what belongs to no class.
BOUNDS: dict[str, dict[str, Range]] = {
    "TrainConfig": _LOOP
    | {
        "batch_size": Range(1, MAX_ENVS),
        "updates_per_step": Range(0, 1e4, above=True),
        "replay_size": COUNT,
        "prefill_steps": Range(0, MAX_COUNT),
        "train_episode_length": EPISODE,
        "greedy_env_fraction": UNIT,
        "replay_recent_fraction": Range(0, 1, above=True),
        "lr_final_scale": UNIT,
        "policy_ema": Range(0, 1, below=True),
        "prefetch_bytes": Range(1, 2**40),
    },
    "OnPolicyConfig": _LOOP,
    "SaveConfig": {"checkpoint_minutes": Range(0, 1e6), "keep_checkpoints": Range(1, 1000)},
    "RunConfig": {"episode_length": EPISODE},
    "NetConfig": {"width": Range(1, 65_536), "depth": Range(1, 4096)},
    "CRLConfig": _ACTOR
    | _CRITIC
    | {
        "logsumexp_weight": WEIGHT,
        "gamma": Range(0, 1, above=True, below=True),
        "representation_dim": Range(1, 65_536),
        "bc_weight": WEIGHT,
    },
    "GCBCConfig": {"gamma": Range(0, 1, above=True, below=True), "actor_lr": RATE},
    "ActorCriticConfig": _ACTOR
    | _CRITIC
    | {"gamma": Range(0, 1, below=True), "her_ratio": UNIT, "tau": Range(0, 1, above=True)},
    "SRLConfig": _ACTOR
    | {
        "gamma": Range(0, 1, above=True, below=True),
        "goal_gamma": Range(0, 1, above=True, below=True),
        "future_ratio": UNIT,
        "current_ratio": UNIT,
        "horizon": Range(1, 100_000),
        "hazard_bins": Range(1, 100_000),
        "occupancy_bins": Range(1, 100_000),
        "dwell": Range(1, 10_000),
        "time_weight": WEIGHT,
        "separation_weight": WEIGHT,
        "occupancy_weight": WEIGHT,
        "survival_weight": WEIGHT,
        "representation_dim": Range(1, 65_536),
        "critic_lr": RATE,
    },
    "TD3Config": {
        "delay": Range(1, 1_000_000),
        "exploration_noise": Range(0, 1e3),
        "target_noise": Range(0, 1e3),
        "noise_clip": Range(0, math.inf),
        "action_cost": WEIGHT,
    },
    "PPOConfig": {
        "gamma": UNIT,
        "gae_lambda": UNIT,
        "clip": POSITIVE,
        "entropy_weight": WEIGHT,
        "value_weight": WEIGHT,
        "reward_scale": POSITIVE,
        "minibatches": Range(1, MAX_ENVS),
        "epochs": Range(1, 10_000),
        "lr": RATE,
        "max_grad_norm": Range(0, math.inf, above=True),  # infinite: no clipping
    },
    "Ring": {"radius": LENGTH, "outer": LENGTH},
    "Points": {"spread": LENGTH},
    "Away": {"distance": LENGTH},
    "Around": {"least": LENGTH, "most": LENGTH},
    "FreeCells": {"spread": LENGTH},
    "CellPairs": {"least": COUNT, "most": COUNT, "spread": LENGTH},
    "InReach": {"apart": LENGTH},
    "GoalOptions": {"renew": COUNT},
    "Panda": _PANDA | {"start_noise": Range(0, 0.5)},
    "PandaHand": _PANDA,
    "Cube": {
        "half": Range(0.005, 0.045),  # wider than the open fingers it could not be gripped
        "mass": POSITIVE,
        "table_friction": FRICTION,
        "finger_friction": FRICTION,
    },
    "Table": {
        "depth": LENGTH,
        "half": POSITIVE,
        "height": POSITIVE,
        "thickness": POSITIVE,
        "friction": FRICTION,
    },
    "MoveCube": {"within": POSITIVE, "apart": LENGTH},
    "Grasp": {"within": POSITIVE},
    "Soccer": {"within": POSITIVE, "clear": LENGTH},
    "PushPucks": {"within": POSITIVE, "apart": LENGTH},
    "Reach": {"within": POSITIVE},
    "command": {
        "num_envs": ENVS,
        "episode_length": EPISODE,
        "within": POSITIVE,
        "seeds": Range(1, MAX_SEEDS),
        "seed": SEED,
        "start_seed": SEED,
        "episodes": Range(1, 2**20),
        "chain": Range(1, 1000),
        "chain_steps": Range(1, 1_000_000),
        "steps": Range(1, 1_000_000),
        "repeats": Range(1, 10_000),
        "seconds": Range(0, 1e5, above=True),
        "width": PIXELS,
        "height": PIXELS,
        "port": Range(0, 65_535),
        "devices": Range(0, 1024),
        "workers": Range(0, 1024),
        "dead_after": Range(1, 86_400),
        "population": Range(1, MAX_SEEDS),
        "memory": Range(0, 1e6, above=True),
        "scale": Range(0.0, 1.0, above=True),
        "noise": Range(0.0, 10.0),
        "random_actions": Range(0.0, 1.0),
        "val_fraction": Range(0.0, 1.0, below=True),
        "parallel": Range(1, 2**16),
    },
}


def range_of(kind: type, name: str) -> Range | None:
    """The range of a class's field, by the class or one it derives from."""
    for base in kind.__mro__:
        if found := BOUNDS.get(base.__name__, {}).get(name):
            return found
    return None


def check(config: Any) -> None:
    """Refuse a dataclass one of whose fields has the wrong type or lies outside its range.

    Numbers become plain ones of their field's type: 1 in a float field is stored as 1.0, a NumPy scalar as a
    Python number. Traced values pass: in a population they were checked as plain numbers before.
    """
    kind = type(config)
    for name, hint in hints_of(kind).items():
        old = getattr(config, name)
        new = checked(name, old, hint, range_of(kind, name))
        if new is not old:
            object.__setattr__(
                config, name, new
            )  # the dataclass is frozen, and this is its own __post_init__


def check_value(name: str, value: Any) -> None:
    """Refuse a number of a command that lies outside its range."""
    range = BOUNDS["command"][name]
    checked(name, value, int if isinstance(range.high, int) else float, range)


def check_values(**values: Any) -> None:
    """`check_value` of those that are given."""
    for name, value in values.items():
        if value is not None:
            check_value(name, value)


def checked(name: str, value: Any, hint: Any, range: Range | None = None) -> Any:
    """The value as its type hint wants it; a ConfigError where it does not fit."""
    if isinstance(value, Tracer):
        return value
    kinds = typing.get_args(hint) if _is_union(hint) else (hint,)
    if value is None and types.NoneType in kinds:
        return None
    choices = choices_of(hint)
    if choices and (isinstance(value, str) or not any(kind in kinds for kind in _PLAIN)):
        if not isinstance(value, str) or value not in choices:
            raise unknown(name.replace("_", " "), value, choices)
        return value
    for kind, convert in _PLAIN.items():
        if kind in kinds:
            return convert(name, value, range)
    parts = [kind for kind in kinds if kind is not types.NoneType]
    plain = all(isinstance(part, type) and dataclasses.is_dataclass(part) for part in parts)
    if plain and not isinstance(value, tuple(parts)):
        names = " or ".join(part.__name__ for part in parts)
        raise ConfigError(f"{name} must be a {names}, not {shown(value)}")
    _check_inner(name, value)
    return value


def choices_of(hint: Any) -> list[Any]:
    """The values of the Literals in a type hint."""
    kinds = typing.get_args(hint) if _is_union(hint) else (hint,)
    return [choice for kind in kinds if typing.get_origin(kind) is typing.Literal for choice in kind.__args__]


def _whole(name: str, value: Any, range: Range | None) -> int:
    number = _number(value)
    if isinstance(number, float) and number.is_integer():  # 1e6 is as good as 1000000
        number = int(number)
    if not isinstance(number, int):
        raise ConfigError(f"{name} must be a whole number, not {shown(value)}")
    if range is not None and number not in range:
        raise ConfigError(f"{name} must be {range.words(whole=True)}, not {shown(value)}")
    return number


def _real(name: str, value: Any, range: Range | None) -> float:
    number = _number(value)
    if number is None:
        raise ConfigError(f"{name} must be a number, not {shown(value)}")
    if math.isnan(number) or (range is not None and number not in range):
        allowed = "a number" if range is None else range.words(whole=False)
        raise ConfigError(f"{name} must be {allowed}, not {number:g}")
    return float(number)


def _flag(name: str, value: Any, range: Range | None) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be true or false, not {shown(value)}")
    return bool(value)


def _text(name: str, value: Any, range: Range | None) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text, not {shown(value)}")
    return value


_PLAIN = {bool: _flag, int: _whole, float: _real, str: _text}


def _number(value: Any) -> int | float | None:
    """A plain number of one that is: Python's, NumPy's or an array of one entry; None of anything else."""
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        return None
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _check_inner(name: str, value: Any) -> None:
    """Numbers inside of tuples and mappings are numbers."""
    if isinstance(value, (tuple, list, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            _check_inner(name, part)
    elif isinstance(value, float) and math.isnan(value):
        raise ConfigError(f"{name} must be made of numbers, not {value}")


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


@functools.cache
def hints_of(kind: type) -> dict[str, Any]:
    """Type hints of a dataclass's fields; none where they cannot be resolved, as in a class made in a function."""
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, TypeError):
        return {}
    return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
