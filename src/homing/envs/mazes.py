"""The environments of mazes: the ant, the humanoid and the point in text grids."""

from __future__ import annotations

import dataclasses
from enum import Enum

from homing.envs.arenas import Maze
from homing.envs.bodies import Ant, Humanoid, Point
from homing.envs.cell_pairs import CellPairs
from homing.envs.goals import Cells, Distribution, FreeCells
from homing.envs.scene import EnvSpec
from homing.envs.tasks import Reach

TORSO = ("torso_x", "torso_y")
EASY = {"success_easy": 2.0}
WALL_ANT = Ant(touched=("torso", "hips", "feet"))
ANY_WALL_ANT = dataclasses.replace(WALL_ANT, any_heading=True)
NEAR = 3
"""Cells between start and goal, at most, in training environments whose evaluation has pairs farther apart."""


class Places(Enum):
    """Goals and starts of a maze: marked cells, any two free cells, or pairs near or far from each other."""

    MARKED = "marked"
    ANYWHERE = "anywhere"
    PAIRS = "pairs"
    PAIRS_EVAL = "pairs_eval"

    def drawn(self, height: float | None, spread: float) -> tuple[Distribution, Distribution | None]:
        """Distributions of goals and starts; pairs come from the first."""
        match self:
            case Places.MARKED:
                return Cells("G", height), Cells("R")
            case Places.ANYWHERE:
                return FreeCells(height), FreeCells(spread=spread)
            case Places.PAIRS:
                return CellPairs(1, NEAR, height, spread), None
            case Places.PAIRS_EVAL:
                return CellPairs(NEAR + 1, None, height, spread), None


def _ant(layout: str, places: Places = Places.MARKED) -> EnvSpec:
    goals, starts = places.drawn(None, spread=0.5)
    body = WALL_ANT if places is Places.MARKED else ANY_WALL_ANT
    return EnvSpec(body, Reach(TORSO, goals, starts=starts, margins=EASY), Maze(layout))


def _humanoid(layout: str, places: Places = Places.MARKED) -> EnvSpec:
    goals, starts = places.drawn(1.25, spread=0.25)
    task = Reach((*TORSO, "torso_z"), goals, starts=starts, margins=EASY)
    return EnvSpec(Humanoid(any_heading=places is not Places.MARKED), task, Maze(layout, cell=2.0))


def _point(layout: str, places: Places = Places.MARKED) -> EnvSpec:
    goals, starts = places.drawn(None, spread=0.5)
    return EnvSpec(Point(), Reach(("x", "y"), goals, starts=starts, margins=EASY), Maze(layout))


def _of_every_body(places: Places, names: tuple[str, ...] = ("u", "big")) -> dict[str, EnvSpec]:
    """Mazes of every body whose starts are not the marked ones."""
    made = {f"ant_{name}": _ant(name, places) for name in ("u", "u4", "big", "hardest")}
    made |= {f"humanoid_{name}": _humanoid(name, places) for name in names}
    made |= {f"point_{name}": _point(name, places) for name in names}
    return {f"{name}_maze_{places.value}": spec for name, spec in made.items()}


MAZES: dict[str, EnvSpec] = {
    **{
        f"ant_{name}_maze": _ant(name) for name in ("u", "big", "hardest", "u2", "u3", "u4", "u5", "u6", "u7")
    },
    **{
        f"ant_{name}_maze_eval": _ant(f"{name}_eval")
        for name in ("u", "big", "u2", "u3", "u4", "u5", "u6", "u7")
    },
    **{f"ant_{name}_maze_single_eval": _ant(f"{name}_single_eval") for name in ("u", "u3", "u5")},
    "ant_big_maze_eval_9": _ant("big_eval_9"),
    **{f"ant_u_maze_path_{near}": _ant(f"u_path_{near}") for near in ("1_3", "1_4", "1_5", "5_6")},
    **{f"humanoid_{name}_maze": _humanoid(name) for name in ("u", "big", "hardest")},
    **{f"humanoid_{name}_maze_eval": _humanoid(f"{name}_eval") for name in ("u", "big")},
    **{f"point_{name}_maze": _point(name) for name in ("u", "big", "hardest")},
    **{f"point_{name}_maze_eval": _point(f"{name}_eval") for name in ("u", "big")},
}
"""Mazes whose layouts mark starts and goals."""

ANYWHERE = _of_every_body(Places.ANYWHERE, ("u", "big", "hardest"))
PAIRS = _of_every_body(Places.PAIRS) | _of_every_body(Places.PAIRS_EVAL)
