"""An environment that compiles in a second: a point on a floor that falls beyond x = ±2.5 m."""

import pytest

import homing
from homing.envs.arenas import Floor
from homing.envs.bodies import Point
from homing.envs.goals import Box
from homing.envs.registry import ENVIRONMENTS
from homing.envs.tasks import Reach

TINY = "tiny_point"


@pytest.fixture(scope="module")
def tiny():
    """The id of the environment, registered for the tests of one file."""
    task = Reach(("x", "y"), Box((-2.0, -2.0), (2.0, 2.0)), within=0.3)
    homing.register(TINY, Point(healthy=("x", -2.5, 2.5)), task, Floor(half=3.0), overwrite=True)
    yield TINY
    ENVIRONMENTS.pop(TINY)
