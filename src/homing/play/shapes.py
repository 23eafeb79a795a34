"""Scenes as the browser draws them: links with their geoms, the ground, goals, and maps on the floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import trimesh
from matplotlib import colormaps

from homing.envs.arenas import Floor
from homing.envs.goal_space import GoalSpace
from homing.envs.scene import EnvSpec
from homing.physics.drawing import Camera, Shape
from homing.physics.drawing import shapes as model_shapes
from homing.viz import render
from homing.viz.render import Film

GROUND_RGB, LINE_RGB = (226, 230, 234), (190, 196, 203)
FOV = np.radians(45.0)  # upright, as in films
PANEL, NARROW, SHEET = 345, 600, 0.4  # pixels of the controls; below this width they cover all but this much
MARGIN = 0.15  # of the arena's size, as ground around it


@dataclass(frozen=True)
class Built:
    """What `build` added to a scene."""

    handles: list[Any]  # of all that is to be removed
    links: list[Any]  # frames, in the simulator's order
    grips: list[Any]  # parts of the robot that a person can take hold of
    ground: float  # its height
    line: float  # a good width of lines, in metres


class View(NamedTuple):
    position: tuple[float, float, float]
    target: tuple[float, float, float]
    fov: float


def build(scene: Any, spec: EnvSpec) -> Built:
    """Add links, walls and ground."""
    props = tuple(prop.name for prop in spec.task.props)
    found = model_shapes(render.display_model(spec), props)
    count = 1 + max(shape.link for shape in found)
    links = [scene.add_frame(f"/robot/{k}", show_axes=False) for k in range(count)]
    ground = min((shape.pos[2] for shape in found if shape.kind == "plane"), default=0.0)
    handles, grips = list(links), []
    for k, shape in enumerate(found):
        if shape.kind == "plane":
            continue
        moving = shape.link >= 0
        name = f"/robot/{shape.link}/{k}" if moving else f"/fixed/{k}"
        # What belongs to a link goes with it.
        (grips if moving else handles).append(_add(scene, name, shape))
    floor, size = _ground(scene, spec, ground)
    return Built([*handles, *floor], links, grips, ground, 0.004 * size)


def _ground(scene: Any, spec: EnvSpec, height: float) -> tuple[list[Any], float]:
    x0, x1, y0, y1 = spec.arena.extent()
    size = max(x1 - x0, y1 - y0)
    wide, deep = x1 - x0 + 2 * MARGIN * size, y1 - y0 + 2 * MARGIN * size
    centre = (0.5 * (x0 + x1), 0.5 * (y0 + y1))
    cell = 0.1 if render.is_arm(spec) else 1.0
    thick = 0.002 * size
    slab = scene.add_box(
        "/ground", GROUND_RGB, (wide, deep, thick), position=(*centre, height - thick), cast_shadow=False
    )
    grid = scene.add_grid(
        "/grid",
        wide,
        deep,
        cell_size=cell,
        section_size=cell,
        cell_color=LINE_RGB,
        section_color=LINE_RGB,
        position=(*centre, height + 0.0005 * size),
    )
    return [slab, grid], size


def _add(scene: Any, name: str, shape: Shape) -> Any:
    mesh = as_mesh(shape)
    colour = tuple(int(255 * c) for c in shape.rgba[:3])
    opacity = None if shape.rgba[3] >= 1 else shape.rgba[3]
    return scene.add_mesh_simple(
        name,
        np.asarray(mesh.vertices, np.float32),
        np.asarray(mesh.faces, np.uint32),
        color=colour,
        opacity=opacity,
        flat_shading=shape.kind == "box",
        wxyz=shape.rot,
        position=shape.pos,
    )


def as_mesh(shape: Shape) -> trimesh.Trimesh:
    """A geom in triangles, in its own frame."""
    radius, half = shape.size[0], shape.size[1]
    if shape.kind == "mesh":
        return trimesh.Trimesh(shape.vertices, shape.faces)
    if shape.kind == "box":
        return trimesh.creation.box(extents=2 * np.asarray(shape.size))
    if shape.kind == "capsule":
        # trimesh puts the capsule's lower centre, or its middle, at the origin: its own bounds tell.
        made = trimesh.creation.capsule(height=2 * half, radius=radius, count=[20, 20])
        made.apply_translation(-made.bounds.mean(axis=0))
        return made
    if shape.kind == "cylinder":
        return trimesh.creation.cylinder(radius=radius, height=2 * half, sections=28)
    ball = trimesh.creation.icosphere(subdivisions=3)
    ball.apply_scale(shape.size if shape.kind == "ellipsoid" else [radius] * 3)
    return ball


def add_goals(scene: Any, spec: EnvSpec, goal: np.ndarray, opacity: float) -> list[tuple[int, Any]]:
    """The goal's markers, each with the number of the point that it marks."""
    added = []
    for k, (part, marker) in enumerate(_markers(spec, goal)):
        colour = tuple(int(255 * c) for c in marker.rgba[:3])
        if marker.shape == "sphere":
            made = scene.add_icosphere(
                f"/goal/{k}", marker.size[0], colour, opacity=opacity, cast_shadow=False
            )
        else:
            made = scene.add_cylinder(
                f"/goal/{k}", marker.size[0], 2 * marker.size[1], colour, opacity=0.9, cast_shadow=False
            )
        made.position = marker.pos
        added.append((part, made))
    return added


def place_goals(goals: list[tuple[int, Any]], spec: EnvSpec, goal: np.ndarray) -> None:
    for (_, handle), (_, marker) in zip(goals, _markers(spec, goal), strict=True):
        handle.position = marker.pos


def _markers(spec: EnvSpec, goal: np.ndarray) -> list[tuple[int, Any]]:
    markers = render.goal_markers(spec, goal)
    each = len(markers) // spec.task.parts
    return [(k // each, marker) for k, marker in enumerate(markers)]


def add_floor_image(scene: Any, spec: EnvSpec, height: float) -> Any:
    """A picture that lies on the floor, hidden until there is one."""
    x0, x1, y0, y1 = spec.arena.extent()
    nothing = np.zeros((2, 2, 4), np.uint8)
    centre = (0.5 * (x0 + x1), 0.5 * (y0 + y1), height + 0.002 * (x1 - x0))
    return scene.add_image(
        "/map", nothing, x1 - x0, y1 - y0, format="png", position=centre, visible=False, cast_shadow=False
    )


def heat(values: np.ndarray, space: GoalSpace, opacity: float) -> np.ndarray:
    """Values [rows, columns] as a picture [rows, columns, 4], the smallest y first, as floor images lie.

    Colours span what stands free; walls stand on the rest.
    """
    free = ~space.in_wall(space.grid(max(values.shape)))
    low, high = values[free].min(), values[free].max()
    level = np.clip((values - low) / max(high - low, 1e-9), 0, 1)
    picture = (255 * colormaps["viridis"](level)).astype(np.uint8)
    picture[..., 3] = round(255 * opacity)
    return picture


def _camera(spec: EnvSpec) -> Camera:
    """As films have it; open ground is seen whole, for a person may put the goal anywhere."""
    if isinstance(spec.arena, Floor) and not render.is_arm(spec):
        return Camera((0.0, 0.0, 0.0), 2.0 * spec.arena.half, azimuth=90.0, elevation=-45.0)
    goal, nothing = np.zeros((1, len(spec.task.goal))), np.zeros(1)
    return render.camera_for(spec, Film(np.zeros((1, 1, 3)), np.zeros((1, 1, 4)), goal, nothing, nothing))


def view(sim: Any, width: int, height: int) -> View:
    """From where the arena fills the part of a window that is free of controls."""
    seen = _camera(sim.env.scene.spec)
    turn, rise = np.radians(seen.azimuth), np.radians(seen.elevation)
    ahead = np.array([np.cos(rise) * np.cos(turn), np.cos(rise) * np.sin(turn), np.sin(rise)])
    right = np.array([np.sin(turn), -np.cos(turn), 0.0])
    up = np.cross(right, ahead)
    free_x, free_y = free_part(width, height)
    # The camera is made for a picture of 4:3, which is to fill that part.
    distance = seen.distance * height / min(free_x / (4 / 3), free_y)
    metres = 2 * np.tan(0.5 * FOV) * distance / height  # of a pixel, at the target
    shift = 0.5 * metres * ((width - free_x) * right - (height - free_y) * up)
    target = np.asarray(seen.target) + shift
    position = target - distance * ahead
    return View(tuple(map(float, position)), tuple(map(float, target)), FOV)  # type: ignore[arg-type]


def free_part(width: int, height: int) -> tuple[float, float]:
    """Width and height, from the upper left corner, that controls leave free: they stand at the right,
    and in a narrow window at the bottom."""
    if width < NARROW:
        return float(width), SHEET * height
    return float(max(width - PANEL, 0.4 * width)), float(height)
