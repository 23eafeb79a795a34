"""Generate what the pages in docs/environments/ say of environments: their goals, states and best known results."""

from __future__ import annotations

import csv
import functools
import json
import re
from collections import deque
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from homing.config.recipes import measure, recipe_for
from homing.envs import env_ids, make
from homing.envs.arenas import Maze
from homing.envs.cell_pairs import CellPairs
from homing.envs.goals import Around, Away, Box, Cells, FreeCells, Points, Ring
from homing.envs.info import EnvInfo
from homing.envs.registry import get_spec
from homing.envs.tasks import Soccer
from homing.policies import shipped_names

ROOT = Path(__file__).parent.parent
PAGES, RESULTS = ROOT / "docs" / "environments", ROOT / "results"
FILMS = ROOT / "docs" / "images" / "films"
BEGIN, END = "<!-- begin generated -->", "<!-- end generated -->"

# Pages, and the pattern of the ids that each is about; the first page that fits an id has it.
FAMILIES = {
    "anywhere": r".*_anywhere",
    "pairs": r".*_pairs(_eval)?",
    "arms": r"arm_.*",
    "reacher": r"reacher",
    "pusher": r"pusher_.*",
    "half-cheetah": r"half_cheetah.*",
    "soccer-and-push": r"ant_soccer.*|ant_push",
    "ant-mazes": r"ant_.*_maze.*",
    "ant": r"ant.*",
    "humanoid": r"humanoid.*",
    "point": r"point_.*",
}
# Pages elsewhere, whose tables of goals and states are written by hand.
WRITTEN = {"arms": PAGES.parent / "arms.md"}
# What entries of a state are, by the end of their names.
KINDS = (
    (r"_com_[vw][xyz]$", "velocity of each link's centre of mass, linear and angular (m/s, rad/s)"),
    (r"_torque(_.*)?$", "torques (N m)"),
    (r"_i[xyz]{2}$|_mass$", "inertia tensor and mass of each link"),
    (r"_q[wxyz]$", "orientation as a quaternion"),
    (r"_w[xyz]$", "angular velocity (rad/s)"),
    (r"(_|^)v[xyz]$", "velocity (m/s)"),
    (r"_velocity$", "velocities of the joints (rad/s, m/s)"),
    (r"^(cos|sin)_", "cosines and sines of the joint angles"),
    (r"^(torso|tip|wrist|puck\d?|ball|block|root)_[xyz]$|^[xy]$", "position (m)"),
    (r"", "joint angles (rad)"),
)
MOST_PICTURES = 4
MOST_NAMES = 16  # of one kind that are written out


class Result(NamedTuple):
    """A recorded training in an environment."""

    success: float
    time_near_goal: float
    agent: str
    seeds: int
    steps: int
    file: str


@functools.cache
def info(id: str) -> EnvInfo:
    """Sizes and names of an environment, which take a moment to find."""
    return make(id).spec


def ids_of(family: str) -> list[str]:
    """The environments of a page."""
    return [id for id in env_ids() if family_of(id) == family]


def family_of(id: str) -> str | None:
    return next((name for name, pattern in FAMILIES.items() if re.fullmatch(pattern, id)), None)


def page_of(family: str) -> Path:
    return WRITTEN.get(family, PAGES / f"{family}.md")


def block(family: str) -> str:
    """The generated part of a page."""
    ids = ids_of(family)
    images = "images" if family in WRITTEN else "../images"
    tables = [] if family in WRITTEN else [environments(ids), states(ids)]
    return "\n\n".join([picture(ids, images), *tables, results(ids)])


# Pictures.


def picture(ids: Sequence[str], images: str) -> str:
    """Films of shipped policies where there are some, and other environments at a start."""
    filmed = [id for id in ids if (FILMS / f"{id}.webp").is_file()]
    films = [f"![{id}, by the policy that ships]({images}/films/{id}.webp)" for id in filmed]
    stills = [f"![{id} at a start]({images}/envs/{id}.png)" for id in ids if id not in filmed]
    shown = "\n".join(films + stills[: MOST_PICTURES - len(films)])
    if not filmed:
        return shown
    commands = " and ".join(f"`homing play {id}`" for id in filmed)
    return f"{shown}\n\nShipped with Homing: {commands}. Films show the first episode in which a goal is reached."


# Goals.


def environments(ids: Sequence[str]) -> str:
    rows = [
        "| id | goal | where goals are | within | ends early | physics, step |",
        "|---|---|---|---|---|---|",
    ]
    for id in ids:
        i, spec = info(id), get_spec(id)
        early = "when it falls" if i.ends_early else "no"
        goal = ", ".join(f"`{name}`" for name in i.goal_names)
        rows.append(
            f"| `{id}` | {goal} | {goals(spec)} | {i.threshold:g} m | {early} | {i.physics}, {i.dt:g} s |"
        )
    return "## Environments and goals\n\n" + "\n".join(rows)


def goals(spec: Any) -> str:
    """Where the goals of an environment lie, in words."""
    made = spec.task.goals
    if isinstance(starts := getattr(spec.task, "starts", None), Away):
        return f"{region(made)}; starts {starts.distance:g} m from the goal"
    if isinstance(spec.arena, Maze) and isinstance(made, Cells):
        return maze_goals(spec)
    if isinstance(made, tuple):  # a region for each puck
        return "; ".join(region(each) for each in made)
    return region(made)


def region(made: Any) -> str:
    match made:
        case Ring(radius, None):
            return f"{radius:g} m from the origin, any direction"
        case Ring(radius, outer):
            return f"{radius:g} to {outer:g} m from the origin, any direction"
        case Around(least, most):
            return f"{least:g} to {most:g} m from the start, any direction"
        case FreeCells():
            return "any other free cell"
        case CellPairs(least, most):
            span = f"{least} or more" if most is None else f"{least} to {most}"
            return f"{span} cells from the start along free cells"
        case Points(points, spread):
            places = " or ".join(_point(point) for point in points) + " m"
            return places + (f" plus up to {spread:g} m on each axis" if spread else "")
        case Box(low, high):
            return " × ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True)) + " m"
    return type(made).__name__


def _point(point: Sequence[float]) -> str:
    """A point, with brackets if it has several coordinates."""
    text = ", ".join(f"{x:g}" for x in point)
    return f"({text})" if len(point) > 1 else text


def maze_goals(spec: Any) -> str:
    """Number of goal cells and their path lengths from the start."""
    lengths = path_lengths(spec.arena, "G", "B" if isinstance(spec.task, Soccer) else "R")
    mean = sum(lengths) / len(lengths)
    span = f"{lengths[0]} to {lengths[-1]}" if lengths[0] < lengths[-1] else f"{lengths[0]}"
    start = "nearest ball" if isinstance(spec.task, Soccer) else "start"
    cells = f"{len(lengths)} cells" if len(lengths) > 1 else "1 cell"
    return f"{cells}, {span} cells of {spec.arena.cell:g} m from the {start} along the corridor (mean {mean:.1f})"


def path_lengths(arena: Maze, to: str, start: str) -> list[int]:
    """Cells along the free cells from the nearest cell marked `start` to each marked `to`, sorted."""
    cell = arena.cell
    place = lambda letter: [tuple(round(x / cell) for x in centre) for centre in arena.cells(letter)]
    free = set(place("RGB."))
    steps: dict[Any, int] = dict.fromkeys(place(start), 0)
    queue = deque(steps)
    while queue:
        i, j = queue.popleft()
        for near in ((i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)):
            if near in free and near not in steps:
                steps[near] = steps[i, j] + 1
                queue.append(near)
    return sorted(steps[goal] for goal in place(to))


# States.


def states(ids: Sequence[str]) -> str:
    """A table for each layout of the state that the environments have."""
    parts = ["## State"]
    layouts: dict[tuple[str, ...], list[str]] = {}
    for id in ids:
        layouts.setdefault(info(id).state_names, []).append(id)
    for names, shared in layouts.items():
        action = info(shared[0]).action_dim
        whose = "" if len(layouts) == 1 else f" of {', '.join(f'`{id}`' for id in shared)}"
        parts.append(f"{len(names)} entries{whose}; {action} actions in [−1, 1].")
        parts.append(_state_table(names))
    return "\n\n".join(parts)


def _state_table(names: Sequence[str]) -> str:
    rows, at = ["| entries | what | names |", "|---|---|---|"], 0
    for what, group in groupby(names, _kind):
        own = list(group)
        shown = own if len(own) <= MOST_NAMES else [*own[:3], "…", *own[-3:]]
        span = f"{at}–{at + len(own) - 1}" if len(own) > 1 else str(at)
        rows.append(f"| {span} | {what} | {', '.join(n if n == '…' else f'`{n}`' for n in shown)} |")
        at += len(own)
    return "\n".join(rows)


def _kind(name: str) -> str:
    return next(what for pattern, what in KINDS if re.search(pattern, name))


# Results.


def results(ids: Sequence[str]) -> str:
    """The most successful recorded training in each environment, that of its recipe, and what the recipe is."""
    parts = ["## Best known results"]
    found = {id: best for id in ids if (best := best_result(id)) is not None}
    shown = [(id, r) for id, best in found.items() for r in dict.fromkeys((best, recipe_result(id) or best))]
    if found:
        rows = [
            "| id | success | time near goal | agent | seeds | steps | file |",
            "|---|---|---|---|---|---|---|",
        ]
        rows += [
            f"| `{id}` | {r.success:.1%} | {r.time_near_goal:.1%} | {r.agent} | {r.seeds} | {r.steps / 1e6:.3g} M "
            f"| `results/{r.file}` |"
            for id, r in shown
        ]
        parts += ["\n".join(rows), "Means over seeds and the last three evaluations."]
    if missing := [id for id in ids if id not in found]:
        parts.append(f"No recorded training yet: {', '.join(f'`{id}`' for id in missing)}.")
    commands: dict[str, list[str]] = {}
    for recipe in map(recipe_for, ids):
        alike = recipe.command.replace(f" {recipe.env}", " ENV", 1)
        commands.setdefault(recipe.command if recipe.train_env else alike, []).append(recipe.env)
    lines = [
        f"- {', '.join(f'`{env}`' for env in envs)}: `homing train best ENV` is `{command}`."
        for command, envs in commands.items()
    ]
    shipped = [id for id in ids if id in shipped_names()]
    if shipped:
        lines.append(f"\nA trained policy ships: {', '.join(f'`homing play {id}`' for id in shipped)}.")
    return "\n\n".join([*parts, "\n".join(lines)])


def best_result(id: str) -> Result | None:
    """The recorded training in an environment with the highest success rate, then time near the goal."""
    return max((r for own, r in recorded() if own == id), default=None)


def recipe_result(id: str) -> Result | None:
    """The recorded training by the recipe of an environment."""
    return next((r for own, r in recorded() if own == id and r.file == recipe_for(id).result), None)


@functools.cache
def recorded() -> list[tuple[str, Result]]:
    """Every recorded training under results/, with its environment."""
    found = []
    for path in sorted(RESULTS.glob("learn_*.jsonl")):
        id, agent = named(path.stem)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.append((id, _result(rows, agent, path.name)))
    for path in sorted((RESULTS / "studies").glob("*.csv")):
        with path.open() as file:
            rows = [_numbers(row) for row in csv.DictReader(file)]
        for run in dict.fromkeys(row["run"] for row in rows):
            own = [row for row in rows if row["run"] == run]
            found.append((own[0]["env"], _result(own, own[0]["agent"], f"studies/{path.name}")))
    return found


def named(stem: str) -> tuple[str, str]:
    """Environment and agent of a file such as learn_sac_her_ant_5m_cpu."""
    words = stem.removeprefix("learn_").split("_")
    spans = [(a, b) for a in range(len(words)) for b in range(len(words), a, -1)]
    a, b = next((a, b) for a, b in spans if "_".join(words[a:b]) in env_ids())
    return "_".join(words[a:b]), words[0] + (" with dense reward" if "dense" in words else "")


def _result(rows: list[dict[str, Any]], agent: str, file: str) -> Result:
    m = measure([row for row in rows if row.get("eval/success_any") not in (None, "")])
    return Result(m.success_any, m.time_near_goal, agent, m.seeds, m.steps, file)


def _numbers(row: dict[str, str]) -> dict[str, Any]:
    numeric = lambda name: "/" in name or name in ("seed", "iteration", "step")
    return {n: (float(v) if "/" in n else int(v)) if numeric(n) and v else v for n, v in row.items()}


def write_pages() -> None:
    """Fill the generated part of every page."""
    for family in FAMILIES:
        page = page_of(family)
        before, rest = page.read_text().split(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{block(family)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    write_pages()
