"""Construction of simulation models on top of `mujoco.MjSpec`.

A model is built from parts (`homing.physics.robots`) or from MJCF text, and is then edited. Goals are never part of
it: "target" bodies of a robot file are removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mujoco
import numpy as np

from homing.errors import ConfigError, unknown
from homing.physics.merging import merged
from homing.physics.numerics import REST_POSE
from homing.physics.spring_settings import NUMERICS, SpringSettings

GEOM_TYPES = {
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "plane": mujoco.mjtGeom.mjGEOM_PLANE,
}
JOINT_TYPES = {"slide": mujoco.mjtJoint.mjJNT_SLIDE, "hinge": mujoco.mjtJoint.mjJNT_HINGE}
SOLREF, SOLIMP = (0.004, 1.0), (0.95, 0.99, 0.001)  # of explicit pairs
AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


class Model:
    """An editable model; `compile` turns it into a `mujoco.MjModel`."""

    def __init__(self, spec: mujoco.MjSpec):
        self.spec = spec

    @classmethod
    def from_xml(cls, xml: str, without: Iterable[str] = ()) -> Model:
        """A model from MJCF text. Bodies without a joint are merged into their parents."""
        try:
            model = cls(mujoco.MjSpec.from_string(merged(xml)))
        except Exception as error:  # the parsers raise errors of many types
            raise ConfigError(f"this MJCF text cannot be read: {error}") from error
        for name in without:
            model.remove_body(name)
        if model.spec.compiler.settotalmass > 0:
            model.set_total_mass(model.spec.compiler.settotalmass)
        return model

    # -- lookup -----------------------------------------------------------------------------------------

    def body(self, name: str):
        """The body of this name."""
        return _named("body", name, self.spec.bodies)

    def geom(self, name: str):
        """The geom of this name."""
        return _named("geom", name, self.spec.geoms)

    @property
    def body_names(self) -> list[str]:
        """Names of all bodies except the world."""
        return [b.name for b in self.spec.bodies if b.name != "world"]

    @property
    def geom_names(self) -> list[str]:
        """Names of all geoms that have one."""
        return [g.name for g in self.spec.geoms if g.name]

    # -- editing ----------------------------------------------------------------------------------------

    def remove_body(self, name: str) -> None:
        """Remove a body with its children, and their entries in the custom numerics that have one per body or
        coordinate."""
        body = self.body(name)
        removed = [body, *body.find_all("body")]
        index = self.body_names.index(name)
        width = sum(map(_coordinates, removed))
        before = sum(_coordinates(b) for b in self.spec.bodies[1 : index + 1])
        bodies = len(self.body_names)
        for numeric in self.spec.numerics:
            data = np.asarray(numeric.data)
            if numeric.name == REST_POSE:
                numeric.data = np.delete(data, np.arange(before, before + width))
            elif numeric.name.startswith("constraint_") and data.size == bodies:
                numeric.data = np.delete(data, np.arange(index, index + len(removed)))
            numeric.size = len(numeric.data)
        self.spec.delete(body)

    def set_total_mass(self, total: float) -> None:
        """Scale densities, masses and inertias to a total mass; bodies that are added later do not change them."""
        self.spec.compiler.settotalmass = -1
        factor = total / self._compile().body_mass.sum()
        for body in self.spec.bodies:
            if body.explicitinertial:
                body.mass, body.inertia = factor * body.mass, factor * np.asarray(body.inertia)
                body.fullinertia = factor * np.asarray(body.fullinertia)
        for geom in self.spec.geoms:
            geom.density *= factor
            if not np.isnan(geom.mass):
                geom.mass *= factor

    def set_rest(self, q: Sequence[float]) -> None:
        """Set the rest pose; joints that are added later rest at 0."""
        self.set_number(REST_POSE, q)

    def set_spring(self, settings: SpringSettings) -> None:
        """Set all that the spring pipeline reads besides MuJoCo's fields."""
        for field, name in NUMERICS.items():
            self.set_number(name, getattr(settings, field))

    def set_number(self, name: str, values: float | Sequence[float]) -> None:
        """Set a custom numeric."""
        data = np.atleast_1d(np.asarray(values, float))
        for numeric in self.spec.numerics:
            if numeric.name == name:
                numeric.data, numeric.size = data, len(data)
                return
        self.spec.add_numeric(name=name, data=data, size=len(data))

    def set_option(self, **options) -> None:
        """Set solver options, by MuJoCo's names (`timestep`, `iterations`, ...)."""
        known = [name for name in dir(self.spec.option) if not name.startswith("_")]
        for name, value in options.items():
            if name not in known:
                raise unknown("solver option of MuJoCo", name, known)
            setattr(self.spec.option, name, value)

    def set_contact(
        self, geoms: Iterable[str], contype: int | None = None, conaffinity: int | None = None
    ) -> None:
        """Set the contact bits of geoms; None keeps a value."""
        for name in geoms:
            geom = self.geom(name)
            geom.contype = geom.contype if contype is None else contype
            geom.conaffinity = geom.conaffinity if conaffinity is None else conaffinity

    def set_material(self, density: float | None = None, solimp: Sequence[float] | None = None) -> None:
        """Set the density or contact impedance of every geom, including those added later."""
        for geom in (*self.spec.geoms, self.spec.default.geom):
            if density is not None:
                geom.density = density
            if solimp is not None:
                geom.solimp = [*solimp, *geom.solimp[len(solimp) :]]

    def set_gear(self, gears: Sequence[float]) -> None:
        """Set the gears of all actuators."""
        for actuator, gear in zip(self.spec.actuators, gears, strict=True):
            actuator.gear = [gear, 0, 0, 0, 0, 0]

    def add_body(self, name: str, pos: Sequence[float]) -> None:
        """Add a body to the world."""
        self.spec.worldbody.add_body(name=name, pos=list(pos))

    def add_slide(
        self,
        body: str,
        name: str,
        axis: str,
        limit: tuple[float, float] | None = None,
        damping: float = 0.0,
        armature: float = 0.0,
    ) -> None:
        """Add a slide joint; every field is set, so that no default of the model applies."""
        self.body(body).add_joint(
            name=name,
            type=JOINT_TYPES["slide"],
            axis=list(AXES[axis]),
            limited=mujoco.mjtLimited.mjLIMITED_FALSE if limit is None else mujoco.mjtLimited.mjLIMITED_TRUE,
            range=[0, 0] if limit is None else list(limit),
            damping=like_default(self.spec, "damping", damping),
            armature=armature,
            stiffness=like_default(self.spec, "stiffness", 0.0),
        )

    def add_free_body(self, name: str, pos: Sequence[float]) -> None:
        """Add a body to the world that moves freely, with one joint of seven coordinates."""
        self.spec.worldbody.add_body(name=name, pos=list(pos)).add_freejoint(name=f"{name}_free")

    def add_pair(self, one: str, other: str, friction: float = 1.0) -> None:
        """Let two geoms collide, whatever their contact bits; friction is that of sliding, in both directions.

        Contacts are stiffer than MuJoCo's default, so that pressed things do not pass through each other.
        """
        pair = self.spec.add_pair(geomname1=one, geomname2=other)
        for field, values in (("friction", (friction, friction)), ("solref", SOLREF), ("solimp", SOLIMP)):
            setattr(pair, field, [*values, *list(getattr(pair, field))[len(values) :]])

    def add_geom(
        self,
        body: str | None,
        name: str,
        shape: str,
        size: Sequence[float],
        pos: Sequence[float] = (0.0, 0.0, 0.0),
        contype: int = 0,
        conaffinity: int = 0,
        density: float | None = None,
        mass: float | None = None,
        rgba: Sequence[float] | None = None,
    ) -> None:
        """Add a geom to a body, or to the world for None; unset properties take the model's defaults."""
        where = self.spec.worldbody if body is None else self.body(body)
        extra = {"density": density, "mass": mass, "rgba": None if rgba is None else list(rgba)}
        where.add_geom(
            name=name,
            type=GEOM_TYPES[shape],
            size=[*size, *[0.0] * (3 - len(size))],
            pos=list(pos),
            contype=contype,
            conaffinity=conaffinity,
            **{k: v for k, v in extra.items() if v is not None},
        )

    def mark_touching(self, body: str, bit: int) -> None:
        """Add contact bit `bit` to the affinity of all colliding geoms of a body and its children."""
        for geom in self._geoms_below(body):
            if geom.contype | geom.conaffinity:
                geom.conaffinity |= bit

    def reach(self, body: str, bit: int) -> float:
        """Upper bound on the distance from the body's origin to any geom with contact bit `bit`.

        Lengths are summed along the chain of links, for any joint angles.
        """
        model = self._compile()
        root = model.body(body).id
        farthest = 0.0
        for geom in range(model.ngeom):
            if not model.geom_conaffinity[geom] & bit:
                continue
            length = np.linalg.norm(model.geom_pos[geom]) + model.geom_rbound[geom]
            link = model.geom_bodyid[geom]
            while link not in (root, 0):
                length += np.linalg.norm(model.body_pos[link]) + 2 * _joint_offset(model, link)
                link = model.body_parentid[link]
            if link == root:
                farthest = max(farthest, float(length))
        return farthest

    def _geoms_below(self, body: str):
        todo = [self.body(body)]
        while todo:
            current = todo.pop()
            yield from current.geoms
            todo.extend(current.bodies)

    def compile(self) -> mujoco.MjModel:
        """The compiled model; the rest pose is padded with the rest positions of added joints."""
        model = self._compile()
        for numeric in self.spec.numerics:
            if numeric.name == REST_POSE and len(numeric.data) < model.nq:
                self.set_number(REST_POSE, [*numeric.data, *model.qpos0[len(numeric.data) :]])
                return self._compile()
        return model

    def _compile(self) -> mujoco.MjModel:
        try:
            return self.spec.compile()
        except ValueError as error:
            raise ConfigError(f"the model does not compile: {error}") from error


def _coordinates(body) -> int:
    """Number of entries in q of a body's joints."""
    widths = {int(mujoco.mjtJoint.mjJNT_FREE): 7, int(mujoco.mjtJoint.mjJNT_BALL): 4}
    return sum(widths.get(int(joint.type), 1) for joint in body.joints)


def like_default(spec: mujoco.MjSpec, field: str, value: float):
    """`value` in the shape of a joint's `field` in this MuJoCo: a scalar, or polynomial coefficients."""
    default = getattr(spec.default.joint, field)
    if np.ndim(default) == 0:
        return value
    return [value, *[0.0] * (len(default) - 1)]


def _joint_offset(model: mujoco.MjModel, body: int) -> float:
    """Largest distance of a body's joints from its origin, about which the origin can rotate."""
    first = model.body_jntadr[body]
    places = model.jnt_pos[first : first + model.body_jntnum[body]]
    return float(np.max(np.linalg.norm(places, axis=-1), initial=0.0))


def _named(kind: str, name: str, items):
    for item in items:
        if item.name == name:
            return item
    raise unknown(kind, name, (i.name for i in items if i.name))
