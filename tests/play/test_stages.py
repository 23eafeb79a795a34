"""Goals that are farther away than those of training are approached in stages."""

from types import SimpleNamespace

import numpy as np
import pytest

from homing.envs import make
from homing.envs.goal_space import STAGE, goal_space
from homing.play.simulation import Simulation


def simulation(id, here, goal):
    """A simulation of which nothing is compiled, of a robot that has achieved `here`."""
    sim = object.__new__(Simulation)
    sim.env = make(id)
    sim.space = goal_space(sim.env)
    sim.goal = np.array(goal, np.float32)
    sim.snapshot = SimpleNamespace(achieved=np.array(here, np.float32))
    return sim


@pytest.mark.parametrize(
    ("id", "here", "goal", "aim"),
    [
        ("ant_anywhere", (-4.0, 0.0), (5.5, 0.0), (5.5, 0.0)),
        ("ant_anywhere", (-4.0, 0.0), (16.0, 0.0), (-4.0 + STAGE * 10.0, 0.0)),
        ("ant_anywhere", (3.0, -4.0), (15.0, 12.0), (3.0 + 0.6 * STAGE * 10.0, -4.0 + 0.8 * STAGE * 10.0)),
        ("humanoid_anywhere", (0.0, 0.0, 1.1), (0.0, 9.0, 1.25), (0.0, STAGE * 5.0, 1.25)),
        ("ant_big_maze_anywhere", (4.0, 4.0), (20.0, 20.0), (20.0, 20.0)),
        ("ant", (0.0, 0.0), (20.0, 0.0), (20.0, 0.0)),
    ],
)
def test_the_policy_is_told_of_a_place_at_a_distance_of_training(id, here, goal, aim):
    np.testing.assert_allclose(simulation(id, here, goal)._aim(), aim, rtol=1e-5)


def test_the_distance_that_is_shown_is_that_to_the_goal():
    sim = simulation("ant_anywhere", (0.0, 0.0), (12.0, 5.0))
    near = [np.zeros((1, 3)), np.zeros((1, 4)), np.zeros(2), np.zeros(3), 0.1, True, False]
    seen = sim._seen(tuple(map(np.asarray, near)))
    assert seen.distance == pytest.approx(13.0) and not seen.reached
