"""Scene nodes of an environment: links with their geoms, ground, goal markers, and the critic map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import viser

from homing.envs.arenas import Floor
from homing.envs.goal_space import GoalSpace
from homing.envs.scene import EnvSpec
from homing.physics.drawing import Camera, Marker, Shape
from homing.physics.drawing import shapes as model_shapes
from homing.play.meshes import as_mesh
from homing.viz import render
from homing.viz.render import Film

GROUND_RGB, LINE_RGB = (226, 230, 234), (190, 196, 203)
FOV = float(np.radians(45.0))  # vertical, as in videos
PANEL = 345  # width of the controls, in pixels of the page
NARROW, NARROW_FREE = 600, 0.4  # below this width, controls leave this fraction of the height free
UPRIGHT = 0.65  # width over height; phones are below it, upright tablets above
USUAL_HEIGHT = 800  # pixels of a small laptop's page from top to bottom
PATH = 100  # points of the path
MARGIN = 0.15  # ground around the arena, as a fraction of its size


@dataclass(frozen=True)
class Built:
    """The nodes that `build` added to a scene."""

    handles: list[viser.SceneNodeHandle]  # to be removed with the scene
    links: list[viser.FrameHandle]  # in the simulator's order
    robot: list[viser.MeshHandle]  # geoms of the robot, which can be dragged
    ground: float  # height of the ground
    line: float  # width of lines, in metres


Goal = tuple[int, viser.IcosphereHandle | viser.CylinderHandle]
"""A marker and the index of the goal's point that it shows."""


class View(NamedTuple):
    """A camera pose."""

    position: tuple[float, float, float]
    target: tuple[float, float, float]
    fov: float


def build(scene: viser.SceneApi, spec: EnvSpec) -> Built:
    """Add links, walls and ground."""
    model = render.display_model(spec)
    found = model_shapes(model, render.own_colours(spec, model))
    count = 1 + max(shape.link for shape in found)
    links = [scene.add_frame(f"/robot/{k}", show_axes=False) for k in range(count)]
    ground = min((shape.pos[2] for shape in found if shape.kind == "plane"), default=0.0)
    handles: list[viser.SceneNodeHandle] = list(links)
    robot: list[viser.MeshHandle] = []
    for k, shape in enumerate(found):
        if shape.kind == "plane":
            continue
        moving = shape.link >= 0
        name = f"/robot/{shape.link}/{k}" if moving else f"/fixed/{k}"
        mesh = _add(scene, name, shape)
        # A geom of a link is removed with its link.
        robot.append(mesh) if moving else handles.append(mesh)
    floor, size = _ground(scene, spec, ground)
    return Built([*handles, *floor], links, robot, ground, 0.004 * size)


def _ground(scene: viser.SceneApi, spec: EnvSpec, height: float) -> tuple[list[viser.SceneNodeHandle], float]:
    """A slab with a grid, and the arena's size in metres."""
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


def _add(scene: viser.SceneApi, name: str, shape: Shape) -> viser.MeshHandle:
    vertices, faces = as_mesh(shape)
    opacity = None if shape.rgba[3] >= 1 else shape.rgba[3]
    return scene.add_mesh_simple(
        name,
        vertices,
        faces,
        color=_rgb(shape.rgba),
        opacity=opacity,
        flat_shading=shape.kind == "box",
        wxyz=shape.rot,
        position=shape.pos,
    )


def _rgb(rgba: Sequence[float]) -> tuple[int, int, int]:
    red, green, blue = (int(255 * c) for c in rgba[:3])
    return red, green, blue


def add_goals(scene: viser.SceneApi, spec: EnvSpec, goal: np.ndarray, opacity: float) -> list[Goal]:
    """Add the markers of a goal."""
    added: list[Goal] = []
    for k, (part, marker) in enumerate(_markers(spec, goal)):
        colour = _rgb(marker.rgba)
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


def place_goals(goals: list[Goal], spec: EnvSpec, goal: np.ndarray) -> None:
    """Move the markers to a goal."""
    for (_, handle), (_, marker) in zip(goals, _markers(spec, goal), strict=True):
        handle.position = marker.pos


def _markers(spec: EnvSpec, goal: np.ndarray) -> list[tuple[int, Marker]]:
    markers = render.goal_markers(spec, goal)
    each = len(markers) // spec.task.parts
    return [(k // each, marker) for k, marker in enumerate(markers)]


def faded(rgb: tuple[int, int, int], age: np.ndarray) -> np.ndarray:
    """Colours [N, 3] of ages [N] from 0, the colour itself, to 1, that of the ground."""
    weight = np.clip(age, 0.0, 1.0)[:, None]
    return (1 - weight) * np.asarray(rgb) + weight * np.asarray(GROUND_RGB)


def path(points: np.ndarray, length: int) -> np.ndarray:
    """The way along points [N, 2], of at most `length` steps, by PATH points [PATH, 2], the last of which is its end.

    Points of a shorter way are at its beginning many times: the number stays the same, and with it the colours.
    """
    back = np.round(np.linspace(length - 1, 0, PATH)).astype(int)
    return points[np.maximum(len(points) - 1 - back, 0)]


def segments(values: np.ndarray, dtype: type) -> np.ndarray:
    """Values [N, 3] of points along a path as those of its segments [N − 1, 2, 3]."""
    return np.stack([values[:-1], values[1:]], axis=1).astype(dtype)


def add_floor_image(scene: viser.SceneApi, spec: EnvSpec, height: float) -> viser.ImageHandle:
    """An image on the floor, hidden at first."""
    x0, x1, y0, y1 = spec.arena.extent()
    blank = np.zeros((2, 2, 4), np.uint8)
    centre = (0.5 * (x0 + x1), 0.5 * (y0 + y1), height + 0.002 * (x1 - x0))
    return scene.add_image(
        "/map", blank, x1 - x0, y1 - y0, format="png", position=centre, visible=False, cast_shadow=False
    )


def heat(values: np.ndarray, space: GoalSpace, opacity: float) -> np.ndarray:
    """Values [rows, columns] as an RGBA image [rows, columns, 4] whose first row has the smallest y.

    The colour scale spans the values outside of walls.
    """
    from matplotlib import colormaps  # takes a while to load, and the map is off at first

    free = ~space.in_wall(space.grid(max(values.shape)))
    low, high = values[free].min(), values[free].max()
    level = np.clip((values - low) / max(high - low, 1e-9), 0, 1)
    image = (255 * colormaps["viridis"](level)).astype(np.uint8)
    image[..., 3] = round(255 * opacity)
    return image


def _camera(spec: EnvSpec) -> Camera:
    """The camera of videos; an open floor is shown whole, since a goal can be set anywhere on it."""
    if isinstance(spec.arena, Floor) and not render.is_arm(spec):
        return Camera((0.0, 0.0, 0.0), 2.0 * spec.arena.half, azimuth=90.0, elevation=-45.0)
    goal, unused = np.zeros((1, len(spec.task.goal))), np.zeros(1)
    return render.camera_for(spec, Film(np.zeros((1, 1, 3)), np.zeros((1, 1, 4)), goal, unused, unused))


def view(spec: EnvSpec, width: int, height: int) -> View:
    """The pose from which the arena fills the part of a window that is free of controls."""
    camera = _camera(spec)
    azimuth, elevation = np.radians(camera.azimuth), np.radians(camera.elevation)
    forward = np.array(
        [np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)]
    )
    right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
    up = np.cross(right, forward)
    free_x, free_y = free_part(width, height)
    # The camera is set for a 4:3 image, which should fill that part.
    distance = camera.distance * height / min(free_x / (4 / 3), free_y)
    metres = 2 * np.tan(0.5 * FOV) * distance / height  # per pixel, at the target
    shift = 0.5 * metres * ((width - free_x) * right - (height - free_y) * up)
    target = np.asarray(camera.target) + shift
    position = target - distance * forward
    return View(_triple(position), _triple(target), FOV)


def _triple(vector: np.ndarray) -> tuple[float, float, float]:
    x, y, z = vector.tolist()
    return x, y, z


def free_part(width: int, height: int) -> tuple[float, float]:
    """Width and height that controls leave free; they are at the right, in a narrow window at the bottom.

    Browsers tell pixels of the screen. A dense one has two or three of them for each pixel of the page, in which
    controls are measured, so a window with many is taken for one on a dense screen.
    """
    if width < max(NARROW, UPRIGHT * height):
        return float(width), NARROW_FREE * height
    panel = PANEL * max(1.0, height / USUAL_HEIGHT)
    return float(max(width - panel, 0.4 * width)), float(height)
