"""The study file (TOML): shared settings, the grid of varied settings, and the figure."""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from homing.errors import ConfigError, HomingError, shown, unknown

Labels = dict[str, Any]
Changes = dict[str, Any]

KEYS = ("title", "about", "claims", "run", "grid", "where", "skip", "figure")
TABLES = {
    "run": "agent = 'crl'",
    "grid": "env = ['ant', 'humanoid']",
    "figure": "kind = 'curves'",
}
"""Keys that are tables, each with a line that it may have."""
# Columns of the table, which cannot be names of axes.
RESERVED = ("study", "run", "seed", "iteration", "step", "updates", "finite", "machine")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the table: curves over steps, bars of final values, or a heat map over two axes."""

    kind: str = "curves"
    metric: str = "eval/success_any"
    panels: str | None = None
    """The axis with one panel per value; default: env."""
    lines: str | None = None
    """The axis with one line (or bar) per value; default: the combinations of all other axes."""
    rows: str | None = None
    """The vertical axis of a heat map."""
    columns: str | None = None
    """The horizontal axis of a heat map."""

    def __post_init__(self) -> None:
        if self.kind not in FIGURES:
            raise unknown("kind of figure", self.kind, FIGURES)
        if self.kind == "heatmap" and not (self.rows and self.columns):
            raise ConfigError("a figure of kind heatmap needs `rows` and `columns`, each an axis of the grid")


# Shipped studies: those of the paper, and those that go beyond it.
FOLDERS = ("paper", "beyond")
FIGURES = ("curves", "bars", "heatmap")


@dataclasses.dataclass(frozen=True)
class Rule:
    """Settings for the grid points whose labels have one of the given values."""

    when: Mapping[str, tuple[Any, ...]]
    changes: Changes

    def holds(self, labels: Mapping[str, Any]) -> bool:
        """Whether the rule applies to a grid point."""
        return all(labels.get(axis) in values for axis, values in self.when.items())


@dataclasses.dataclass(frozen=True)
class Study:
    """A parsed study file; `points` are its runs."""

    name: str
    title: str
    about: str
    claims: tuple[str, ...]
    run: Changes
    grid: Mapping[str, Mapping[Any, Changes]]
    """For each axis, the settings of each label."""
    where: tuple[Rule, ...]
    skip: tuple[Rule, ...]
    figure: Figure
    text: str
    """The text of the file."""

    def points(self) -> Iterator[tuple[Labels, Changes]]:
        """Labels and settings of every run; later ones override: shared settings, rules, grid."""
        for labels in self._combinations():
            facts = {**{k: v for k, v in self.run.items() if not isinstance(v, (list, dict))}, **labels}
            changes = dict(self.run)
            for rule in self.where:
                if rule.holds(facts):
                    changes |= rule.changes
            for axis, label in labels.items():
                changes |= self.grid[axis][label]
            yield labels, changes

    def _combinations(self) -> Iterator[Labels]:
        for labels in itertools.product(*self.grid.values()):
            point = dict(zip(self.grid, labels, strict=True))
            if not any(rule.holds(point) for rule in self.skip):
                yield point


def shipped() -> dict[str, Any]:
    """The study files of the package, by name."""
    found = {}
    for folder in FOLDERS:
        files = (resources.files("homing.studies") / folder).iterdir()
        found |= {f"{folder}/{file.name[:-5]}": file for file in files if file.name.endswith(".toml")}
    return dict(sorted(found.items(), key=lambda item: (FOLDERS.index(item[0].split("/")[0]), item[0])))


def load(name: str) -> Study:
    """Load a study by name (`paper/objectives`) or file."""
    known = shipped()
    if name in known:
        return parse(known[name].read_text(), name)
    path = Path(name)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ConfigError(f"{name} does not exist; `homing study list` lists the shipped studies")
        return parse(_text(path), path.stem)
    raise unknown("study", name, known)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from None


def parse(text: str, name: str) -> Study:
    """Parse the text of a study file; unknown names raise errors that list the known ones."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"study {name}: {error}") from None
    try:
        return _study(table, name, text)
    except HomingError as error:
        raise ConfigError(f"study {name}: {error}") from None


def _study(table: dict[str, Any], name: str, text: str) -> Study:
    _check_names("key of a study", table, KEYS)
    _check_types(table)
    grid = {axis: _axis(axis, values) for axis, values in table.get("grid", {}).items()}
    if not grid:
        raise ConfigError("it has no [grid]; a grid with one value, for instance env = ['ant'], is one run")
    figure = table.get("figure", {})
    _check_names("key of a figure", figure, [field.name for field in dataclasses.fields(Figure)])
    study = Study(
        name=name,
        title=table.get("title", name),
        about=table.get("about", ""),
        claims=tuple(table.get("claims", ())),
        run=dict(table.get("run", {})),
        grid=grid,
        where=tuple(_rule(rule, grid) for rule in table.get("where", ())),
        skip=tuple(_rule(rule, grid) for rule in table.get("skip", ())),
        figure=Figure(**figure),
        text=text,
    )
    _check_figure(study)
    return study


def _axis(axis: str, values: Any) -> dict[Any, Changes]:
    """The variants of an axis: a list of values for the setting of that name, or a table of named variants."""
    if axis in RESERVED:
        raise ConfigError(f"an axis cannot be called {axis}: the table has a column of that name")
    if isinstance(values, Mapping) and values:
        if bad := [label for label, changes in values.items() if not isinstance(changes, Mapping)]:
            raise ConfigError(
                f"grid.{axis}.{bad[0]} must be a table of settings, such as {{ gamma = 0.9 }}; "
                f'an axis with a dot in its name has quotes: "{axis}.{bad[0]}" = [...]'
            )
        return {label: dict(changes) for label, changes in values.items()}
    if isinstance(values, list) and values:
        if bad := [value for value in values if isinstance(value, (list, dict))]:
            raise ConfigError(
                f"grid.{axis} has {shown(bad[0])} among its values, and a list or table cannot label a run; "
                f"name the variants: [grid.{axis}], with a line such as first = {{ {_toml(axis, bad[0])} }}"
            )
        if len(set(values)) < len(values):
            raise ConfigError(f"grid.{axis} contains a value twice")
        return {value: {axis: value} for value in values}
    raise ConfigError(
        f"grid.{axis} must be a list of values, such as {axis} = [...], or a table of named variants"
    )


def _toml(name: str, value: Any) -> str:
    """A setting as a study file has it."""
    if isinstance(value, dict):
        return f"{name} = {{ {', '.join(_toml(key, each) for key, each in value.items())} }}"
    if isinstance(value, bool):
        return f"{name} = {str(value).lower()}"
    return f"{name} = {value!r}"


def _rule(rule: Any, grid: Mapping[str, Any]) -> Rule:
    if not isinstance(rule, Mapping) or not isinstance(rule.get("when"), Mapping):
        raise ConfigError("a [[where]] or [[skip]] needs `when`, for instance when = { env = 'humanoid' }")
    when = {
        axis: tuple(value) if isinstance(value, list) else (value,) for axis, value in rule["when"].items()
    }
    for axis, values in when.items():
        if bad := [value for value in values if isinstance(value, (list, dict))]:
            raise ConfigError(f"when.{axis} has {shown(bad[0])}; it takes a value or a list of values")
        if axis in grid and (invalid := [v for v in values if v not in grid[axis]]):
            raise unknown(f"value of {axis} in a rule:", str(invalid[0]), map(str, grid[axis]))
    return Rule(when, {name: value for name, value in rule.items() if name != "when"})


def _check_types(table: Mapping[str, Any]) -> None:
    """Refuse keys of another type than a study's: text, tables, lists of tables."""
    for name in ("title", "about"):
        if not isinstance(table.get(name, ""), str):
            raise ConfigError(f"{name} must be a string, not {shown(table[name])}")
    claims = table.get("claims", [])
    if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
        raise ConfigError(f"claims must be a list of strings, such as ['It helps.'], not {shown(claims)}")
    for name, line in TABLES.items():
        if not isinstance(table.get(name, {}), dict):
            raise ConfigError(
                f"{name} must be a table, not {shown(table[name])}; write [{name}] on a line of its own, "
                f"followed by lines such as {line}"
            )
    for name in ("where", "skip"):
        rules = table.get(name, [])
        if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
            raise ConfigError(
                f"each rule of {name} begins with [[{name}]], in two brackets, then `when = ...`"
            )
    for name, value in table.get("figure", {}).items():
        if not isinstance(value, str):
            raise ConfigError(f"figure.{name} must be a string, not {shown(value)}")


def _check_names(kind: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(str(unknown(kind, name, known)))


def _check_figure(study: Study) -> None:
    for role in ("panels", "lines", "rows", "columns"):
        axis = getattr(study.figure, role)
        if axis is not None and axis not in study.grid:
            raise ConfigError(f"figure.{role}: {unknown('axis', axis, study.grid)}")
