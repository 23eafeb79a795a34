"""Recipes: the best agent and preset known for each environment, with what they reached."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Container, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import Any

from homing.envs.registry import resolve

BEST = "best"  # stands for the recipe's agent in `homing train best ENV`
OWN_PRESET = "best has a preset of its own; name an agent to choose another (homing recipes)"

UNMEASURED = "not measured here yet"


@dataclasses.dataclass(frozen=True)
class Reached:
    """Mean over seeds and the last three evaluations of a recorded run."""

    seeds: int
    steps: int
    seconds: float
    success_any: float
    time_near_goal: float


@dataclasses.dataclass(frozen=True)
class Recipe:
    """An agent and a preset for the environments whose ids match a pattern."""

    env: str
    agent: str
    preset: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What differs from the preset, by the names of flags with underscores; of a network, a table of its settings."""
    env_options: Mapping[str, int | float | str] = dataclasses.field(default_factory=dict)
    """Settings of the environment in training, by dotted name."""
    reward: str = "sparse"
    """What agents that learn from rewards are paid."""
    train_env: str | None = None
    """Where it trains, if that is another environment; evaluations are in `env`."""
    init_from: str | None = None
    """The shipped policy whose parameters it starts with."""
    result: str | None = None
    """The recorded run, a file under results/ of the repository."""
    reached: Reached | None = None

    @property
    def command(self) -> str:
        """The command that trains by this recipe."""
        env = self.train_env or self.env
        return " ".join(["homing train", self.agent, env, *self.flags(), *self.option_flags()])

    def flags(self, given: Container[str] = ()) -> list[str]:
        """Flags of `homing train` for the preset and the settings of training, without those of `given` names."""
        found = ["--preset", self.preset]
        for name, value in {**self.run, **self.settings}.items():
            parts = {name: value}
            if isinstance(value, Mapping):  # of a network
                parts = {f"{name}.{part}": setting for part, setting in value.items()}
            for flag, setting in parts.items():
                if flag not in given:
                    found += [f"--{flag.replace('_', '-')}", _text(setting)]
        return found

    def option_flags(self, given: Sequence[str] = ()) -> list[str]:
        """`--env-option` and the recipe's options; `given` ones, NAME=VALUE each, take their places."""
        own = {name: value for name, _, value in (option.partition("=") for option in given)}
        merged = {name: _text(value) for name, value in self.env_options.items()} | own
        return ["--env-option", *(f"{name}={value}" for name, value in merged.items())] if merged else []

    @property
    def run(self) -> dict[str, str]:
        """Settings of the run beside the agent's and the loop's, by the names of flags with underscores."""
        found = {} if self.reward == "sparse" else {"reward": self.reward}
        if self.train_env is not None:
            found["eval_env"] = self.env
        return found if self.init_from is None else found | {"init_from": self.init_from}

    @property
    def summary(self) -> str:
        """Agent, preset and what they reached, or that nobody has measured it."""
        parts = [
            self.agent,
            f"preset {self.preset}",
            "" if self.reward == "sparse" else f"{self.reward} reward",
            "" if self.train_env is None else f"in {self.train_env}",
            "" if self.init_from is None else f"from the shipped policy {self.init_from}",
        ]
        chosen, r = ", ".join(part for part in parts if part), self.reached
        if r is None:
            return f"{chosen}; {UNMEASURED}"
        return (
            f"{chosen}; reached {r.success_any:.1%} success and {r.time_near_goal:.1%} of the time near the goal "
            f"({r.seeds} seeds, {r.steps / 1e6:.3g} M steps)"
        )


def _text(value: Any) -> str:
    """A value as a flag takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def recipes() -> tuple[Recipe, ...]:
    """All recipes, those of single environments first."""
    here = resources.files("homing.config")
    table = tomllib.loads((here / "recipes.toml").read_text())["recipe"]
    reached: dict[str, Any] = json.loads((here / "recipes.json").read_text())
    known = {name: Reached(**values) for name, values in reached.items()}
    return tuple(Recipe(**row, reached=known.get(row.get("result", ""))) for row in table)


def recipe_for(env: str) -> Recipe:
    """The recipe of an environment, by its id or alias."""
    id = resolve(env)
    return dataclasses.replace(_entry(id), env=id)


def recipes_for(envs: Sequence[str]) -> tuple[Recipe, ...]:
    """The entries of the table that environments are trained by, by their ids."""
    used = [_entry(id) for id in envs]
    return tuple(recipe for recipe in recipes() if any(recipe is entry for entry in used))


def _entry(id: str) -> Recipe:
    return next(recipe for recipe in recipes() if fnmatchcase(id, recipe.env))


def measure(rows: list[dict[str, Any]]) -> Reached:
    """What a run's metrics rows amount to."""
    iterations = sorted({row["iteration"] for row in rows})[-3:]
    last = [row for row in rows if row["iteration"] in iterations]
    mean = lambda name: sum(row[name] for row in last) / len(last)
    return Reached(
        seeds=len({row["seed"] for row in rows}),
        steps=max(row["step"] for row in rows),
        seconds=round(max(row["time/elapsed"] for row in rows), 1),
        success_any=round(mean("eval/success_any"), 4),
        time_near_goal=round(mean("eval/time_near_goal"), 4),
    )
