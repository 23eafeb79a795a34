"""Reference pages made from the code itself: the Python API and the commands."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

# What a user of the library calls, by module; classes with their documented members.
API: dict[str, dict[str, tuple[str, ...]]] = {
    "homing": {
        "train": (), "resume": (), "evaluate": (), "load": (), "export": (), "export_data": (),
        "make": (), "register": (), "env_ids": (),
        "Trained": ("rows", "curve", "policy"), "Policy": ("__call__", "value"),
    },
    "homing.config.presets": {"register_agent": ()},
    "homing.losses.contrastive": {"register_objective": ()},
    "homing.agents.base": {
        "OffPolicyAgent": ("init", "act", "sample", "goals", "draw", "update", "observe", "value"),
        "OnPolicyAgent": ("init", "act", "choose", "action_of", "updates_per_rollout", "learn"),
        "ReplayView": (
            "goals", "sampled_goals", "mixed_goals", "states", "achieved_now", "actions", "whole",
            "with_whole_chunks", "terminates", "steps_to_termination", "goal_distances", "nearness", "first_near",
            "first_match", "first_reach", "batch",
        ),
    },
    "homing.envs.base": {"GoalEnv": ("reset", "step", "reward")},
    "homing.adapters.gymnasium": {
        "HomingEnv": ("compute_reward",), "HomingVectorEnv": ("compute_reward",), "register_envs": (),
        "RecordEpisodeStatistics": (),
    },
    "homing.adapters.single": {"SingleEnv": ("reset", "step", "observation")},
    "homing.report.build": {"write_report": ()},
    "homing.runs.stats": {
        "iqm": (), "estimate": (), "band": (), "performance_profile": (), "probability_of_improvement": (),
        "aggregate": (),
    },
    "homing.errors": {"HomingError": (), "ConfigError": (), "UnknownNameError": ()},
}  # fmt: skip
SETTINGS = (
    "homing.config.offpolicy.TrainConfig",
    "homing.config.onpolicy.OnPolicyConfig",
    "homing.agents.crl.CRLConfig",
    "homing.agents.srl_config.SRLConfig",
    "homing.agents.sac.SACConfig",
    "homing.agents.td3.TD3Config",
    "homing.agents.ppo.PPOConfig",
    "homing.agents.gcbc.GCBCConfig",
    "homing.networks.NetConfig",
    "homing.config.run.SaveConfig",
)
ARGUMENT = re.compile(r"^(\w+):\s+(.*)$")


def api_page() -> str:
    """Signatures and docstrings."""
    parts = [
        "# Python API",
        "Made from the code. Everything here is imported from the module in its heading.",
    ]
    for module, members in API.items():
        parts.append(f"## {module}")
        for name, inner in members.items():
            parts += _entry(getattr(importlib.import_module(module), name), name, inner)
    parts.append("## Settings of a run")
    parts.append("Fields of these may be given to `homing.train` by name, and to `homing train` as flags.")
    for place in SETTINGS:
        module, _, name = place.rpartition(".")
        parts += _settings(getattr(importlib.import_module(module), name), name)
    return "\n\n".join(parts) + "\n"


def _entry(thing: Any, name: str, inner: tuple[str, ...]) -> Iterator[str]:
    yield f"### {name}"
    if not (inspect.isclass(thing) and issubclass(thing, Exception)):
        yield f"```python\n{name}{_signature(thing)}\n```"
    yield _prose(inspect.getdoc(thing) or "")
    for member in inner:
        function = getattr(thing, member)
        call = "policy" if member == "__call__" else f".{member}"
        yield f"```python\n{call}{_signature(function, skip_self=True)}\n```"
        yield _prose(inspect.getdoc(function) or "")


class Plain(str):
    """A text that prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _signature(thing: Callable, skip_self: bool = False) -> str:
    signature = inspect.signature(thing)
    plain = lambda kind: Plain(kind) if isinstance(kind, str) else kind
    parameters = [p.replace(annotation=plain(p.annotation)) for p in signature.parameters.values()]
    if skip_self and parameters and parameters[0].name == "self":
        parameters = parameters[1:]
    answer = plain(signature.return_annotation)
    text = str(signature.replace(parameters=parameters, return_annotation=answer))
    return text if len(text) < 90 else "(\n    " + _split(text) + "\n" + text[text.rindex(")") :]


def _split(text: str) -> str:
    """Parameters on lines of their own; commas inside brackets do not count."""
    inside, depth, parts = text[1 : text.rindex(")")], 0, [""]
    for letter in inside:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return ",\n    ".join(part.strip() for part in parts)


def _prose(doc: str) -> str:
    """A docstring as Markdown: `name:  text` lines become a list."""
    lines = []
    for line in doc.replace("<", "&lt;").splitlines():
        found = ARGUMENT.match(line)
        lines.append(f"- `{found[1]}`: {found[2]}" if found else line)
        if found and len(lines) > 1 and not lines[-2].startswith("- "):
            lines.insert(-1, "")
    return "\n".join(lines) if doc != "Call self as a function." else ""


def _settings(kind: type, name: str) -> Iterator[str]:
    yield f"### {name}"
    yield _prose((inspect.getdoc(kind) or "").split("\n")[0])
    about = _field_docs(kind)
    rows = [f"| `{f.name}` | `{_default(f)}` | {about.get(f.name, '')} |" for f in dataclasses.fields(kind)]
    yield "\n".join(["| setting | default | what it does |", "|---|---|---|", *rows])


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if dataclasses.is_dataclass(value):
        return _changes(value)
    return f"{value:g}" if isinstance(value, float) else repr(value)


def _changes(value: Any) -> str:
    """A nested config by the fields that differ from its defaults."""
    changed = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    changed = {f.name: changed[f.name] for f in dataclasses.fields(value) if changed[f.name] != f.default}
    return f"{type(value).__name__}({', '.join(f'{name}={v!r}' for name, v in changed.items())})"


def _field_docs(kind: type) -> dict[str, str]:
    """Texts below the fields of a dataclass, inherited ones too."""
    texts: dict[str, str] = {}
    for base in reversed([base for base in kind.__mro__ if dataclasses.is_dataclass(base)]):
        found = re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', inspect.getsource(base), re.M | re.S)
        texts |= {name: " ".join(text.split()) for name, text in found}
    return texts


# Commands.


def commands_page() -> str:
    """Every command with what it takes."""
    parts = ["# Commands", "Made from the code. `homing COMMAND --help` says the same."]
    for name, function in _commands():
        doc, arguments = _parted(inspect.getdoc(function) or "")
        parts += [f"## homing {name}", doc]
        kinds = typing.get_type_hints(function, include_extras=True)
        taken = inspect.signature(function).parameters.items()
        rows = [_row(n, p.default, kinds.get(n), arguments.get(n, "")) for n, p in taken]
        if rows:
            parts.append("\n".join(["| argument | default | |", "|---|---|---|", *rows]))
        if name == "train":
            parts.append(_train_flags())
    return "\n\n".join(parts) + "\n"


def _commands() -> Iterator[tuple[str, Callable]]:
    """Names and functions; `bench`, `data` and `study` hold commands of their own."""
    from homing.cli import data, main, study

    groups = {"bench": main.bench_app, "data": data.data_app, "study": study.study_app}
    for name, command in sorted(main.app._subcommands.items()):
        if name not in groups:
            yield name, command.target
    for group, app in groups.items():
        for name, command in sorted(app._subcommands.items()):
            yield f"{group} {name}", command.target


def _train_flags() -> str:
    from homing.cli.train import TrainArguments as kind

    about = _field_docs(kind)
    flags = {f.name: _flag(f.name, f.default is dataclasses.MISSING) for f in dataclasses.fields(kind)}
    rows = [f"| `{flag}` | {about.get(name, '')} |" for name, flag in flags.items()]
    more = "All [settings of a run](api.md#settings-of-a-run) and of the agent are flags too."
    return "\n".join(["| argument | |", "|---|---|", *rows, "", more])


def _parted(doc: str) -> tuple[str, dict[str, str]]:
    """The text before `Args:`, and the arguments."""
    text, _, rest = doc.partition("Args:")
    found = re.findall(r"^\s+(\w+): (.*?)(?=^\s+\w+: |\Z)", rest, re.M | re.S)
    return text.strip(), {name: " ".join(words.split()) for name, words in found}


def _row(name: str, default: Any, kind: Any, about: str) -> str:
    """One argument; its annotation says whether it is positional and what it is called."""
    marks = getattr(kind, "__metadata__", ())
    positional = any("Positional" in str(mark) for mark in marks)
    called = next((mark.metavar for mark in marks if getattr(mark, "metavar", None)), None)
    hidden = default is inspect.Parameter.empty or default is None or default is False or default == ()
    shown = "" if hidden else f"`{_value(default)}`"
    return f"| `{called if positional and called else _flag(name, positional)}` | {shown} | {about} |"


def _value(default: Any) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _flag(name: str, positional: bool) -> str:
    plain = name.rstrip("_").replace("_", "-")
    return plain.upper() if positional else f"--{plain}"
