"""The environments of the Panda."""

from __future__ import annotations

from homing.envs.arenas import Table
from homing.envs.bodies import Panda, PandaHand
from homing.envs.bodies.panda import CUBE_REGION, WRIST, WRIST_REGION
from homing.envs.goals import Box, Distribution, InReach
from homing.envs.scene import EnvSpec
from homing.envs.tasks import Grasp, MoveCube, Reach

EASY_BINS = (-0.17, 0.17)


def _around(x: float, y: float, spread: float, z: float | None = None) -> Box:
    """A square about x, y with sides of 2·spread, or a cube about x, y, z."""
    centre = (x, y) if z is None else (x, y, z)
    return Box(tuple(c - spread for c in centre), tuple(c + spread for c in centre))


def _on_table(x: float, y: float, spread: float) -> InReach:
    """A square on the table, without what the arm cannot reach."""
    return InReach(_around(x, y, spread), CUBE_REGION)


def _move(
    cubes: Distribution, goals: Distribution, bins: tuple[float, float] | None = None, half: float = 0.135
) -> EnvSpec:
    """The arm moves a cube, on an empty table or between bins whose inner faces are `half` from their centres."""
    body = Panda() if bins is None else Panda(contacts=24)
    return EnvSpec(body, MoveCube(cubes, goals), Table(bins, half=half))


ARMS: dict[str, EnvSpec] = {
    "arm_reach": EnvSpec(
        Panda(gripper=False),
        Reach(
            WRIST,
            # The noise of the start moves the wrist by up to 0.04 m, so no start is a success.
            InReach(_around(0.0, 0.5, 0.2, z=0.3), WRIST_REGION, start=(0.0, 0.678, 0.371), apart=0.14),
            within=0.1,
            margins={"success_easy": 0.3, "success_hard": 0.03},
        ),
        Table(),
    ),
    "arm_grasp": EnvSpec(Panda(tips=True), Grasp(_on_table(0.0, 0.6, 0.3)), Table()),
    "arm_push_easy": _move(_on_table(-0.1, 0.6, 0.1), _on_table(0.1, 0.6, 0.1)),
    "arm_push_hard": _move(_on_table(-0.25, 0.65, 0.25), _on_table(0.25, 0.65, 0.25)),
    "arm_binpick_easy": _move(_around(-0.17, 0.6, 0.07), _around(0.17, 0.6, 0.005), EASY_BINS),
    "arm_binpick_hard": _move(
        _on_table(-0.3, 0.6, 0.15), _on_table(0.3, 0.6, 0.15), bins=(-0.3, 0.3), half=0.185
    ),
    "arm_binpick_easy_hand": EnvSpec(
        PandaHand(contacts=24),
        MoveCube(_around(-0.17, 0.6, 0.07), _around(0.17, 0.6, 0.005)),
        Table(EASY_BINS),
    ),
}
