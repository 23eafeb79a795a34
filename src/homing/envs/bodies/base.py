"""What an environment asks of a robot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from homing.physics import EULER_DAMPING_OFF, Engine, Model, Timing
from homing.types import Array, Key

# Settings that the locomotion robots take on MuJoCo's own solver.
QUICK_NEWTON = (("iterations", 1), ("ls_iterations", 4), EULER_DAMPING_OFF)


@dataclass(frozen=True)
class Dense:
    """Weights of the dense reward:

    progress·(d_before − d)/dt − distance·d + alive − control·|ctrl|² − near·|hand − object|
    """

    progress: float = 0.0
    distance: float = 0.0
    alive: float = 0.0
    control: float = 0.0
    near: float = 0.0


class Body(Protocol):
    """A robot: its model, how it starts, what it senses, when it has fallen.

    name:      for tables and messages
    root:      the link that tells where the robot is; walls follow it
    pipelines: physics pipelines that it is tuned for, the first being its own
    healthy:   name of a state entry and the range it must stay in, or None if it cannot fall
    dense:     weights of its dense reward
    """

    @property
    def name(self) -> str: ...
    @property
    def root(self) -> str: ...
    @property
    def pipelines(self) -> Mapping[str, Timing]: ...
    @property
    def healthy(self) -> tuple[str, float, float] | None: ...
    @property
    def dense(self) -> Dense: ...

    def build(self) -> Model: ...

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        """A start pose and velocity of the robot's own joints, from its rest pose."""
        ...

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        """Names of the state entries before and after those of the task's objects."""
        ...

    def observe(self, engine: Engine, state: Any, ctrl: Array) -> tuple[Array, Array]:
        """[N, ·] and [N, ·]: the entries that `columns` names."""
        ...

    def control(self, engine: Engine, action: Array) -> Array:
        """Motor commands of actions in [-1, 1]."""
        ...


def joint_names(engine: Engine, root: str = "root") -> list[str]:
    """Names of the joints that have one coordinate each, in the order of q."""
    return [name for name in engine.layout.joint_q if name != root]


def free_names(part: str) -> list[str]:
    return [f"{part}_{s}" for s in ("x", "y", "z", "qw", "qx", "qy", "qz")]


def free_velocity_names(part: str) -> list[str]:
    return [f"{part}_{s}" for s in ("vx", "vy", "vz", "wx", "wy", "wz")]


def velocities(names: Sequence[str]) -> list[str]:
    return [f"{name}_velocity" for name in names]


def unit_quaternion(q: Array, start: int = 3) -> Array:
    """q with the quaternion at `start` made a unit one; noise on its entries makes it none."""
    rot = q[start : start + 4]
    return q.at[start : start + 4].set(rot / jnp.linalg.norm(rot))


def noisy(
    key: Key, rest_q: Array, qd_size: int, position: float, velocity: float, law: str
) -> tuple[Array, Array]:
    """The rest pose plus U(±position) on every coordinate, and velocities by `law` times `velocity`."""
    k_q, k_qd = jax.random.split(key)
    q = rest_q + jax.random.uniform(k_q, rest_q.shape, jnp.float32, -position, position)
    draw = {
        "normal": lambda: jax.random.normal(k_qd, (qd_size,), jnp.float32),
        "uniform": lambda: jax.random.uniform(k_qd, (qd_size,), jnp.float32, -1.0, 1.0),
    }
    return q, velocity * draw[law]()
