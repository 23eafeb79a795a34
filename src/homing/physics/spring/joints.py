"""Joints as springs: constraint forces, motors and limits.

A link's joint has three axes. The first one, two or three are degrees of freedom; springs constrain the others.
Directions are in the world frame, so that forces need no change of frame.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
import mujoco
import numpy as np

from homing.physics.kinematics import DOFS, Tree
from homing.physics.mechanism import Dofs, Links
from homing.physics.spring.stages import stage
from homing.physics.spring_settings import SpringSettings
from homing.physics.vectors import (
    Bodies,
    Mat,
    Number,
    Vec,
    add,
    constant,
    constants,
    cross,
    dot,
    floats,
    matrix,
    minus,
    mul,
    pick_all,
    plus,
    rotate,
    scale,
    slots,
    sub,
)

# Joint stacks by which of their joints are hinges.
KINDS = {
    (True,): "hinge",
    (False,): "slide",
    (True, True): "hinges",
    (False, False): "slides",
    (True, True, True): "ball",
    (False, False, True): "planar",
}


@dataclass(frozen=True)
class Axis:
    """The k-th axis of every link's joint; constants over links.

    at_parent, at_child: direction in the frames of the parent and of the link
    slide:               direction in the parent's frame for a slide joint, else zero
    rotates:             1 for a hinge joint, else 0
    """

    at_parent: Vec
    at_child: Vec
    slide: Vec
    rotates: Number
    low: Number
    high: Number

    @property
    def slides(self) -> bool:
        """Whether any link slides along this axis."""
        return any(np.any(a) for a in self.slide)

    def beyond(self, value: Number) -> Number:
        """Signed violation of the joint limits."""
        if np.all(np.isinf(self.low)) and np.all(np.isinf(self.high)):
            return 0.0
        return value - jnp.clip(value, self.low, self.high)


@dataclass(frozen=True)
class Pose:
    """Joints in the world frame, components [N, L].

    Axes of the parent's and the child's side, arms from the two centres of mass to the joint, and position and
    velocity of the child's side relative to the parent's.
    """

    parent_axes: Mat
    child_axes: Mat
    slides: Mat
    parent_arm: Vec
    child_arm: Vec
    offset: Vec
    vel: Vec
    ang: Vec

    def angles(self, parity: Number) -> Vec:
        """Angles of successive rotations about the three axes."""
        p, c = self.parent_axes, self.child_axes
        along, across = dot(p[0], c[0]), dot(p[0], c[1])
        return (
            jnp.arctan2(-dot(p[1], c[2]), dot(p[2], c[2])),
            jnp.arctan2(dot(p[0], c[2]), jnp.sqrt(along * along + across * across)),
            jnp.arctan2(-mul(parity, across), along),
        )


class Joints(Tree):
    """The joints of a mechanism, one per link; the joint of a free link exerts no force.

    moving: 0 for links that a joint connects to the world, else 1
    """

    def __init__(self, links: Links, dofs: Dofs, settings: SpringSettings):
        super().__init__(links, dofs)
        self._place(links)
        stacks = [self.hinges[d : d + DOFS[t]] for d, t in zip(self.dof, self.types, strict=True)]
        kinds = ["free" if t == "f" else kind_of(s) for s, t in zip(stacks, self.types, strict=True)]
        frames, parity = zip(*map(_frame, kinds, stacks), strict=True)
        self.parity = constant(np.array(parity))
        self.axes = tuple(self._axis(k, links.rot, dofs, np.stack(frames)[:, k]) for k in range(3))
        self._stiffen(settings, kinds)
        self._children = slots(np.where(self.free, -1, self.parents), len(self.types))

    # -- constants --------------------------------------------------------------------------------------

    def _place(self, links: Links) -> None:
        """Arms from the centres of mass to the joint, and parent indices."""
        joint, centre = links.joint, links.centre
        ahead = links.pos + _rotated(links.rot, joint)
        self._behind = np.maximum(self.parents, 0)
        parent_centre = np.where((self.parents < 0)[:, None], 0.0, centre[self._behind])
        self.parent_arm, self.child_arm = constants(ahead - parent_centre), constants(joint - centre)
        # As in brax, the parent's velocity is taken at the point opposite to the joint about its origin.
        self.speed_arm = constants(-ahead - parent_centre)
        # The joint of a free link exerts no force, so its parent is arbitrary.
        self.moving = constant(np.where((self.parents < 0) & ~self.free, 0.0, 1.0))

    def _axis(self, k: int, rot: np.ndarray, dofs: Dofs, at_child: np.ndarray) -> Axis:
        count = len(self.types)
        slide, rotates = np.zeros((count, 3)), np.zeros(count)
        low, high = np.full(count, -np.inf), np.full(count, np.inf)
        for i in self.links_with(k):
            dof = self.dof[i] + k
            slide[i] = self.slides[dof]
            rotates[i] = np.any(self.hinges[dof])
            low[i], high[i] = dofs.low[dof], dofs.high[dof]
        directions = (_rotated(rot, at_child), at_child, _rotated(rot, slide))
        return Axis(*map(constants, directions), *map(constant, (rotates, low, high)))

    def links_with(self, k: int) -> list[int]:
        """Links with at least k + 1 degrees of freedom, free links excluded."""
        return [i for i, t in enumerate(self.types) if t != "f" and k < int(t)]

    def _stiffen(self, settings: SpringSettings, kinds: list[str]) -> None:
        """Spring constants, and for each axis the stiffness that aligns its two directions."""
        when = lambda *names: np.array([float(kind in names) for kind in kinds])
        held = 1.0 - when("free")
        stiff, limit = settings.joint_stiffness, settings.joint_limit_stiffness
        self.stiffness = constant(stiff * held)
        self.damping = constant(settings.joint_vel_damping * held)
        self.spin_damping = constant(settings.joint_ang_damping * held)
        self.limit_stiffness = constant(limit * held)
        self.align = (
            constant(stiff * when("hinge", "slide")),
            constant(stiff * when("slide") + limit * when("slides")),
            constant(stiff * when("slides", "planar")),
        )
        self.universal = constant(limit * when("hinges"))

    # -- forces -----------------------------------------------------------------------------------------

    def pose(self, bodies: Bodies) -> Pose:
        """The joints of bodies in the world frame."""
        parent = self._parents(bodies)
        own, base = matrix(bodies.rot), matrix(parent.rot)
        arm, base_arm = rotate(own, self.child_arm), rotate(base, self.parent_arm)
        # As in brax, the child's velocity is taken at its origin, not at the joint.
        origin_vel = minus(bodies.vel, cross(bodies.ang, rotate(own, self.centre)))
        return Pose(
            parent_axes=tuple(rotate(base, axis.at_parent) for axis in self.axes),
            child_axes=tuple(rotate(own, axis.at_child) for axis in self.axes),
            slides=tuple(rotate(base, axis.slide) for axis in self.axes),
            parent_arm=base_arm,
            child_arm=arm,
            offset=plus(minus(bodies.pos, parent.pos), minus(arm, base_arm)),
            vel=minus(minus(origin_vel, parent.vel), cross(parent.ang, rotate(base, self.speed_arm))),
            ang=minus(bodies.ang, parent.ang),
        )

    def _parents(self, bodies: Bodies) -> Bodies:
        """Each link's parent; the world is at rest at the origin."""
        pos, (w, *xyz), vel, ang = bodies.pick(self._behind)
        w = add(mul(self.moving, w), sub(1.0, self.moving))
        there = lambda v: scale(self.moving, v)
        return Bodies(there(pos), (w, *there(tuple(xyz))), there(vel), there(ang))

    def forces(self, bodies: Bodies, motors: Vec) -> tuple[Vec, Vec, Vec]:
        """For each joint: force on its link, torque on the link, and torque on the parent.

        Torques are about the centres of mass; `motors` are forces or torques [N, L] on each axis.
        """
        at = self.pose(bodies)
        force, torque = stage((self._force(at, motors), self._torque(at, motors)))
        return force, plus(torque, cross(at.child_arm, force)), plus(torque, cross(at.parent_arm, force))

    def collect(self, force: Vec, torque: Vec, back: Vec) -> tuple[Vec, Vec]:
        """Force and torque on each link, summed over its own joint and those of its children."""
        pulls = [pick_all(force, *slot) for slot in self._children]
        torques = [pick_all(back, *slot) for slot in self._children]
        if not pulls:
            return force, torque
        return minus(force, plus(*pulls)), minus(torque, plus(*torques))

    def _force(self, at: Pose, motors: Vec) -> Vec:
        held = plus(scale(-self.stiffness, at.offset), scale(-self.damping, at.vel))
        slides = [(axis, at.slides[k], motors[k]) for k, axis in enumerate(self.axes) if axis.slides]
        # The spring force along a slide can be huge; removing it before adding anything else avoids rounding errors.
        loose = [scale(-dot(held, slide), slide) for _, slide, _ in slides]
        pushes = []
        for axis, slide, motor in slides:
            push = sub(motor, mul(self.limit_stiffness, axis.beyond(dot(at.offset, slide))))
            pushes.append(scale(push, slide))
        return plus(held, *loose, *pushes)

    def _torque(self, at: Pose, motors: Vec) -> Vec:
        torque = minus(scale(-self.spin_damping, at.ang), self._squaring(at))
        for stiff, parent, child in zip(self.align, at.parent_axes, at.child_axes, strict=True):
            torque = minus(torque, scale(stiff, cross(parent, child)))
        about = (at.parent_axes[0], at.child_axes[1], scale(self.parity, at.child_axes[2]))
        for axis, angle, direction, motor in zip(
            self.axes, at.angles(self.parity), about, motors, strict=True
        ):
            push = sub(motor, mul(self.limit_stiffness, axis.beyond(angle)))
            torque = plus(torque, scale(mul(axis.rotates, push), direction))
        return torque

    def _squaring(self, at: Pose) -> Vec:
        """Restoring torque that keeps the axes of two hinges orthogonal."""
        first, second = at.parent_axes[0], at.child_axes[1]
        across = minus(second, scale(dot(first, second), first))
        size = jnp.sqrt(jnp.maximum(dot(across, across), 1e-12))
        return scale(mul(self.universal, 1.0 / size), cross(across, second))


def unsupported(model: mujoco.MjModel) -> Iterator[str]:
    """Reasons why a model's joints are not supported."""
    hinge, slide = mujoco.mjtJoint.mjJNT_HINGE, mujoco.mjtJoint.mjJNT_SLIDE
    for body in range(1, model.nbody):
        own = slice(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        types, axes = model.jnt_type[own], model.jnt_axis[own]
        if list(types) == [mujoco.mjtJoint.mjJNT_FREE]:
            continue
        kind = KINDS.get(tuple(t == hinge for t in types), "")
        if not kind or not np.all(np.isin(types, (hinge, slide))):
            yield f"the joints of body {body} are not a supported combination"
        elif kind in ("hinges", "ball", "slides", "planar"):
            both = [axes[types == t] for t in (hinge, slide)]
            if not all(np.allclose(a @ a.T, np.eye(len(a)), atol=1e-5) for a in both):
                yield f"the joints of body {body} are not orthogonal"


def kind_of(ang: np.ndarray) -> str:
    """Name of a joint stack, given its hinge axes [dofs, 3], zero for a slide."""
    return KINDS.get(tuple(bool(t) for t in np.any(ang != 0, axis=1)), "")


def _frame(kind: str, ang: np.ndarray) -> tuple[np.ndarray, float]:
    """A joint's axes as rows in the link's frame, and ±1 for the handedness of three hinges."""
    if kind == "hinge":
        return np.stack([ang[0], *_beside(ang[0])]), 1.0
    if kind == "planar":
        return np.stack([*_beside(ang[2]), ang[2]]), 1.0
    if kind in ("hinges", "ball"):
        third = np.cross(ang[0], ang[1])
        return np.stack([ang[0], ang[1], third]), float(third @ ang[2]) if kind == "ball" else 1.0
    return np.eye(3), 1.0


def _beside(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two unit vectors that complete a to a right-handed frame."""
    b = np.array([0.0, 1.0, 0.0]) if -0.5 < a[1] < 0.5 else np.array([0.0, 0.0, 1.0])
    b = b - a * (a @ b)
    b = b / np.linalg.norm(b)
    return b, np.cross(a, b)


def _rotated(rot: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Vectors [L, 3] rotated by quaternions [L, 4]."""
    return np.array([rotate(matrix(floats(q)), floats(v)) for q, v in zip(rot, vectors, strict=True)])
