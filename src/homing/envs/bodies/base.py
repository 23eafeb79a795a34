"""The body interface, and helpers that bodies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.regions import Region
from homing.errors import ConfigError, shown
from homing.physics import EULER_DAMPING_OFF, Camera, Engine, Model, State, Timing
from homing.types import Array, Key
from homing.values import checked

# MuJoCo solver settings of the locomotion robots.
QUICK_NEWTON = (("iterations", 1), ("ls_iterations", 4), EULER_DAMPING_OFF)


@dataclass(frozen=True)
class Dense:
    """Weights of the dense reward, with d the distance to the goal:

    progress·(d_before − d)/dt − distance·d + alive − control·|ctrl|² − near·|hand − object|

    geodesic: measure d along the shortest path around the walls of a maze or room, not through them
    """

    progress: float = 0.0
    distance: float = 0.0
    alive: float = 0.0
    control: float = 0.0
    near: float = 0.0
    geodesic: bool = False

    def __post_init__(self) -> None:
        bounds.check(self)


class Robot(Protocol):
    """A robot without its control: model, initial pose, observation and termination.

    name:      for tables and messages
    root:      the link whose position is the robot's position; walls follow it
    pipelines: physics pipelines that it is tuned for, the default first
    healthy:   a state entry and its allowed range, outside of which the episode terminates; None for no termination
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
        """Initial q and qd of the robot's own joints, given its rest pose."""
        ...

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        """Names of the state entries before and after the entries of the task's objects."""
        ...

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        """Values of the state entries named by `columns`, [N, ·] and [N, ·]."""
        ...


class Body(Robot, Protocol):
    """A robot whose actions are one number for each actuator."""

    def control(self, engine: Engine, action: Array) -> Array:
        """Actuator commands [N, act_size] for actions in [-1, 1]."""
        ...


@runtime_checkable
class Commanded(Robot, Protocol):
    """A robot whose actions are not one number for each actuator."""

    @property
    def action_dim(self) -> int: ...

    def command(self, engine: Engine, state: State, action: Array) -> Array:
        """Actuator commands [N, act_size] for actions [N, action_dim] in [-1, 1], given the physics state."""
        ...


@runtime_checkable
class Arm(Protocol):
    """A body that is fixed to the ground and reaches a limited region."""

    @property
    def regions(self) -> tuple[Region, ...]:
        """Where it can bring its end effector, and objects; goals of other entries have no limit."""
        ...


@runtime_checkable
class Dressed(Protocol):
    """A body with shapes and colours for pictures, which the simulated model does without."""

    @property
    def camera(self) -> Camera: ...

    def dress(self, model: Model) -> None:
        """Add the shapes; all of the body's geoms keep their colours."""
        ...


def check_body(body: Any) -> None:
    """Refuse a body with a setting of the wrong type or outside its range; for a dataclass's `__post_init__`."""
    bounds.check(body)
    check_healthy(body.healthy)


def check_healthy(rule: Any) -> None:
    """Refuse what is neither None nor the name of a state entry and a range of numbers."""
    if rule is None:
        return
    if not (isinstance(rule, (tuple, list)) and len(rule) == 3 and isinstance(rule[0], str)):
        raise ConfigError(
            "healthy is a state entry and the ends of its range, "
            f"such as ('torso_z', 0.2, 1.0), or None; not {shown(rule)}"
        )
    low, high = (checked(f"the range of {rule[0]} in healthy", end, float) for end in rule[1:])
    if low >= high:
        raise ConfigError(
            f"healthy: the range of {rule[0]} must begin below its end, not {low:g} to {high:g}"
        )


def joint_names(engine: Engine, root: str = "root") -> list[str]:
    """Names of the one-coordinate joints, in the order of q."""
    return [name for name in engine.layout.joint_q if name != root]


def free_names(part: str) -> list[str]:
    """Names of the coordinates of a free joint."""
    return [f"{part}_{s}" for s in ("x", "y", "z", "qw", "qx", "qy", "qz")]


def free_velocity_names(part: str) -> list[str]:
    """Names of the velocities of a free joint."""
    return [f"{part}_{s}" for s in ("vx", "vy", "vz", "wx", "wy", "wz")]


def velocities(names: Sequence[str]) -> list[str]:
    """Names of the velocities of joints."""
    return [f"{name}_velocity" for name in names]


def unit_quaternion(q: Array, start: int = 3) -> Array:
    """q with the quaternion at `start` normalised, after noise was added to its entries."""
    rot = q[start : start + 4]
    return q.at[start : start + 4].set(rot / jnp.linalg.norm(rot))


def turned(key: Key, q: Array, start: int = 3) -> Array:
    """q with the quaternion at `start` rotated about the vertical by a uniform angle.

    Velocities stay as they are: those of a start are zero, or drawn from a distribution without a direction.
    """
    half = jax.random.uniform(key, (), jnp.float32, -0.5 * jnp.pi, 0.5 * jnp.pi)
    c, s = jnp.cos(half), jnp.sin(half)
    w, x, y, z = q[start : start + 4]
    return q.at[start : start + 4].set(
        jnp.stack([c * w - s * z, c * x - s * y, c * y + s * x, c * z + s * w])
    )


def noisy(
    key: Key, rest_q: Array, qd_size: int, position: float, velocity: float, distribution: str
) -> tuple[Array, Array]:
    """The rest pose plus U(±position), and velocities `velocity` · (N(0, 1) or U(±1))."""
    k_q, k_qd = jax.random.split(key)
    q = rest_q + jax.random.uniform(k_q, rest_q.shape, jnp.float32, -position, position)
    draw = {
        "normal": lambda: jax.random.normal(k_qd, (qd_size,), jnp.float32),
        "uniform": lambda: jax.random.uniform(k_qd, (qd_size,), jnp.float32, -1.0, 1.0),
    }
    return q, velocity * draw[distribution]()
