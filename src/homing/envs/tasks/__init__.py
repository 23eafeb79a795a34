"""Tasks: goal space, success threshold and sampling of goals, starts and objects."""

from homing.envs.tasks.base import Task, TaskSample
from homing.envs.tasks.carry import PushPucks, Soccer
from homing.envs.tasks.cubes import Grasp, MoveCube
from homing.envs.tasks.props import Ball, Block, Cube, Prop, Puck
from homing.envs.tasks.reach import Reach

__all__ = [
    "Ball",
    "Block",
    "Cube",
    "Grasp",
    "MoveCube",
    "Prop",
    "Puck",
    "PushPucks",
    "Reach",
    "Soccer",
    "Task",
    "TaskSample",
]
