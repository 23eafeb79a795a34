"""Tasks: what counts as a goal, and how episodes are drawn."""

from homing.envs.tasks.base import Draw, Task
from homing.envs.tasks.carry import PushPucks, Soccer
from homing.envs.tasks.props import Ball, Block, Prop, Puck
from homing.envs.tasks.reach import Reach

__all__ = ["Ball", "Block", "Draw", "Prop", "Puck", "PushPucks", "Reach", "Soccer", "Task"]
