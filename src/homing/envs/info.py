"""Static description of an environment, and the checks made when one is built."""

from __future__ import annotations

from dataclasses import dataclass

import jax

from homing.envs.scene import EnvSpec, Scene, base_pipeline
from homing.errors import ConfigError, unknown

REWARDS = ("sparse", "dense")


def gymnasium_id(env_id: str) -> str:
    """Gymnasium's id of an environment: `homing/AntUMaze-v0` for `ant_u_maze`."""
    return f"homing/{''.join(part[:1].upper() + part[1:] for part in env_id.split('_'))}-v0"


@dataclass(frozen=True)
class EnvInfo:
    """Sizes, names and timing of an environment."""

    id: str
    body: str
    task: str
    arena: str
    physics: str
    state_dim: int
    goal_dim: int
    action_dim: int
    goal_indices: tuple[int, ...]
    state_names: tuple[str, ...]
    goal_names: tuple[str, ...]
    threshold: float
    dt: float
    timestep: float
    frames: int
    episode_length: int
    ends_early: bool
    reward: str


def describe(id: str, scene: Scene, episode_length: int, reward: str) -> EnvInfo:
    """The `EnvInfo` of a scene."""
    spec, engine = scene.spec, scene.engine
    timing = spec.body.pipelines[base_pipeline(scene.pipeline)]
    goal = scene.indices(spec.task.goal)
    return EnvInfo(
        id=id,
        body=spec.body.name,
        task=spec.task.name,
        arena=spec.arena.name,
        physics=scene.pipeline,
        state_dim=len(scene.columns),
        goal_dim=len(goal),
        action_dim=scene.action_dim,
        goal_indices=tuple(int(i) for i in goal),
        state_names=scene.columns,
        goal_names=tuple(spec.task.goal),
        threshold=spec.task.within,
        dt=engine.dt,
        timestep=timing.timestep,
        frames=timing.frames,
        episode_length=episode_length,
        ends_early=spec.body.healthy is not None,
        reward=reward,
    )


def check_reward(id: str, spec: EnvSpec, reward: str) -> None:
    """Raise unless `reward` is a known kind that the body defines."""
    if not isinstance(reward, str) or reward not in REWARDS:
        raise unknown("reward", reward, REWARDS)
    if reward == "dense" and not (spec.body.dense.progress or spec.body.dense.distance):
        raise ConfigError(f"the body of {id}, {spec.body.name}, defines no dense reward; use the sparse one")


def check_shapes(id: str, scene: Scene) -> None:
    """Trace one reset, so that mismatched parts fail here and not during training."""
    names = scene.spec.task.goal
    q, _, goal = jax.eval_shape(lambda: scene.sample_reset(jax.random.key(0)))
    if goal.shape != (len(names),):
        raise ConfigError(
            f"{id}: goals are sampled with {goal.shape[0]} entries, but the task names "
            f"{len(names)} state entries: {', '.join(names)}"
        )
    if q.shape != (scene.engine.layout.q_size,):
        raise ConfigError(
            f"{id}: a reset has {q.shape[0]} coordinates, the model has {scene.engine.layout.q_size}"
        )
