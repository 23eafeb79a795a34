"""Frozen settings from plain JSON values, with every type checked."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from homing.errors import ConfigError, unknown

MAX_SETTING = 2**53  # the largest whole number that a float64 counts to


def decode(kind: type, content: Any) -> Any:
    """A dataclass from the plain values of its fields, nested ones too."""
    if not isinstance(content, Mapping):
        raise ConfigError(f"settings of {kind.__name__} are an object, not {content!r:.40}")
    hints = typing.get_type_hints(kind)
    values = {}
    for name, value in content.items():
        if name not in hints:
            raise unknown(f"setting of {kind.__name__}:", str(name), hints)
        values[name] = _decoded(hints[name], value, f"{kind.__name__}.{name}")
    required = [f.name for f in dataclasses.fields(kind) if not _has_default(f) and f.name not in values]
    if required:
        raise ConfigError(f"{kind.__name__}.{required[0]} is missing")
    return kind(**values)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    missing = dataclasses.MISSING
    return field.default is not missing or field.default_factory is not missing


def _decoded(hint: Any, value: Any, name: str) -> Any:
    """A value as its type hint wants it: lists become tuples and objects dataclasses."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _either(args, value, name)
    if dataclasses.is_dataclass(hint) and not isinstance(value, hint):  # type: ignore[arg-type]
        return decode(hint, value)  # type: ignore[arg-type]
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _mismatch(name, value, "a list")
        return tuple(_decoded(args[0], entry, name) for entry in value)
    if origin is Literal:
        if not isinstance(value, str) or value not in args:
            raise _mismatch(name, value, " or ".join(map(str, args)))
    elif not _is_plain(hint if origin is None else origin, value):
        raise _mismatch(name, value, getattr(hint, "__name__", str(hint)))
    return value


def _either(hints: tuple[Any, ...], value: Any, name: str) -> Any:
    """A value as the first of some hints that it fits; the error is that of the last."""
    *first, last = sorted(hints, key=lambda hint: hint is not type(None))
    for hint in first:
        with contextlib.suppress(ConfigError):
            return _decoded(hint, value, name)
    return _decoded(last, value, name)


def _is_plain(hint: Any, value: Any) -> bool:
    """Whether a value that is no container has its type; whole numbers are floats too, booleans are not."""
    if hint is Any:
        return True
    if hint in (int, float):
        kinds = int if hint is int else (int, float)
        small = not isinstance(value, int) or abs(value) <= MAX_SETTING
        return isinstance(value, kinds) and not isinstance(value, bool) and small
    return isinstance(value, hint)


def _mismatch(name: str, value: Any, wanted: str) -> ConfigError:
    return ConfigError(f"{name} is {value!r:.40}, not {wanted}")
