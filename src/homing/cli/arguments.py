"""Reading a command line: numbers as people write them, and names and flags in any order."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from homing.config.parsing import parse_count, parse_ratio
from homing.errors import ConfigError, unknown

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]
Json = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(name="json", help_behavior_hint="")]
Options = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE", help_behavior_hint="")]
IMPORT = "--import"
ABOUT_IMPORT = (
    "Every command takes --import MODULE, which registers your own environments, agents or objectives."
)
MANY = -1  # values of a flag: one or more
HELP = (tyro.conf.DisallowNone,)  # an optional value is `INT` in the help, not `{None}|INT`
numbers = ConstructorRegistry()


@numbers.primitive_rule
def _numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    rules = {int: ("INT", parse_count), float: ("FLOAT", parse_ratio)}
    if info.type not in rules:
        return None
    metavar, parse = rules[info.type]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: parse(args[0]),
        is_instance=lambda value: isinstance(value, info.type),
        str_from_instance=lambda value: [f"{value:g}" if isinstance(value, float) else str(value)],
    )


@functools.cache
def hide_absent(target: Any) -> None:
    """Leave `(default: None)` and empty defaults out of the help of a command's function or dataclass."""
    hints = typing.get_type_hints(target, include_extras=True)
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.default is None or parameter.default in ("", ()):
            hints[name] = Annotated[hints[name], tyro.conf.arg(help_behavior_hint="")]
    target.__annotations__ = hints


def matching_envs(text: str) -> list[str]:
    """Ids of environments that contain a text, or one of whose aliases does."""
    from homing.envs import ALIASES, env_ids

    part = text.lower()
    aliased = {own for alias, own in ALIASES.items() if part in alias}
    found = [id for id in env_ids() if part in id or id in aliased]
    if not found:
        raise unknown("environment", text, (*env_ids(), *ALIASES))
    return found


def parse_options(settings: Sequence[str]) -> dict[str, Any]:
    """`("task.within=0.3",)` as a mapping; values are read as JSON where they are, else as text."""
    options: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise ConfigError(f"an option is written NAME=VALUE, such as task.within=0.3, not {setting!r}")
        if name in options:
            raise ConfigError(f"the option {name} is given twice")
        try:
            options[name] = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            options[name] = text
    return options


def take_imports(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """The modules of every `--import`, wherever it stands, and the other arguments."""
    modules, rest, given = [], [], iter(args)
    for arg in given:
        name, equals, value = arg.partition("=")
        if name != IMPORT:
            rest.append(arg)
            continue
        module = value if equals else next(given, "")
        if not module or module.startswith("-"):
            raise ConfigError(f"{IMPORT} takes the name of a module, for instance {IMPORT} my_module")
        modules.append(module)
    return modules, rest


def flags_of(kind: type, prefix: str = "") -> dict[str, int]:
    """How many values each flag of a dataclass takes, by its name without the dashes."""
    flags: dict[str, int] = {}
    for name, hint in typing.get_type_hints(kind).items():
        flag = prefix + name.replace("_", "-")
        if dataclasses.is_dataclass(hint):
            flags |= flags_of(typing.cast(type, hint), f"{flag}.")
        elif hint is bool:
            flags |= {flag: 0, f"{prefix}no-{name.replace('_', '-')}": 0}
        else:
            flags[flag] = MANY if _is_tuple(hint) else 1
    return flags


def _is_tuple(hint: Any) -> bool:
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return any(typing.get_origin(part) is tuple for part in parts)


def split(
    args: Sequence[str], flags: Mapping[str, int], known: Iterable[str] = ()
) -> tuple[list[str], list[str]]:
    """Names (what belongs to no flag) and flags with their values, wherever they stand.

    Of a flag that nobody knows, the next argument counts as its value unless it is a `known` name.
    """
    names: list[str] = []
    rest: list[str] = []
    left = list(args)
    while left:
        arg = left.pop(0)
        if not arg.startswith("-") or arg == "-":
            names.append(arg)
            continue
        rest.append(arg)
        count = 0 if "=" in arg else flags.get(arg.lstrip("-").replace("_", "-"))
        if arg in ("-h", "--help"):
            continue
        if count is None and left and not left[0].startswith("-") and left[0] not in known:
            rest.append(left.pop(0))
        if count and left:  # the first is a value, whatever it looks like
            rest.append(left.pop(0))
        while count == MANY and left and "=" in left[0] and not left[0].startswith("-"):
            rest.append(left.pop(0))
    return names, rest


def value_of(flag: str, args: Sequence[str]) -> str | None:
    """The value of a flag, the last if it is given more than once; None if it is not."""
    found = None
    for i, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name.replace("_", "-") == flag:
            found = value if equals else (args[i + 1] if i + 1 < len(args) else None)
    return found


def without(flag: str, args: Sequence[str]) -> tuple[list[str], list[str]]:
    """All values of a flag that takes several, and the other arguments."""
    values: list[str] = []
    others: list[str] = []
    inside = False
    for arg in args:
        name, equals, value = arg.partition("=")
        if arg.startswith("-"):
            inside = name.replace("_", "-") == flag
            found = [value] if inside and equals else [] if inside else None
        else:
            found = [arg] if inside else None
        if found is None:
            others.append(arg)
        else:
            values += found
    return values, others
