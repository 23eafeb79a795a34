"""The Panda's hand without its arm, moved along x, y and z."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax.numpy as jnp

from homing.envs.bodies.base import Dense, check_body
from homing.envs.bodies.panda import (
    CAMERA,
    CUBE,
    OPEN,
    Observed,
    closed_or_open,
    grip_features,
    mjx_timing,
    touch_table,
)
from homing.envs.regions import Reachable, Region
from homing.physics import Camera, Engine, Model, State, Timing, panda, panda_shapes
from homing.types import Array, Key

# Ranges of the hand's frame; 0.1334 m below it the fingers end.
RANGES = ((-0.4, 0.4), (0.35, 0.85), (0.1334, 0.4334))
START = (0.0, 0.6, 0.3)
REACH = 0.2  # metres that an action can ask for


@dataclass(frozen=True)
class PandaHand:
    """A hand with its fingers down: an action moves it by up to 0.2 m from where it is, and closes or opens it.

    Settings are those of `Panda`.
    """

    state: Observed = "full"
    frames: int = 25
    friction: float = 0.2
    impratio: float = 10.0
    iterations: int = 16
    contacts: int = 16

    name: str = "panda_hand"
    root: str = "hand"
    healthy: tuple[str, float, float] | None = None
    dense: Dense = Dense(distance=1.0)

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return mjx_timing(self.frames, self.iterations, self.impratio, self.contacts)

    @property
    def regions(self) -> tuple[Region, ...]:
        # A disc that both bins lie in, inside of what the hand moves over.
        return (Reachable(CUBE, (0.0, 0.6), 0.36, heights=(0.03, 0.3)),)

    @property
    def action_dim(self) -> int:
        return 4

    def build(self) -> Model:
        model = panda.hand(RANGES, (*START, OPEN, OPEN))
        touch_table(model, self.friction)
        return model

    @property
    def camera(self) -> Camera:
        return CAMERA

    def dress(self, model: Model) -> None:
        panda_shapes.dress_hand(model)

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        return rest_q, jnp.zeros((qd_size,), jnp.float32)

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        names = [f"hand_{axis}" for axis in ("x", "y", "z", "vx", "vy", "vz")]
        names += ["fingers_apart", "grip_force"]
        return (), [*names, "fingers_velocity"] if self.state == "full" else names

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        q, qd = engine.q(state), engine.qd(state)
        parts = [q[:, :3], qd[:, :3], *grip_features(q[:, 3:5], qd[:, 3:5], ctrl[:, 3:5], tips=False)]
        if self.state == "full":
            parts.append(jnp.sum(qd[:, 3:5], axis=-1, keepdims=True))
        return q[:, :0], jnp.concatenate(parts, axis=-1)

    def command(self, engine: Engine, state: State, action: Array) -> Array:
        low, high = (jnp.asarray(ends, jnp.float32) for ends in zip(*RANGES, strict=True))
        place = jnp.clip(engine.q(state)[:, :3] + REACH * action[:, :3], low, high)
        return jnp.concatenate([place, closed_or_open(action[:, 3:])], axis=-1)
