"""Goals of arms have a height that a slider sets."""

from types import SimpleNamespace

import numpy as np

from homing.envs.goal_space import GoalSpace
from homing.envs.registry import get_spec
from homing.play.height import click_height, height_controls


class Session:
    """A session without physics: it moves goals at once."""

    def __init__(self, id):
        space = GoalSpace(id, get_spec(id))
        self.sim = SimpleNamespace(space=space, goal=space.template)
        self.submit = lambda command: command()

    def set_goal(self, place, part=0):
        self.sim.goal = self.sim.space.moved(self.sim.goal, place, part)


class Controls:
    def __init__(self):
        self.sliders = {}

    def slider(self, label, limits, step, initial, on_change):
        assert limits[0] <= initial <= limits[1]
        self.sliders[label] = on_change
        return label


def test_a_slider_moves_the_goal_up_and_leaves_x_and_y():
    session, controls = Session("arm_reach"), Controls()
    session.set_goal((0.0, 0.5, 0.3))
    assert height_controls(controls, session) == ["Goal height"]
    controls.sliders["Goal height"](0.45)
    np.testing.assert_allclose(session.sim.goal, [0.0, 0.5, 0.45], atol=1e-6)
    assert click_height(session.sim.space, session.sim.goal, 0.0) == np.float32(0.45)


def test_other_goals_have_no_slider():
    for id in ("reacher", "ant", "humanoid"):
        session, controls = Session(id), Controls()
        assert height_controls(controls, session) == []
        assert click_height(session.sim.space, session.sim.goal, 0.25) == 0.25
