"""The registry of environments."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from homing import bounds, plugins, values
from homing.envs.arenas import PUSH_ROOM, Arena, Floor, Maze
from homing.envs.arms import ARMS
from homing.envs.base import GoalEnv
from homing.envs.bodies import (
    Ant,
    Body,
    Commanded,
    HalfCheetah,
    Humanoid,
    PusherArm,
    Reacher,
)
from homing.envs.goals import Around, Away, Box, Cells, Points, Ring
from homing.envs.mazes import ANYWHERE, EASY, MAZES, PAIRS, TORSO
from homing.envs.part_checks import check_spec
from homing.envs.scene import EnvSpec
from homing.envs.tasks import Block, PushPucks, Reach, Soccer, Task
from homing.errors import ConfigError, shown, unknown

BALL_ANT = Ant(touched=("torso", "feet"))
PUSH_ANT = Ant(
    touching=("torso",),
    density=40.0,
    solimp=(0.995, 0.995, 0.01),
    rest_height=0.75,
    solver=(("iterations", 4), ("ls_iterations", 8), *Ant().solver[2:]),
    contacts=24,  # of 77 possible: the block resting in a corner has 12, an ant about 5
)
SOCCER_MAZE = Soccer(goals=Cells("G"), balls=Cells("B"), starts=Cells("R"))
PUCKS = Box((0.25, -0.35), (0.65, -0.05))


def _push(goals: Box, half: float) -> EnvSpec:
    return EnvSpec(PusherArm(), PushPucks((PUCKS,), (goals,)), Floor(half))


def _cheetah(*places: float) -> EnvSpec:
    goals = Points(tuple((x,) for x in places))
    return EnvSpec(HalfCheetah(), Reach(("root_x",), goals, margins=EASY), Floor(half=7.0))


ENVIRONMENTS: dict[str, EnvSpec] = {
    "reacher": EnvSpec(
        Reacher(),
        Reach(("tip_x", "tip_y", "tip_z"), Ring(0.0, 0.2, height=0.01), within=0.05),
        Floor(half=0.35),
    ),
    "half_cheetah": _cheetah(-5.0, 5.0),
    "half_cheetah_fixed": _cheetah(5.0),
    "pusher_easy": _push(Box((0.25, -0.60), (0.65, -0.30)), half=0.8),
    "pusher_hard": _push(Box((-0.10, -0.70), (0.90, 0.30)), half=0.9),
    "pusher_two": EnvSpec(
        PusherArm(),
        PushPucks(
            regions=(Box((0.25, -0.35), (0.45, -0.05)), Box((0.45, -0.35), (0.65, -0.05))),
            goals=(Box((-0.15, -0.70), (0.375, 0.30)), Box((0.375, -0.70), (0.90, 0.30))),
        ),
        Floor(half=0.9),
    ),
    "pusher_reach": EnvSpec(
        PusherArm(velocities_last=False),
        Reach(
            ("wrist_x", "wrist_y", "wrist_z"),
            Box((0.25, -0.35, -0.323), (0.65, -0.05, -0.323)),
            within=0.1,
            margins={"success_hard": 0.05},
        ),
        Floor(half=0.8),
    ),
    **ARMS,
    "ant": EnvSpec(Ant(), Reach(TORSO, Ring(10.0), margins=EASY)),
    "ant_random_start": EnvSpec(
        Ant(), Reach(TORSO, Ring(10.0), starts=Away(10.0), margins=EASY), Floor(half=20.0)
    ),
    "ant_soccer": EnvSpec(BALL_ANT, Soccer(Ring(5.0)), Floor(half=7.0)),
    "ant_soccer_u_maze": EnvSpec(BALL_ANT, SOCCER_MAZE, Maze("soccer_u")),
    "ant_soccer_big_maze": EnvSpec(BALL_ANT, SOCCER_MAZE, Maze("soccer_big")),
    "ant_push": EnvSpec(
        PUSH_ANT,
        Reach(TORSO, Points(((16.0, 8.0), (8.0, 16.0)), spread=2.0), props=(Block(),), margins=EASY),
        PUSH_ROOM,
        physics=("mjx",),
    ),
    "humanoid": EnvSpec(
        Humanoid(),
        Reach((*TORSO, "torso_z"), Ring(1.0, 5.0, height=1.25), margins=EASY),
        Floor(half=6.0),
    ),
    **MAZES,
    "ant_anywhere": EnvSpec(
        Ant(any_heading=True),
        Reach(TORSO, Around(1.0, 10.0), starts=Box((-10.0, -10.0), (10.0, 10.0)), margins=EASY),
        Floor(half=20.0),
    ),
    "humanoid_anywhere": EnvSpec(
        Humanoid(any_heading=True),
        Reach(
            (*TORSO, "torso_z"),
            Around(1.0, 5.0, height=1.25),
            starts=Box((-5.0, -5.0), (5.0, 5.0)),
            margins=EASY,
        ),
        Floor(half=10.0),
    ),
    **ANYWHERE,
    **PAIRS,
}

# Names of the same environments in the original code.
ALIASES: dict[str, str] = {
    "cheetah": "half_cheetah_fixed",
    "ant_ball": "ant_soccer",
    "ant_ball_u_maze": "ant_soccer_u_maze",
    "ant_ball_big_maze": "ant_soccer_big_maze",
    "simple_u_maze": "point_u_maze",
    "simple_big_maze": "point_big_maze",
    "simple_hardest_maze": "point_hardest_maze",
    "simple_u_maze_eval": "point_u_maze_eval",
    "simple_big_maze_eval": "point_big_maze_eval",
    "pusher2": "pusher_two",
    "pusher_reacher": "pusher_reach",
    "arm_binpick_easy_EEF": "arm_binpick_easy_hand",
}


def env_ids() -> tuple[str, ...]:
    """Ids of all environments, without aliases: the package's, registered ones and those of plugins."""
    plugins.load_entry_points(plugins.ENVS)
    return tuple(ENVIRONMENTS)


def is_env(name: str) -> bool:
    """Whether there is an environment of this id or alias."""
    return name in env_ids() or name in ALIASES


def resolve(id: str) -> str:
    """The canonical id of an environment id or alias."""
    if not isinstance(id, str) or not is_env(id):
        raise unknown("environment", id, (*ENVIRONMENTS, *ALIASES))
    return canonical(id)


def canonical(id: str) -> str:
    """The id that an alias stands for, else the id itself."""
    return ALIASES.get(id, id)


def get_spec(id: str) -> EnvSpec:
    """The spec of an environment id or alias."""
    return ENVIRONMENTS[resolve(id)]


def register(
    id: str,
    body: Body | Commanded,
    task: Task,
    arena: Arena | None = None,
    physics: str | Sequence[str] = (),
    overwrite: bool = False,
) -> EnvSpec:
    """Register an environment under an id, for `make` and, with `--import`, the command line.

    arena:   open floor by default
    physics: allowed pipelines, the default first; all that the body is tuned for where none is named
    """
    if not isinstance(id, str) or not id or not id.replace("_", "").isalnum() or id != id.lower():
        raise ConfigError(f"an environment id consists of lower-case letters, digits and _, not {shown(id)}")
    if id in ALIASES:
        raise ConfigError(f"{id!r} is another name of environment {ALIASES[id]!r}; choose another id")
    if id in ENVIRONMENTS and not overwrite:
        raise ConfigError(f"environment {id!r} already exists; choose another id or pass overwrite=True")
    spec = EnvSpec(body, task, arena if arena is not None else Floor(), _pipelines(physics))
    check_spec(spec)
    ENVIRONMENTS[id] = spec
    plugins.note_owner(plugins.ENVS, id, plugins.calling_module())
    return spec


def _pipelines(physics: Any) -> tuple[str, ...]:
    """Names of pipelines, of which one may be given as it is."""
    if isinstance(physics, str):
        return (physics,)
    if not isinstance(physics, (tuple, list)):
        raise ConfigError(f"physics is a pipeline or a tuple of them, such as ('mjx',), not {shown(physics)}")
    return tuple(physics)


def make(
    id: str,
    num_envs: int = 1,
    episode_length: int = 1000,
    physics: str | None = None,
    reward: str = "sparse",
    options: Mapping[str, Any] | None = None,
) -> GoalEnv:
    """Make a batch of parallel environments.

    physics: physics pipeline, one that the body is tuned for; None is the environment's default
    reward:  "sparse" (1 within the threshold) or "dense"
    options: settings of the body, task, arena or goals by dotted name, `{"task.within": 0.3}`
    """
    own = resolve(id)
    spec = ENVIRONMENTS[own]
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"options must be a mapping such as {{'task.within': 0.3}}, not {shown(options)}")
    for path, value in (options or {}).items():
        if not isinstance(path, str):
            raise ConfigError(f"an option is named by a string such as 'task.within', not {shown(path)}")
        spec = _replace(spec, path, path.split("."), value)
    return GoalEnv(own, spec, num_envs, episode_length, physics, reward)


def _replace(part: Any, path: str, names: list[str], value: Any) -> Any:
    """`part` with the nested field `names` replaced; every part is a frozen dataclass."""
    fields = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(type(part)) else []
    if names[0] not in fields:
        if not fields:
            raise ConfigError(f"option {path!r} names a field of a plain value")
        raise unknown(f"setting in option {path!r}:", names[0], fields)
    old = getattr(part, names[0])
    if len(names) > 1:
        return dataclasses.replace(part, **{names[0]: _replace(old, path, names[1:], value)})
    hint = values.hints_of(type(part)).get(names[0])
    chosen = isinstance(value, str) and values.choices_of(hint)
    if not chosen and not (value is None and values.allows_none(hint)):
        _check_like(path, old, value)
    value = values.checked(f"option {path!r}", value, hint, bounds.range_of(type(part), names[0]))
    return dataclasses.replace(part, **{names[0]: _frozen(value)})


def _check_like(path: str, old: Any, value: Any) -> None:
    """Refuse a value that is of another kind than the one it replaces."""
    if isinstance(old, bool):
        fits, kind = isinstance(value, (bool, np.bool_)), "true or false"
    elif isinstance(old, (int, float)):
        fits, kind = _is_number(value), "a number"
    elif isinstance(old, str):
        fits, kind = isinstance(value, str), "a string"
    elif isinstance(old, tuple):
        fits, kind = isinstance(value, (tuple, list)), "a list"
    elif isinstance(old, Mapping):
        fits, kind = isinstance(value, Mapping), "a mapping"
    elif old is None:  # not set: a number, a list, or a part such as a distribution of starts
        fits = value is None or _is_number(value) or isinstance(value, (tuple, list)) or _is_part(value)
        kind = "a number, a list or a part"
    else:
        fits, kind = value is None or _is_part(value), f"a part such as {type(old).__name__}(...)"
    if not fits:
        raise ConfigError(f"option {path!r} takes {kind}, not {shown(value)}")


def _is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _frozen(value: Any) -> Any:
    """Lists, as JSON has them, as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _is_number(value: Any) -> bool:
    number = values.number_of(value)
    return number is not None and math.isfinite(number)
