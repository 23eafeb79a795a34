"""The robots' models, built from their numbers: the masses, joints and motors of the benchmark's robots."""

from homing.physics.robots.ant import ant
from homing.physics.robots.half_cheetah import half_cheetah
from homing.physics.robots.humanoid import humanoid
from homing.physics.robots.pusher import pusher
from homing.physics.robots.reacher import reacher

__all__ = ["ant", "half_cheetah", "humanoid", "pusher", "reacher"]
