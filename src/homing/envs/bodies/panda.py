"""The Franka Panda above a table: with its arm, or as a hand that moves by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from homing.envs.bodies.base import Dense, check_body, velocities
from homing.envs.bodies.geometry import point_on_link
from homing.envs.regions import Reachable, Region, Solid
from homing.physics import Camera, Engine, Model, State, Timing, panda, panda_shapes
from homing.types import Array, Key

START = (1.571, 0.742, 0.0, -1.571, 0.0, 3.054)
LOW = (0.3491, 0.0, 0.0, -3.0718, 0.0, 2.3562)
HIGH = (2.7925, 1.48353, 0.0, -0.0698, 0.0, 3.7525)
DRIVEN = (0, 1, 3, 5)  # joints that an action moves
LEVEL = 0.25 * np.pi  # angle of joint 7 at which the fingers close along the horizontal
ORIGINAL_LEVEL = 1.4487
OPEN = 0.04  # of a finger at the start, metres
CONTROL_STEP = 0.05  # seconds
WRIST = ("wrist_x", "wrist_y", "wrist_z")
CUBE = ("cube_x", "cube_y", "cube_z")
FORCE_UNIT = 10.0  # newtons
Observed = Literal["full", "original"]
# Along the hand, from joint 7: the middle of the palm's capsule, and the fingertips.
PALM = panda.HAND_AT[2] + panda.CAPSULE_AT[2]
TIP = panda.HAND_AT[2] + panda.FINGERS_AT[2] + panda.TIP_AT[2]
CAMERA = Camera((0.03, 0.43, 0.12), 1.6, azimuth=-155.0, elevation=-32.0)


def wrist_places() -> np.ndarray:
    """Distances from the axis and heights [K, 2] of the wrist, for all angles that keep the hand off the table."""
    wrist, along, _ = arm_plane(*_grid(110, 110, 50))
    return wrist[(wrist + PALM * along)[:, 1] > panda.CAPSULE_RADIUS]


def arm_plane(q2: np.ndarray, q4: np.ndarray, q6: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Joint 7 in the arm's vertical plane, the direction of the hand [..., 2] each, and its angle from upwards.

    For joints 3 and 5 at zero. Coordinates are the distance from the axis of joint 1 and the height.
    """
    forearm, hand = q2 - q4, np.pi + q2 - q4 - q6
    along = lambda angle: np.stack([np.sin(angle), np.cos(angle)], axis=-1)
    across = lambda angle: np.stack([np.cos(angle), -np.sin(angle)], axis=-1)
    elbow = np.array([0.0, 0.333]) + 0.316 * along(q2) + 0.0825 * across(q2)
    joint6 = elbow - 0.0825 * across(forearm) + 0.384 * along(forearm)
    return joint6 - 0.088 * across(hand), along(hand), hand


def _grid(*counts: int) -> list[np.ndarray]:
    """Angles of joints 2, 4 and 6 over all that actions command, flat."""
    axes = [np.linspace(LOW[k], HIGH[k], n) for k, n in zip((1, 3, 5), counts, strict=True)]
    return [grid.ravel() for grid in np.meshgrid(*axes, indexing="ij")]


SECTOR = (LOW[0], HIGH[0])
WRIST_REGION = Solid(WRIST, wrist_places, SECTOR)
# On the table the fingers grip from 0.23 to 0.84 m away within 15° of the vertical, up to 0.9 m within 30°.
CUBE_REGION = Reachable(CUBE, (0.0, 0.0), 0.85, least=0.25, heights=(0.03, 0.1), sector=SECTOR)


@dataclass(frozen=True)
class Panda:
    """The arm: an action sets the targets of joints 1, 2, 4 and 6, and with a gripper closes or opens it.

    gripper:     whether it has moving fingers
    tips:        whether the fingertips' positions are observed
    gains:       "equal" reaches targets; "original" has the gains of JaxGCRL, with which joints 4 and 6 settle
                 at 0.57 and 0.5 of their targets and joint 7 stays at 0.72 rad
    state:       "full" observes joint velocities too; "original" does not
    frames:      physics steps in a control step of 0.05 s
    start_noise: U(±start_noise) on the driven joints at the start, in radians
    friction:    sliding friction of the hand on the table
    impratio:    MuJoCo's ratio of the stiffness of friction to that of contacts
    iterations:  of the contact solver, at most
    contacts:    maximum number of simultaneous contacts
    """

    gripper: bool = True
    tips: bool = False
    gains: panda.Gains = "equal"
    state: Observed = "full"
    frames: int = 25
    start_noise: float = 0.02
    friction: float = 0.2
    impratio: float = 10.0
    iterations: int = 16
    contacts: int = 16

    name: str = "panda"
    root: str = "link1"
    healthy: tuple[str, float, float] | None = None
    dense: Dense = Dense(distance=1.0)

    def __post_init__(self) -> None:
        check_body(self)

    @property
    def pipelines(self) -> Mapping[str, Timing]:
        return mjx_timing(self.frames, self.iterations, self.impratio, self.contacts)

    @property
    def regions(self) -> tuple[Region, ...]:
        return WRIST_REGION, CUBE_REGION

    @property
    def action_dim(self) -> int:
        return len(DRIVEN) + self.gripper

    @property
    def level(self) -> float:
        """Angle that joint 7 is commanded to."""
        return float(LEVEL) if self.gains == "equal" else ORIGINAL_LEVEL

    def build(self) -> Model:
        start = (*START, self.level, *((OPEN, OPEN) if self.gripper else ()))
        model = panda.arm(self.gains, self.gripper, start)
        touch_table(model, self.friction, self.gripper)
        return model

    @property
    def camera(self) -> Camera:
        return CAMERA

    def dress(self, model: Model) -> None:
        panda_shapes.dress_arm(model, self.gripper)

    def start(self, key: Key, rest_q: Array, qd_size: int) -> tuple[Array, Array]:
        noise = jax.random.uniform(key, (len(DRIVEN),), jnp.float32, -self.start_noise, self.start_noise)
        return rest_q.at[np.array(DRIVEN)].add(noise), jnp.zeros((qd_size,), jnp.float32)

    def columns(self, engine: Engine) -> tuple[Sequence[str], Sequence[str]]:
        names = [*panda.JOINTS, *WRIST, "wrist_vx", "wrist_vy", "wrist_vz"]
        if self.tips:
            names += [f"{side}_tip_{axis}" for side in ("left", "right") for axis in "xyz"]
        names += ["fingers_apart", "grip_force"] if self.gripper else []
        if self.state == "full":
            names += velocities(panda.JOINTS)
            names += ["fingers_velocity"] if self.gripper else []
        return (), names

    def observe(self, engine: Engine, state: State, ctrl: Array) -> tuple[Array, Array]:
        q, qd = engine.q(state), engine.qd(state)
        parts = [q[:, :7], *point_on_link(engine, state, "link7", (0.0, 0.0, 0.0))]
        if self.tips:
            parts += [point_on_link(engine, state, finger, panda.TIP_AT)[0] for finger in panda.FINGERS]
        if self.gripper:
            parts += grip_features(q[:, 7:9], qd[:, 7:9], ctrl[:, 7:9], self.tips)
        if self.state == "full":
            parts.append(qd[:, :7])
            parts += [jnp.sum(qd[:, 7:9], axis=-1, keepdims=True)] if self.gripper else []
        return q[:, :0], jnp.concatenate(parts, axis=-1)

    def command(self, engine: Engine, state: State, action: Array) -> Array:
        low, high = (jnp.asarray((*ends, self.level), jnp.float32) for ends in (LOW, HIGH))
        spread = jnp.zeros((len(action), 7), jnp.float32).at[:, np.array(DRIVEN)].set(action[:, :4])
        targets = low + 0.5 * (spread + 1.0) * (high - low)
        return jnp.concatenate([targets, *([closed_or_open(action[:, 4:])] if self.gripper else [])], axis=-1)


def mjx_timing(frames: int, iterations: int, impratio: float, contacts: int) -> Mapping[str, Timing]:
    """The only pipeline of a Panda, by its settings."""
    options = (("iterations", iterations), ("ls_iterations", 8), ("impratio", impratio))
    return {"mjx": Timing(CONTROL_STEP / frames, frames, options=options, contacts=contacts)}


def touch_table(model: Model, friction: float, gripper: bool = True) -> None:
    """Let the hand, and with a gripper its fingers, touch the table."""
    for geom in ("palm", *(f"{finger}_pad" for finger in panda.FINGERS if gripper)):
        model.add_pair(geom, "table", friction)


def closed_or_open(action: Array) -> Array:
    """Commands [N, 2] of both fingers for an action [N, 1]: above 0 closes them."""
    return jnp.broadcast_to(jnp.where(action > 0, 0.0, panda.FINGER_CONTROL), (len(action), 2))


def grip_features(q: Array, qd: Array, ctrl: Array, tips: bool) -> list[Array]:
    """Distance between the fingers, or their tips, and the mean force of their motors in 10 N, [N, 1] each."""
    apart = jnp.sum(q, axis=-1, keepdims=True) + (2.0 * panda.TIP_AT[1] if tips else 0.0)
    force = panda.FINGER_GAIN * ctrl - panda.FINGER_STIFFNESS * (q + 0.1 * qd)
    force = jnp.clip(force, -panda.FINGER_FORCE, panda.FINGER_FORCE)
    return [apart, jnp.mean(force, axis=-1, keepdims=True) / FORCE_UNIT]
