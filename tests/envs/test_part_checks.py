"""What users hand in as body, task, arena and pipelines is refused before anything is built, with the fix."""

import dataclasses
from types import MappingProxyType

import pytest

import homing
from homing.envs.arenas import Floor, Maze
from homing.envs.bodies import Ant, HalfCheetah, Humanoid, Point, Reacher
from homing.envs.goals import Ring
from homing.envs.part_checks import check_spec
from homing.envs.registry import ENVIRONMENTS
from homing.envs.scene import EnvSpec
from homing.envs.tasks import Reach
from homing.errors import ConfigError, UnknownNameError

REACH = Reach(("x", "y"), Ring(2.0))


def spec_of(body=None, task=REACH, arena=None, physics=()):
    return EnvSpec(body or Point(), task, arena or Floor(), physics)


@pytest.mark.parametrize("id", sorted(ENVIRONMENTS))
def test_every_environment_passes(id):
    check_spec(ENVIRONMENTS[id])


def with_task(**changes):
    return spec_of(task=dataclasses.replace(REACH, **changes))


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (spec_of(body=Point), r"the body is the class Point; give an instance of it, Point\(\.\.\.\)"),
        (spec_of(task=Reach), "the task is the class Reach"),
        (spec_of(body=REACH), "is not a body: it has no"),
        (spec_of(task=Point()), "is not a task: it has no"),
        (spec_of(arena="u_maze"), "is not an arena: it has no"),
        (spec_of(physics=("mjxx",)), "'mjx'"),
        (spec_of(physics=(3,)), "unknown physics pipeline of point"),
        (with_task(goal="torso"), r"a tuple of state entries, \('torso',\), not the text 'torso'"),
        (with_task(goal=7), "the task's goal is a tuple of names of state entries, not 7"),
        (with_task(margins=MappingProxyType({"success_easy": -1.0})), "margin 'success_easy' must be"),
        (with_task(margins=MappingProxyType({3: 1.0})), "margins are thresholds by name"),
    ],
)
def test_parts_of_the_wrong_kind_are_refused(spec, part):
    with pytest.raises((ConfigError, UnknownNameError), match=part):
        check_spec(spec)


@pytest.mark.parametrize("body", [Ant, Humanoid, HalfCheetah, Point, Reacher])
@pytest.mark.parametrize(
    ("rule", "part"),
    [
        ("torso_z", r"healthy is a state entry and the ends of its range"),
        (("torso_z", 0.2), "or None"),
        (("torso_z", "low", 1.0), "the range of torso_z in healthy"),
        (("torso_z", float("nan"), 1.0), "healthy must be made of numbers, not nan"),
        (("torso_z", 1.0, 0.2), "must begin below its end, not 1 to 0.2"),
    ],
)
def test_the_range_of_health_is_checked(body, rule, part):
    with pytest.raises(ConfigError, match=part):
        body(healthy=rule)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"touched": "torso"}, r"such as \('torso',\), not 'torso'"),
        ({"touching": ("hip",)}, "'hips'"),
        ({"solimp": (0.9, 0.95)}, "solimp is three numbers"),
        ({"solimp": (0.9, -1.0, 0.001)}, "each number of solimp"),
        ({"density": 0.0}, "density"),
        ({"contacts": 0}, "contacts"),
    ],
)
def test_settings_of_the_ant_are_checked(change, part):
    with pytest.raises((ConfigError, UnknownNameError), match=part):
        Ant(**change)


def test_what_is_refused_is_not_registered():
    with pytest.raises(ConfigError, match="is not a task"):
        homing.register("odd", Point(), Floor())
    with pytest.raises(ConfigError, match=r"a tuple of them, such as \('mjx',\), not 3"):
        homing.register("odd", Point(), REACH, physics=3)
    assert "odd" not in ENVIRONMENTS


def test_one_pipeline_may_be_given_as_it_is(monkeypatch):
    monkeypatch.setitem(ENVIRONMENTS, "odd", None)  # so that it is removed again
    assert homing.register("odd", Point(), REACH, physics="mjx", overwrite=True).physics == ("mjx",)


def test_a_class_is_no_part_of_an_option():
    with pytest.raises(ConfigError, match=r"a part such as Ring\(\.\.\.\), not "):
        homing.make("ant", options={"task.goals": Ring})


def test_a_maze_has_cells_of_a_positive_size():
    with pytest.raises(ConfigError, match="cell must be above 0"):
        Maze("u_maze", cell=0.0)
