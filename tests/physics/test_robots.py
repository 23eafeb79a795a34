"""Robots that are built here are those of brax's files."""

import dataclasses

import mujoco
import numpy as np
import pytest
from brax_files import brax_file

from homing.physics import mechanism, robots, spring_settings

ROBOTS = ("ant", "half_cheetah", "humanoid", "pusher", "reacher")
PHYSICAL = ("body_", "jnt_", "dof_", "geom_", "actuator_", "qpos")
VISUAL = {"geom_matid", "geom_user"}


@pytest.fixture(scope="module", params=ROBOTS)
def pair(request) -> tuple[mujoco.MjModel, mujoco.MjModel]:
    """Our model and that of the file."""
    return getattr(robots, request.param)().compile(), brax_file(request.param).compile()


def test_every_number_is_that_of_the_file(pair):
    own, file = pair
    names = [name for name in dir(own) if name.startswith(PHYSICAL) and name not in VISUAL]
    assert {"body_mass", "body_inertia", "jnt_range", "actuator_gear", "geom_pos"} < set(names)
    for name in names:
        np.testing.assert_array_equal(getattr(own, name), getattr(file, name), err_msg=name)


def test_options_are_those_of_the_file(pair):
    own, file = pair
    for name in (name for name in dir(own.opt) if not name.startswith("_")):
        np.testing.assert_array_equal(getattr(own.opt, name), getattr(file.opt, name), err_msg=name)


def test_names_are_those_of_the_file(pair):
    own, file = pair
    for kind, count in (("body", own.nbody), ("joint", own.njnt), ("geom", own.ngeom)):
        mine, theirs = ([getattr(model, kind)(i).name for i in range(count)] for model in (own, file))
        assert mine == theirs


def test_rest_pose_and_springs_are_those_of_the_file(pair):
    own, file = pair
    np.testing.assert_array_equal(mechanism.read(own).init_q, mechanism.read(file).init_q)
    mine, theirs = map(spring_settings.read, pair)
    for field in dataclasses.fields(mine):
        np.testing.assert_array_equal(getattr(mine, field.name), getattr(theirs, field.name), field.name)


def test_what_is_added_takes_the_defaults_of_the_file():
    """Friction, damping and impedance of objects and walls are those that the file's defaults give them."""
    for name in ROBOTS:
        models = [getattr(robots, name)(), brax_file(name)]
        for model in models:
            model.add_geom(None, "wall", "box", (1.0, 1.0, 1.0), contype=1)
            model.add_body("thing", (0.0, 0.0, 0.0))
            model.add_slide("thing", "thing_x", "x")
            model.add_geom("thing", "thing_geom", "sphere", (0.1,))
        own, file = (model.compile() for model in models)
        for field in (
            "geom_friction",
            "geom_solimp",
            "geom_solref",
            "geom_margin",
            "body_mass",
            "jnt_solimp",
        ):
            np.testing.assert_array_equal(
                getattr(own, field), getattr(file, field), err_msg=f"{name} {field}"
            )
