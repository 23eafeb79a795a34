"""What a page draws and says of an environment, as JSON: geoms, arena, goals, camera, facts of the policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from homing.envs.arenas import Floor
from homing.envs.goal_space import STAGE, GoalSpace, goal_space
from homing.physics.drawing import Shape, shapes
from homing.policies.card import SCORE, on_page
from homing.runs.progress import human_count
from homing.version import __version__
from homing.viz import render
from homing.viz.video import Actor

DIGITS = 5  # of lengths in metres


def describe(actor: Actor) -> dict[str, Any]:
    """The scene and the words of a page."""
    spec, info, space = actor.env.scene.spec, actor.env.spec, goal_space(actor.env)
    return {
        "title": title(info.id),
        "env": info.id,
        "dt": info.dt,
        "within": spec.task.within,
        "facts": facts(actor),
        "version": __version__,
        "links": len(actor.env.scene.engine.layout.links),
        "root": actor.env.scene.engine.layout.links.index(spec.body.root),
        "shapes": _shapes(actor),
        "arm": render.is_arm(spec),
        "open": isinstance(spec.arena, Floor),
        "goals": _goals(space),
    }


def title(id: str) -> str:
    """The name of an environment in words."""
    first, *rest = id.split("_")
    # "u" and "u3" name the shape of a maze.
    return " ".join([first.capitalize(), *(word.upper() if len(word) <= 2 else word for word in rest)])


def facts(actor: Actor) -> list[str]:
    """How the policy was trained and how well it does, from its card."""
    policies = actor.policies
    if policies is None:
        return []
    card = policies.card
    lines = [f"{policies.agent_name.upper()}, seed {actor.seed}"]
    if "step" in card:
        lines.append(f"{human_count(card['step'])} steps")
    if actor.env.spec.id != policies.choice.env:
        return [*lines, f"trained in {policies.choice.env}"]
    if found := on_page(card, actor.seed, "in homing play"):
        return [*lines, f"{found[0]:.1%} {found[1]}"]
    own = lambda rows, score: [row[score] for row in rows if score in row and row["seed"] == actor.seed]
    chain = card.get("chain", {})
    if along := own(chain.get("scores", ()), "reached"):
        return [*lines, f"reaches {along[0]:.1%} of goals, in chains of {int(chain['length'])}"]
    if scores := own(card.get("scores", ()), SCORE):
        episodes = card.get("measured", {}).get("episodes")
        lines.append(f"reaches {scores[0]:.1%} of goals" + (f" in {episodes:,} episodes" if episodes else ""))
    return lines


def _shapes(actor: Actor) -> list[dict[str, Any]]:
    spec = actor.env.scene.spec
    model = render.display_model(spec)
    return [_shape(shape) for shape in shapes(model, render.own_colours(spec, model))]


def _shape(shape: Shape) -> dict[str, Any]:
    made: dict[str, Any] = {
        "link": shape.link,
        "kind": shape.kind,
        "size": rounded(shape.size),
        "pos": rounded(shape.pos),
        "rot": rounded(shape.rot),
        "rgba": rounded(shape.rgba),
    }
    if shape.vertices is not None and shape.faces is not None:
        made |= {"vertices": rounded(shape.vertices.reshape(-1)), "faces": shape.faces.reshape(-1).tolist()}
    return made


def _goals(space: GoalSpace) -> dict[str, Any]:
    """Where goals can lie; the page repeats `GoalSpace.settled`."""
    spec, reachable = space.spec, space.reachable
    return {
        "extent": rounded(spec.arena.extent()),
        "walls": [rounded((*wall.centre[:2], *wall.half[:2])) for wall in spec.arena.walls()],
        "axes": [dict(axes) for axes in space.axes],
        "farthest": space.farthest if np.isfinite(space.farthest) else None,
        "stage": STAGE,
        "template": rounded(space.template),
        "margin": min(0.5 * spec.task.within, 0.5),
        "reach": None if reachable is None else [*reachable.centre, reachable.radius],
        "colours": [list(colour) for colour in render.GOAL_COLOURS],
    }


def rounded(values: Sequence[float] | np.ndarray) -> list[float]:
    """Numbers with few digits, which keep pages small."""
    return [round(float(v), DIGITS) for v in values]
