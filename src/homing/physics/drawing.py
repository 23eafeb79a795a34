"""Rendering: link frames in, images out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np

from homing.errors import HomingError
from homing.physics.camera import Camera
from homing.physics.models import GEOM_TYPES, Model

ROBOT_RGBA = (0.86, 0.47, 0.24, 1.0)
SKY = ((0.93, 0.95, 0.98), (0.62, 0.70, 0.80))
# Geoms of higher groups are for collisions only and not rendered.
MAX_VISIBLE_GROUP = 2
SHAPES = {
    "plane": mujoco.mjtGeom.mjGEOM_PLANE,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "ellipsoid": mujoco.mjtGeom.mjGEOM_ELLIPSOID,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "mesh": mujoco.mjtGeom.mjGEOM_MESH,
}
GROUND = ((0.80, 0.82, 0.84), (0.70, 0.73, 0.76))


@dataclass(frozen=True)
class Marker:
    """A visual shape that is not part of the model."""

    shape: str
    pos: tuple[float, float, float]
    size: tuple[float, float, float]
    rgba: tuple[float, float, float, float]


@dataclass(frozen=True)
class Shape:
    """A geom for external renderers: link index (−1: fixed to the world), pose in the link, colour.

    size: as in MuJoCo, radius and half-lengths; a mesh has vertices [V, 3] and faces [F, 3] instead
    """

    link: int
    kind: str
    size: tuple[float, float, float]
    pos: tuple[float, float, float]
    rot: tuple[float, float, float, float]
    rgba: tuple[float, float, float, float]
    vertices: np.ndarray | None = None
    faces: np.ndarray | None = None


def shapes(model: Model, own_colours: Sequence[str]) -> list[Shape]:
    """All visible geoms; the ground is a plane."""
    _apply_style(model, set(own_colours), tile=1.0)
    compiled = model.compile()
    kinds = {int(kind): name for name, kind in SHAPES.items()}
    found = []
    for geom in range(compiled.ngeom):
        kind = kinds.get(int(compiled.geom_type[geom]))
        rgba = tuple(map(float, compiled.geom_rgba[geom]))
        if kind is None or compiled.geom_group[geom] > MAX_VISIBLE_GROUP or rgba[3] == 0:
            continue
        vertices, faces = _mesh(compiled, int(compiled.geom_dataid[geom])) if kind == "mesh" else (None, None)
        size, pos, rot = (
            tuple(map(float, x[geom])) for x in (compiled.geom_size, compiled.geom_pos, compiled.geom_quat)
        )
        found.append(
            Shape(int(compiled.geom_bodyid[geom]) - 1, kind, size, pos, rot, rgba, vertices, faces)  # type: ignore[arg-type]
        )
    return found


def _mesh(model: mujoco.MjModel, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    at, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
    face, faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
    return model.mesh_vert[at : at + count].copy(), model.mesh_face[face : face + faces].copy()


class Drawer:
    """Renders one environment of a model; a context manager."""

    def __init__(self, model: Model, own_colours: Sequence[str], width: int, height: int, tile: float):
        """own_colours: bodies that keep their geoms' colours; tile: size of a floor tile in metres."""
        _apply_style(model, set(own_colours), tile)
        model.spec.visual.global_.offwidth = width
        model.spec.visual.global_.offheight = height
        self.model = model.compile()
        self.data = mujoco.MjData(self.model)
        mujoco.mj_forward(self.model, self.data)
        try:
            self.renderer = mujoco.Renderer(self.model, height=height, width=width)
        except Exception as error:  # each rendering backend raises its own errors
            raise HomingError(
                f"rendering is not available ({error}); on a machine without a display install EGL "
                "(Debian: libegl1) or set MUJOCO_GL=osmesa and install libosmesa6"
            ) from error
        for flag in ("mjRND_SHADOW", "mjRND_REFLECTION", "mjRND_HAZE"):
            self.renderer.scene.flags[getattr(mujoco.mjtRndFlag, flag)] = 0

    def draw(
        self, pos: np.ndarray, rot: np.ndarray, camera: Camera, markers: Sequence[Marker] = ()
    ) -> np.ndarray:
        """Image [height, width, 3] uint8 of links at pos [L, 3] with rotations rot [L, 4]."""
        self._set_links(np.asarray(pos, float), np.asarray(rot, float))
        view = mujoco.MjvCamera()
        view.type = mujoco.mjtCamera.mjCAMERA_FREE
        view.lookat[:] = camera.target
        view.distance, view.azimuth, view.elevation = camera.distance, camera.azimuth, camera.elevation
        self.renderer.update_scene(self.data, view)
        for marker in markers:
            self._add(marker)
        return self.renderer.render().copy()

    def _set_links(self, pos: np.ndarray, rot: np.ndarray) -> None:
        """Place geoms by the given link frames, which need not agree with MuJoCo's forward kinematics."""
        for geom in range(self.model.ngeom):
            body = self.model.geom_bodyid[geom]
            if body == 0:
                continue
            geom_rot, offset = np.zeros(4), np.zeros(3)
            mujoco.mju_mulQuat(geom_rot, rot[body - 1], self.model.geom_quat[geom])
            mujoco.mju_rotVecQuat(offset, self.model.geom_pos[geom], rot[body - 1])
            self.data.geom_xpos[geom] = pos[body - 1] + offset
            mujoco.mju_quat2Mat(self.data.geom_xmat[geom], geom_rot)

    def _add(self, marker: Marker) -> None:
        scene = self.renderer.scene
        if scene.ngeom >= scene.maxgeom:
            return
        mujoco.mjv_initGeom(
            scene.geoms[scene.ngeom],
            int({**GEOM_TYPES, "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER}[marker.shape]),
            np.asarray(marker.size, float),
            np.asarray(marker.pos, float),
            np.eye(3).ravel(),
            np.asarray(marker.rgba, np.float32),
        )
        scene.ngeom += 1

    def close(self) -> None:
        self.renderer.close()

    def __enter__(self) -> Drawer:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _apply_style(model: Model, own_colours: set[str], tile: float) -> None:
    """Give all models the same sky, ground, light and robot colour."""
    spec = model.spec
    _set_textures(spec, tile)
    _set_light(spec)
    for body in spec.bodies:
        for geom in body.geoms:
            if int(geom.type) == int(GEOM_TYPES["plane"]):
                geom.material, geom.rgba = "homing_ground", [1, 1, 1, 1]
                geom.size = [40.0, 40.0, 1.0]
            else:
                geom.material = ""
                if body.name not in own_colours and body.name != "world":
                    geom.rgba = list(ROBOT_RGBA)


def _set_textures(spec: mujoco.MjSpec, tile: float) -> None:
    """Replace the sky, and add the material of the ground."""
    for texture in list(spec.textures):
        if texture.type == mujoco.mjtTexture.mjTEXTURE_SKYBOX:
            spec.delete(texture)
    gradient, checker = mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, mujoco.mjtBuiltin.mjBUILTIN_CHECKER
    spec.add_texture(
        name="homing_sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=gradient,
        rgb1=SKY[0],
        rgb2=SKY[1],
        width=256,
        height=256,
    )
    spec.add_texture(
        name="homing_ground",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        builtin=checker,
        rgb1=GROUND[0],
        rgb2=GROUND[1],
        width=256,
        height=256,
    )
    ground = spec.add_material(name="homing_ground", texrepeat=[0.5 / tile, 0.5 / tile], texuniform=True)
    ground.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "homing_ground"


def _set_light(spec: mujoco.MjSpec) -> None:
    """Replace all lights by one directional light."""
    for light in list(spec.lights):
        spec.delete(light)
    spec.worldbody.add_light(
        pos=[0, 0, 30],
        dir=[0.3, 0.4, -1],
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
        castshadow=False,
        diffuse=[0.7] * 3,
        ambient=[0.25] * 3,
        specular=[0.1] * 3,
    )
