"""Movable objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import jax
import jax.numpy as jnp

from homing import bounds
from homing.envs.bodies.base import free_names, free_velocity_names
from homing.physics import Engine, Model, State
from homing.types import Array, Key

PADS = ("left_finger_pad", "right_finger_pad")
"""Geoms of the Panda's fingers."""


class Prop(Protocol):
    """A movable object.

    name:    name of its body
    axes:    observed world coordinates
    frame:   whether its orientation and velocities are observed too
    q_size:  number of its coordinates in q
    qd_size: number of its velocities in qd; with a free joint one less than coordinates
    """

    @property
    def name(self) -> str: ...
    @property
    def axes(self) -> str: ...
    @property
    def frame(self) -> bool: ...
    @property
    def q_size(self) -> int: ...
    @property
    def qd_size(self) -> int: ...

    def build(self, model: Model) -> None: ...

    def coordinates(self, xy: Array) -> Array:
        """Entries of q [q_size] for the world position xy [2]."""
        ...

    def rest(self, key: Key) -> Array:
        """Default initial entries of q [q_size]."""
        ...


def prop_columns(prop: Prop) -> list[str]:
    """Names of the state entries of an object: its position first."""
    position = [f"{prop.name}_{axis}" for axis in prop.axes]
    return (
        [*position, *free_names(prop.name)[3:], *free_velocity_names(prop.name)] if prop.frame else position
    )


def observe_prop(engine: Engine, state: State, prop: Prop) -> Array:
    """Values of the state entries of an object, [N, ·]."""
    links, index = engine.links(state), engine.layout.link(prop.name)
    position = links.pos[:, index, : len(prop.axes)]
    if not prop.frame:
        return position
    return jnp.concatenate([position, links.rot[:, index], links.vel[:, index], links.ang[:, index]], axis=-1)


def prop_position(prop: Prop) -> tuple[str, ...]:
    """Names of the state entries of an object's position."""
    return tuple(prop_columns(prop)[: len(prop.axes)])


@dataclass(frozen=True)
class Ball:
    """The ball of Ant Soccer; it slides on the floor and does not roll.

    Two concentric spheres: a light shell with contacts, and a core with the mass.
    """

    radius: float = 0.5
    name: str = "ball"
    axes: str = "xy"
    frame: bool = False
    q_size: int = 2
    qd_size: int = 2

    def build(self, model: Model) -> None:
        model.add_body(self.name, (0.0, 0.0, self.radius))
        for axis in "xy":
            model.add_slide(self.name, f"{self.name}_{axis}", axis, limit=(-100.0, 100.0), armature=1.0)
        rgba = (0.95, 0.95, 0.95, 1.0)
        model.add_geom(self.name, f"{self.name}_core", "sphere", (self.radius,), density=1.0, rgba=rgba)
        model.add_geom(
            self.name, f"{self.name}_shell", "sphere", (self.radius,), contype=1, density=0.1, rgba=rgba
        )

    def coordinates(self, xy: Array) -> Array:
        return xy

    def rest(self, key: Key) -> Array:
        return jnp.zeros((2,), jnp.float32)


@dataclass(frozen=True)
class Puck:
    """The puck of Pusher, a capsule that slides above the table; its joints are ordered y, x."""

    name: str = "puck"
    axes: str = "xyz"
    frame: bool = False
    q_size: int = 2
    qd_size: int = 2
    origin: tuple[float, float, float] = (0.45, -0.05, -0.275)

    def build(self, model: Model) -> None:
        model.add_body(self.name, self.origin)
        for axis in "yx":
            model.add_slide(
                self.name, f"{self.name}_{axis}", axis, limit=(-10.3213, 10.3), damping=0.5, armature=0.04
            )
        model.add_geom(
            self.name, f"{self.name}_core", "sphere", (0.05,), density=1.0, rgba=(1.0, 1.0, 1.0, 0.0)
        )
        rgba = (0.2, 0.35, 0.8, 1.0)
        model.add_geom(
            self.name, f"{self.name}_shell", "capsule", (0.05, 0.05), contype=1, density=1.0, rgba=rgba
        )

    def coordinates(self, xy: Array) -> Array:
        return jnp.stack([xy[1] - self.origin[1], xy[0] - self.origin[0]])

    def rest(self, key: Key) -> Array:
        return jnp.zeros((2,), jnp.float32)


@dataclass(frozen=True)
class Block:
    """The block of Ant Push: nearly massless, it starts slightly above the floor and drops."""

    centre: tuple[float, float, float] = (8.0, 8.0, 2.0)
    half: tuple[float, float, float] = (3.6, 3.6, 1.8)
    noise: float = 0.1
    name: str = "block"
    axes: str = "xy"
    frame: bool = False
    q_size: int = 3
    qd_size: int = 3

    def build(self, model: Model) -> None:
        model.add_body(self.name, self.centre)
        for axis in "xyz":
            model.add_slide(self.name, f"{self.name}_{axis}", axis)
        model.add_geom(
            self.name,
            f"{self.name}_geom",
            "box",
            self.half,
            contype=1,
            conaffinity=1,
            mass=0.0002,
            rgba=(0.85, 0.5, 0.2, 1.0),
        )

    def coordinates(self, xy: Array) -> Array:
        return jnp.concatenate([xy - jnp.asarray(self.centre[:2], jnp.float32), jnp.zeros((1,), jnp.float32)])

    def rest(self, key: Key) -> Array:
        return jax.random.uniform(key, (3,), jnp.float32, -self.noise, self.noise)


@dataclass(frozen=True)
class Cube:
    """A cube that moves freely, for the Panda's tasks; contacts are explicit pairs.

    table_friction:  sliding friction on the table; that on the walls of bins is the arena's
    finger_friction: sliding friction on the fingers and the hand
    state:           "full" observes position, orientation and velocities, "original" the position only
    """

    half: float = 0.03
    mass: float = 0.216
    table_friction: float = 0.2
    finger_friction: float = 1.0
    state: Literal["full", "original"] = "full"
    name: str = "cube"
    axes: str = "xyz"
    q_size: int = 7
    qd_size: int = 6

    def __post_init__(self) -> None:
        bounds.check(self)

    @property
    def frame(self) -> bool:
        return self.state == "full"

    def build(self, model: Model) -> None:
        model.add_free_body(self.name, (0.0, 0.0, self.half))
        rgba = (0.93, 0.62, 0.15, 1.0)
        geom = f"{self.name}_geom"
        model.add_geom(self.name, geom, "box", (self.half,) * 3, mass=self.mass, rgba=rgba)
        model.add_pair(geom, "table", self.table_friction)
        for part in ("palm", *PADS):
            model.add_pair(geom, part, self.finger_friction)

    def coordinates(self, xy: Array) -> Array:
        return jnp.concatenate([xy, jnp.asarray((self.half, 1.0, 0.0, 0.0, 0.0), jnp.float32)])

    def turned_to(self, xy: Array) -> Array:
        """`coordinates` with a face towards the origin."""
        half = 0.5 * jnp.arctan2(xy[1], xy[0])
        turn = jnp.stack([jnp.cos(half), jnp.zeros(()), jnp.zeros(()), jnp.sin(half)])
        return jnp.concatenate([xy, jnp.asarray((self.half,), jnp.float32), turn])

    def rest(self, key: Key) -> Array:
        return self.coordinates(jnp.asarray((0.0, 0.5), jnp.float32))
