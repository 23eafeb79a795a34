"""Robots: model, initial pose, observation and control of each body."""

from homing.envs.bodies.ant import Ant
from homing.envs.bodies.base import Body, Commanded, Dense
from homing.envs.bodies.half_cheetah import HalfCheetah
from homing.envs.bodies.humanoid import Humanoid
from homing.envs.bodies.panda import Panda
from homing.envs.bodies.panda_hand import PandaHand
from homing.envs.bodies.point import Point
from homing.envs.bodies.pusher import PusherArm
from homing.envs.bodies.reacher import Reacher

__all__ = [
    "Ant",
    "Body",
    "Commanded",
    "Dense",
    "HalfCheetah",
    "Humanoid",
    "Panda",
    "PandaHand",
    "Point",
    "PusherArm",
    "Reacher",
]
