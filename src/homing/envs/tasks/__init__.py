"""Tasks: goal space, success threshold and sampling of goals, starts and objects."""

from homing.envs.tasks.base import Task, TaskSample
from homing.envs.tasks.carry import PushPucks, Soccer
from homing.envs.tasks.props import Ball, Block, Prop, Puck
from homing.envs.tasks.reach import Reach

__all__ = ["Ball", "Block", "Prop", "Puck", "PushPucks", "Reach", "Soccer", "Task", "TaskSample"]
