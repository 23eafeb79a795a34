"""What every setting may be: one table of ranges, and the check that all settings go through.

A config checks itself when it is made (`check`), so the command line, the API, studies and files refuse the same
values in the same words. Commands check the numbers that belong to no config with `check_values`.
"""

from __future__ import annotations

import math
from typing import Any

from homing.values import Range, checked, hints_of

MAX_COUNT = 2**31 - 1  # counters on the device are int32
MAX_ENVS = 2**24
MAX_UNROLL = 32_767  # replay counts the transitions of a segment in int16
MAX_SEEDS = 100_000


COUNT = Range(1, MAX_COUNT)
ENVS = Range(1, MAX_ENVS)
EPISODE = COUNT
SEED = Range(0, MAX_COUNT)
UNIT = Range(0, 1)
RATE = Range(0, 10)  # 0 keeps a part of an agent as it is
WEIGHT = Range(0, 1e6)
LENGTH = Range(0, 1e6)  # metres
PLACE = Range(-1e6, 1e6)
POSITIVE = Range(0, 1e6, above=True)
PIXELS = Range(16, 8192)

_LOOP = {
    "total_steps": COUNT,
    "num_envs": ENVS,
    "unroll_length": Range(1, MAX_UNROLL),
    "evaluations": Range(1, 1_000_000),
    "eval_envs": ENVS,
    "lr_final_scale": UNIT,
    "policy_ema": Range(0, 1, below=True),
}
_ACTOR = {"actor_lr": RATE, "entropy_target": Range(-1e3, 1e3), "alpha_lr": RATE, "chunk": Range(1, 1024)}
_CRITIC = {"critic_lr": RATE, "random_goal_ratio": UNIT}

FRICTION = Range(0, 100, above=True)
_PANDA = {
    "frames": Range(
        10, 1000
    ),  # of a control step of 0.05 s; grips are not stable with longer ones than 0.005 s
    "friction": FRICTION,
    "impratio": Range(0, 1000, above=True),
    "iterations": Range(1, 100),
    "contacts": Range(1, 1000),
}

# By class of settings (a subclass has its base's) and name; `command` holds what belongs to no class.
BOUNDS: dict[str, dict[str, Range]] = {
    "TrainConfig": _LOOP
    | {
        "batch_size": Range(1, MAX_ENVS),
        "updates_per_step": Range(0, 1e4, above=True),
        "replay_size": COUNT,
        "prefill_steps": Range(0, MAX_COUNT),
        "train_episode_length": EPISODE,
        "greedy_env_fraction": UNIT,
        "replay_recent_fraction": Range(0, 1, above=True),
        "prefetch_bytes": Range(1, 2**40),
    },
    "OnPolicyConfig": _LOOP,
    "SaveConfig": {"checkpoint_minutes": Range(0, 1e6), "keep_checkpoints": Range(1, 1000)},
    "RunConfig": {"episode_length": EPISODE},
    "NetConfig": {"width": Range(1, 65_536), "depth": Range(1, 4096)},
    "CRLConfig": _ACTOR
    | _CRITIC
    | {
        "logsumexp_weight": WEIGHT,
        "gamma": Range(0, 1, above=True, below=True),
        "representation_dim": Range(1, 65_536),
        "bc_weight": WEIGHT,
    },
    "GCBCConfig": {"gamma": Range(0, 1, above=True, below=True), "actor_lr": RATE},
    "ActorCriticConfig": _ACTOR
    | _CRITIC
    | {"gamma": Range(0, 1, below=True), "her_ratio": UNIT, "tau": Range(0, 1, above=True)},
    "SRLConfig": _ACTOR
    | {
        "gamma": Range(0, 1, above=True, below=True),
        "goal_gamma": Range(0, 1, above=True, below=True),
        "future_ratio": UNIT,
        "current_ratio": UNIT,
        "far_ratio": UNIT,
        "waypoint_ratio": UNIT,
        "waypoint_gamma": Range(0, 1, above=True, below=True),
        "episode_ratio": UNIT,
        "horizon": Range(1, 100_000),
        "hazard_bins": Range(1, 100_000),
        "occupancy_bins": Range(1, 100_000),
        "dwell": Range(1, 10_000),
        "goal_points": Range(1, 128),
        "time_weight": WEIGHT,
        "separation_weight": WEIGHT,
        "occupancy_weight": WEIGHT,
        "survival_weight": WEIGHT,
        "representation_dim": Range(1, 65_536),
        "critic_lr": RATE,
    },
    "TD3Config": {
        "delay": Range(1, 1_000_000),
        "exploration_noise": Range(0, 1e3),
        "target_noise": Range(0, 1e3),
        "noise_clip": Range(0, math.inf),
        "action_cost": WEIGHT,
    },
    "PPOConfig": {
        "gamma": UNIT,
        "gae_lambda": UNIT,
        "clip": POSITIVE,
        "entropy_weight": WEIGHT,
        "value_weight": WEIGHT,
        "reward_scale": POSITIVE,
        "minibatches": Range(1, MAX_ENVS),
        "epochs": Range(1, 10_000),
        "lr": RATE,
        "max_grad_norm": Range(0, math.inf, above=True),  # infinite: no clipping
    },
    "Ring": {"radius": LENGTH, "outer": LENGTH},
    "Points": {"points": PLACE, "spread": LENGTH},
    "Box": {"low": PLACE, "high": PLACE},
    "Away": {"distance": LENGTH},
    "Around": {"least": LENGTH, "most": LENGTH},
    "FreeCells": {"spread": LENGTH},
    "CellPairs": {"least": COUNT, "most": COUNT, "spread": LENGTH},
    "InReach": {"start": PLACE, "apart": LENGTH},
    "GoalOptions": {"renew": COUNT, "hold": COUNT},
    "Panda": _PANDA | {"start_noise": Range(0, 0.5)},
    "PandaHand": _PANDA,
    "Cube": {
        "half": Range(0.005, 0.045),  # wider than the open fingers it could not be gripped
        "mass": POSITIVE,
        "table_friction": FRICTION,
        "finger_friction": FRICTION,
    },
    "Ant": {"density": POSITIVE, "rest_height": Range(0, 100, above=True), "contacts": Range(1, 1000)},
    "Floor": {"half": POSITIVE},
    "Maze": {"cell": POSITIVE},
    "Table": {
        "bins": PLACE,
        "depth": LENGTH,
        "half": POSITIVE,
        "height": POSITIVE,
        "thickness": POSITIVE,
        "friction": FRICTION,
    },
    "MoveCube": {"within": POSITIVE, "apart": LENGTH},
    "Grasp": {"within": POSITIVE},
    "Soccer": {"within": POSITIVE, "clear": LENGTH},
    "PushPucks": {"within": POSITIVE, "apart": LENGTH},
    "Reach": {"within": POSITIVE},
    "command": {
        "num_envs": ENVS,
        "episode_length": EPISODE,
        "within": POSITIVE,
        "seeds": Range(1, MAX_SEEDS),
        "seed": SEED,
        "start_seed": SEED,
        "episodes": Range(1, 2**20),
        "chain": Range(1, 1000),
        "chain_steps": Range(1, 1_000_000),
        "steps": Range(1, 1_000_000),
        "repeats": Range(1, 10_000),
        "seconds": Range(0, 1e5, above=True),
        "width": PIXELS,
        "height": PIXELS,
        "port": Range(0, 65_535),
        "devices": Range(0, 1024),
        "workers": Range(0, 1024),
        "dead_after": Range(1, 86_400),
        "population": Range(1, MAX_SEEDS),
        "memory": Range(0, 1e6, above=True),
        "scale": Range(0.0, 1.0, above=True),
        "noise": Range(0.0, 10.0),
        "random_actions": Range(0.0, 1.0),
        "val_fraction": Range(0.0, 1.0, below=True),
        "parallel": Range(1, 2**16),
    },
}


def range_of(kind: type, name: str) -> Range | None:
    """The range of a class's field, by the class or one it derives from."""
    for base in kind.__mro__:
        if found := BOUNDS.get(base.__name__, {}).get(name):
            return found
    return None


def check(config: Any) -> None:
    """Refuse a dataclass one of whose fields has the wrong type or lies outside its range.

    Numbers become plain ones of their field's type: 1 in a float field is stored as 1.0, a NumPy scalar as a
    Python number. Traced values pass: in a population they were checked as plain numbers before.
    """
    kind = type(config)
    for name, hint in hints_of(kind).items():
        old = getattr(config, name)
        new = checked(name, old, hint, range_of(kind, name))
        if new is not old:
            object.__setattr__(
                config, name, new
            )  # the dataclass is frozen, and this is its own __post_init__


def check_value(name: str, value: Any, label: str | None = None) -> Any:
    """A number of a command as a plain one, 2 for a count of 2.0; refuses one outside its range.

    label: what messages call it, if not by its name
    """
    range = BOUNDS["command"][name]
    return checked(label or name, value, int if isinstance(range.high, int) else float, range)


def check_values(**values: Any) -> tuple[Any, ...]:
    """`check_value` of each, in their order; None stays for those that are not given."""
    return tuple(None if value is None else check_value(name, value) for name, value in values.items())
