"""One value against its type hint and range: converted where it fits, refused in one message where it does not."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from homing.errors import ConfigError, shown, unknown


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
    if len(parts) == 1 and typing.get_origin(parts[0]) is tuple and (range or _are_parts(_entries(parts[0]))):
        return _tuple(name, value, parts[0], range)
    if _are_parts(parts) and not isinstance(value, tuple(parts)):
        names = " or ".join(part.__name__ for part in parts)
        raise ConfigError(f"{name} must be a {names}, not {shown(value)}")
    _check_inner(name, value)
    return value


def plain(name: str, value: Any) -> Any:
    """A value as JSON can hold it: numbers, texts, true, false and None, and lists and mappings of them."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (tuple, list)):
        return type(value)(plain(name, part) for part in value)
    if isinstance(value, Mapping):
        return {key: plain(name, part) for key, part in value.items()}
    number = number_of(value)
    if number is None:
        raise ConfigError(f"{name} must be made of numbers, texts and lists, not {shown(value)}")
    return number


def allows_none(hint: Any) -> bool:
    """Whether a type hint allows None."""
    return _is_union(hint) and types.NoneType in typing.get_args(hint)


def choices_of(hint: Any) -> list[Any]:
    """The values of the Literals in a type hint."""
    kinds = typing.get_args(hint) if _is_union(hint) else (hint,)
    return [choice for kind in kinds if typing.get_origin(kind) is typing.Literal for choice in kind.__args__]


def _whole(name: str, value: Any, range: Range | None) -> int:
    number = number_of(value)
    if isinstance(number, float) and number.is_integer():  # 1e6 is as good as 1000000
        number = int(number)
    if not isinstance(number, int):
        raise ConfigError(f"{name} must be a whole number, not {shown(value)}")
    if range is not None and number not in range:
        raise ConfigError(f"{name} must be {range.words(whole=True)}, not {shown(value)}")
    return number


def _real(name: str, value: Any, range: Range | None) -> float:
    number = number_of(value)
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
        raise ConfigError(f"{name} must be a string, not {shown(value)}")
    return value


_PLAIN = {bool: _flag, int: _whole, float: _real, str: _text}


def number_of(value: Any) -> int | float | None:
    """A plain number of one that is: Python's, NumPy's or an array of one entry; None of anything else."""
    if isinstance(value, (np.ndarray, jax.Array)) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        return None
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def _are_parts(kinds: Sequence[Any]) -> bool:
    """Whether values of these types are parts: instances of a dataclass, or of a protocol that can be checked."""
    checkable = lambda kind: dataclasses.is_dataclass(kind) or getattr(kind, "_is_runtime_protocol", False)
    return all(isinstance(kind, type) and checkable(kind) for kind in kinds)


def _entries(hint: Any) -> tuple[Any, ...]:
    """Type hints of the entries of a tuple, the same for all where there may be any number."""
    return tuple(kind for kind in typing.get_args(hint) if kind is not Ellipsis)


def _tuple(name: str, value: Any, hint: Any, range: Range | None) -> tuple[Any, ...]:
    """A tuple whose entries are checked, of a list or an array too."""
    listed = isinstance(value, (tuple, list)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    if not listed:
        raise ConfigError(f"{name} must be a list, not {shown(value)}")
    kinds = _entries(hint)
    if Ellipsis in typing.get_args(hint):
        kinds *= len(value)
    if len(kinds) != len(value):
        raise ConfigError(f"{name} must be a list of {len(kinds)} entries, not of {len(value)}")
    return tuple(
        _tuple(name, part, kind, range)
        if typing.get_origin(kind) is tuple
        else checked(f"each entry of {name}", part, kind, range)
        for part, kind in zip(value, kinds, strict=True)
    )


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
