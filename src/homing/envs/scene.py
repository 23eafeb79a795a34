"""A body, a task and an arena put together: the model, and how its state is read and started."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from homing import physics
from homing.envs.arenas import Arena, Floor
from homing.envs.bodies.base import Body
from homing.envs.tasks.base import Draw, Task
from homing.envs.tasks.props import observe_prop, prop_columns
from homing.errors import ConfigError, unknown
from homing.types import Array, Key


@dataclass(frozen=True)
class EnvSpec:
    """A row of the table of environments.

    physics: pipelines that may be chosen, the first by default; empty for all that the body is tuned for
    """

    body: Body
    task: Task
    arena: Arena = field(default_factory=Floor)
    physics: tuple[str, ...] = ()

    def pipelines(self) -> tuple[str, ...]:
        return self.physics or tuple(self.body.pipelines)


def build_model(spec: EnvSpec) -> physics.Model:
    """The robot, the task's objects and what stands in the way of both."""
    model = spec.body.build()
    for prop in spec.task.props:
        prop.build(model)
    spec.arena.build(model, followed(spec))
    return model


def followed(spec: EnvSpec) -> tuple[str, ...]:
    """Names of the bodies that walls matter to: the robot's root, then the objects."""
    return (spec.body.root, *(prop.name for prop in spec.task.props))


def check_pipeline(spec: EnvSpec, pipeline: str | None) -> None:
    """Refuse one that this body is not tuned for; None is the body's own."""
    if pipeline is None or tuned_as(pipeline) in spec.pipelines():
        return
    if tuned_as(pipeline) in physics.PIPELINES:
        raise ConfigError(f"{spec.body.name} here runs on {' or '.join(spec.pipelines())}, not on {pipeline}")
    raise unknown("physics pipeline", pipeline, spec.pipelines())


def load_engine(spec: EnvSpec, pipeline: str) -> physics.Engine:
    check_pipeline(spec, pipeline)
    return physics.load(
        build_model(spec),
        pipeline,
        spec.body.pipelines[tuned_as(pipeline)],
        spec.arena.windows(followed(spec)),
    )


def tuned_as(pipeline: str) -> str:
    """The pipeline whose steps and gears it takes."""
    return physics.THEIRS.get(pipeline, pipeline)


class Scene:
    """An environment's model in motion, without episodes, goals or rewards."""

    def __init__(self, spec: EnvSpec, pipeline: str | None = None):
        self.spec = spec
        self.pipeline = pipeline or spec.pipelines()[0]
        self.engine = load_engine(spec, self.pipeline)
        layout = self.engine.layout
        self.prop_q = sum(prop.q_size for prop in spec.task.props)
        self.body_q = layout.q_size - self.prop_q
        self.body_qd = layout.qd_size - self.prop_q

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the state entries."""
        head, tail = self.spec.body.columns(self.engine)
        middle = [name for prop in self.spec.task.props for name in prop_columns(prop)]
        return (*head, *middle, *tail)

    def indices(self, names: tuple[str, ...]) -> np.ndarray:
        """Where named entries are in the state."""
        for name in names:
            if name not in self.columns:
                raise unknown("state entry", name, self.columns)
        return np.array([self.columns.index(name) for name in names], np.int32)

    def observe(self, state, ctrl: Array) -> Array:
        """[N, state_dim]"""
        head, tail = self.spec.body.observe(self.engine, state, ctrl)
        middle = [observe_prop(self.engine, state, prop) for prop in self.spec.task.props]
        return jnp.concatenate([head, *middle, tail], axis=-1)

    def pose(self, key: Key, draw: Draw) -> tuple[Array, Array]:
        """Coordinates and velocities that one episode starts from; objects start at rest."""
        rest = jnp.asarray(self.engine.layout.init_q[: self.body_q])
        q, qd = self.spec.body.start(key, rest, self.body_qd)
        if draw.start is not None:
            q = q.at[:2].set(draw.start)
        return jnp.concatenate([q, draw.props]), jnp.concatenate([qd, jnp.zeros((self.prop_q,), jnp.float32)])

    def sample_reset(self, key: Key) -> tuple[Array, Array, Array]:
        """q, qd and goal of one new episode."""
        k_draw, k_pose = jax.random.split(key)
        draw = self.spec.task.draw(k_draw, self.spec.arena)
        return *self.pose(k_pose, draw), draw.goal
