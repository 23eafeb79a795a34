"""`homing recipes`: the best known agent for each environment."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import tyro
from rich.table import Table

from homing.cli.arguments import Json, matching_envs
from homing.cli.tables import add_names, console


def recipes(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = "",
    json_: Json = False,
) -> None:
    """List what `homing train best ENV` trains, and what it reached.

    Args:
        name: part of the ids or aliases of environments, for instance maze; all by default
        json_: print JSON instead of a table
    """
    from homing.config.recipes import UNMEASURED, recipes_for

    known_recipes = recipes_for(matching_envs(name))
    if json_:
        print(json.dumps([dataclasses.asdict(recipe) for recipe in known_recipes], indent=1))
        return
    table = Table(
        title="homing train best ENV",
        caption="Means of the last three evaluations. Up to twelve runs shared one H200: seconds are an upper limit. "
        "ppo learns from dense rewards, the others from goals alone.",
    )
    for heading in ("env", "agent", "preset"):
        add_names(table, heading, (getattr(recipe, heading) for recipe in known_recipes))
    for heading in ("success", "time near goal", "seeds", "steps", "seconds"):
        table.add_column(heading, justify="right")
    table.add_column("results/")
    for recipe in known_recipes:
        r = recipe.reached
        names = ["all others" if recipe.env == "*" else recipe.env, recipe.agent, recipe.preset]
        numbers = ["–"] * 5
        if r is not None:
            numbers = [f"{r.success_any:.1%}", f"{r.time_near_goal:.1%}", str(r.seeds)]
            numbers += [f"{r.steps / 1e6:.3g} M", f"{r.seconds:.0f}"]
        table.add_row(*names, *numbers, recipe.result or UNMEASURED)
    console().print(table)
