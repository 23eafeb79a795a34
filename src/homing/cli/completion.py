"""Completion of commands, flags and names in a shell, as a script without calls to Python: `completion`."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import tyro

Shell = Literal["bash", "zsh"]


@dataclasses.dataclass(frozen=True)
class Command:
    """What may follow a command."""

    flags: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Words that may stand without a flag; files are offered as well."""
    values: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Choices of flags that have them."""


def completion(shell: Annotated[Shell, tyro.conf.Positional]) -> None:
    """Print a script that completes commands, flags and names in your shell.

    Args:
        shell: bash or zsh; `eval "$(homing completion bash)"` in ~/.bashrc turns it on
    """
    print(script(shell), end="")


def script(shell: Shell) -> str:
    """The script for a shell; zsh reads bash's."""
    head = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" if shell == "zsh" else ""
    return head + _bash(commands())


def commands() -> dict[str, Command]:
    """Every command by its words, such as `study run`; the empty one has the names of all."""
    from homing.cli.bench import bench_app
    from homing.cli.data import data_app
    from homing.cli.main import app
    from homing.cli.study import study_app

    groups = {"bench": bench_app, "data": data_app, "study": study_app}
    found = {"": Command(("--help", "--version"), tuple(app._subcommands))}
    for name, spec in app._subcommands.items():
        if name in groups:
            inner = groups[name]._subcommands
            found[name] = Command(("--help",), tuple(inner))
            found |= {f"{name} {each}": _of_function(f"{name} {each}", s.target) for each, s in inner.items()}
        elif name != "train":
            found[name] = _of_function(name, spec.target)
    return found | {"train": _train()}


def _train() -> Command:
    """`train` has the flags of all agents."""
    from homing.agents import agent_names
    from homing.cli.train import all_flags
    from homing.config.presets import PRESETS
    from homing.config.recipes import BEST
    from homing.envs import env_ids

    flags = (f"--{name}" for name in sorted(all_flags()) if name not in ("agent", "env"))
    presets = sorted({name for each in PRESETS.values() for name in each})
    values = {"--preset": tuple(presets), "--eval-env": tuple(env_ids()), "--reward": ("sparse", "dense")}
    return Command((*flags, "--import", "--help"), (BEST, *agent_names(), *env_ids()), values)


def _of_function(name: str, function: Any) -> Command:
    """A command from the parameters of its function."""
    hints = typing.get_type_hints(function, include_extras=True)
    flags: list[str] = []
    values: dict[str, tuple[str, ...]] = {}
    for parameter in inspect.signature(function).parameters:
        kind, notes = _unpacked(hints[parameter])
        if any(note is tyro.conf.Positional for note in notes):
            continue
        names = [note.name for note in notes if getattr(note, "name", None)]
        flag = f"--{names[0] if names else parameter.strip('_').replace('_', '-')}"
        flags.append(flag)
        if kind is bool and tyro.conf.FlagCreatePairsOff not in notes:
            flags.append(f"--no-{flag[2:]}")
        if choices := tuple(_choices(kind)):
            values[flag] = choices
    return Command((*flags, "--help"), _names(name), values | _named_values(flags))


def _unpacked(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        return kind, tuple(notes)
    return hint, ()


def _choices(kind: Any) -> Iterator[str]:
    """The words of a `Literal`, also inside of an optional one."""
    if typing.get_origin(kind) is Literal:
        yield from (str(word) for word in typing.get_args(kind))
    elif typing.get_origin(kind) in (typing.Union, types.UnionType):
        for part in typing.get_args(kind):
            yield from _choices(part)


def _named_values(flags: list[str]) -> dict[str, tuple[str, ...]]:
    from homing.agents import agent_names
    from homing.envs import env_ids

    known = {"--env": env_ids, "--agent": agent_names}
    return {flag: tuple(known[flag]()) for flag in flags if flag in known}


def _names(command: str) -> tuple[str, ...]:
    """Words that a command takes without a flag."""
    from homing.envs import env_ids
    from homing.policies import shipped_names
    from homing.studies.spec import shipped

    if command in ("play", "render"):
        return tuple(dict.fromkeys([*shipped_names(), *env_ids()]))
    if command in ("policies", "eval", "data export"):
        return tuple(shipped_names())
    if command == "completion":
        return typing.get_args(Shell)
    return tuple(shipped()) if command.startswith("study ") and command != "study list" else ()


def _bash(known: Mapping[str, Command]) -> str:
    """A function of bash: a case for each command, and one for each flag with choices."""
    groups = "|".join(dict.fromkeys(name.split()[0] for name in known if " " in name))
    inner = '[ "$COMP_CWORD" -gt 2 ] && command="$command ${COMP_WORDS[2]}"'
    lines = [
        "# Completion for homing.",
        "_homing() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local command="" flags="" names="" words=""',
        '  [ "$COMP_CWORD" -gt 1 ] && command="${COMP_WORDS[1]}"',
        f'  case "$command" in {groups}) {inner} ;; esac',
        '  case "$command" in',
    ]
    for name, command in known.items():
        lines.append(f'    "{name}") flags="{" ".join(command.flags)}"; names="{" ".join(command.names)}" ;;')
    lines += ["  esac", '  case "$command $before" in']
    for name, command in known.items():
        for flag, choices in command.values.items():
            lines.append(f'    "{name} {flag}") words="{" ".join(choices)}" ;;')
    lines += [
        '    *) case "$current" in -*) words="$flags" ;; *) words="$names" ;; esac ;;',
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _homing homing",
    ]
    return "\n".join(lines) + "\n"
