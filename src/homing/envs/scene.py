"""Scene: a body, a task and an arena compiled into one model, with its observations and resets."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from homing import physics
from homing.envs.arenas import Arena, Floor
from homing.envs.bodies.base import Body, Commanded
from homing.envs.renewal import GoalOptions
from homing.envs.tasks.base import Task, TaskSample
from homing.envs.tasks.props import observe_prop, prop_columns
from homing.errors import ConfigError, unknown
from homing.types import Array, Key


@dataclass(frozen=True)
class EnvSpec:
    """An environment as a body, a task and an arena.

    physics: allowed pipelines, the first is the default; empty allows all that the body is tuned for
    goals:   when a new goal is commanded inside of an episode
    """

    body: Body | Commanded
    task: Task
    arena: Arena = field(default_factory=Floor)
    physics: tuple[str, ...] = ()
    goals: GoalOptions = field(default_factory=GoalOptions)

    def pipelines(self) -> tuple[str, ...]:
        """Names of the allowed pipelines, the default first."""
        return self.physics or tuple(self.body.pipelines)


def build_model(spec: EnvSpec) -> physics.Model:
    """The model of the robot, the task's objects and the arena."""
    model = spec.body.build()
    for prop in spec.task.props:
        prop.build(model)
    spec.arena.build(model, followed(spec))
    return model


def followed(spec: EnvSpec) -> tuple[str, ...]:
    """Names of the bodies that can collide with walls: the robot's root, then the objects."""
    return (spec.body.root, *(prop.name for prop in spec.task.props))


def check_pipeline(spec: EnvSpec, pipeline: str | None) -> None:
    """Raise unless the body is tuned for this pipeline; None is the default."""
    if pipeline is None or base_pipeline(pipeline) in spec.pipelines():
        return
    if base_pipeline(pipeline) in physics.PIPELINES:
        raise ConfigError(f"{spec.body.name} here runs on {' or '.join(spec.pipelines())}, not on {pipeline}")
    raise unknown("physics pipeline", pipeline, spec.pipelines())


def load_engine(spec: EnvSpec, pipeline: str) -> physics.Engine:
    """Build and compile the model of an environment for a pipeline."""
    check_pipeline(spec, pipeline)
    return physics.load(
        build_model(spec),
        pipeline,
        spec.body.pipelines[base_pipeline(pipeline)],
        spec.arena.windows(followed(spec)),
    )


def base_pipeline(pipeline: str) -> str:
    """The pipeline whose timestep and gears this one uses."""
    return physics.REFERENCE_PIPELINES.get(pipeline, pipeline)


class Scene:
    """The physics of an environment: engine, observations and resets, without episodes or rewards."""

    def __init__(self, spec: EnvSpec, pipeline: str | None = None):
        self.spec = spec
        self.pipeline = pipeline or spec.pipelines()[0]
        self.engine = load_engine(spec, self.pipeline)
        layout = self.engine.layout
        self.prop_qd = sum(prop.qd_size for prop in spec.task.props)
        self.body_q = layout.q_size - sum(prop.q_size for prop in spec.task.props)
        self.body_qd = layout.qd_size - self.prop_qd

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the state entries."""
        head, tail = self.spec.body.columns(self.engine)
        middle = [name for prop in self.spec.task.props for name in prop_columns(prop)]
        return (*head, *middle, *tail)

    def indices(self, names: tuple[str, ...]) -> np.ndarray:
        """Indices of named state entries."""
        for name in names:
            if name not in self.columns:
                raise unknown("state entry", name, self.columns)
        return np.array([self.columns.index(name) for name in names], np.int32)

    @property
    def action_dim(self) -> int:
        """Number of entries of an action."""
        body = self.spec.body
        return body.action_dim if isinstance(body, Commanded) else self.engine.layout.act_size

    def control(self, state: physics.State, action: Array) -> Array:
        """Actuator commands [N, act_size] for actions [N, action_dim] in [-1, 1]."""
        body = self.spec.body
        if isinstance(body, Commanded):
            return body.command(self.engine, state, action)
        return body.control(self.engine, action)

    def still(self, state: physics.State) -> Array:
        """Actuator commands [N, act_size] of the zero action."""
        return self.control(state, jnp.zeros((len(self.engine.q(state)), self.action_dim), jnp.float32))

    def observe(self, state: physics.State, ctrl: Array) -> Array:
        """Observed state [N, state_dim]."""
        head, tail = self.spec.body.observe(self.engine, state, ctrl)
        middle = [observe_prop(self.engine, state, prop) for prop in self.spec.task.props]
        return jnp.concatenate([head, *middle, tail], axis=-1)

    def pose(self, key: Key, sample: TaskSample) -> tuple[Array, Array]:
        """Initial q and qd of one episode; objects start at rest."""
        rest = jnp.asarray(self.engine.layout.init_q[: self.body_q])
        q, qd = self.spec.body.start(key, rest, self.body_qd)
        if sample.start is not None:
            q = q.at[:2].set(sample.start)
        q = jnp.concatenate([q, sample.props])
        return q, jnp.concatenate([qd, jnp.zeros((self.prop_qd,), jnp.float32)])

    def sample_reset(self, key: Key) -> tuple[Array, Array, Array]:
        """q, qd and goal of one new episode."""
        k_task, k_pose = jax.random.split(key)
        sample = self.spec.task.draw(k_task, self.spec.arena)
        return *self.pose(k_pose, sample), sample.goal
