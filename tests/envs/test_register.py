"""Users' own environments, and what is refused."""

import pytest

import homing
from homing import plugins
from homing.envs.arenas import Maze
from homing.envs.bodies import Ant, Point
from homing.envs.goals import Cells, Ring
from homing.envs.registry import ENVIRONMENTS
from homing.envs.tasks import Reach
from homing.errors import ConfigError, UnknownNameError


@pytest.fixture(autouse=True)
def _restore_tables():
    tables = (ENVIRONMENTS, plugins._owners)
    before = [dict(table) for table in tables]
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)


def test_a_registered_environment_is_like_any_other():
    homing.register("my_ring", Point(), Reach(("x", "y"), Ring(2.0)))
    assert "my_ring" in homing.env_ids()
    assert homing.make("my_ring", num_envs=2).spec.goal_names == ("x", "y")
    with pytest.raises(UnknownNameError, match="my_ring"):
        homing.make("my_rin")


def test_an_id_is_not_taken_twice_by_mistake():
    with pytest.raises(ConfigError, match="overwrite"):
        homing.register("ant", Ant(), Reach(("torso_x", "torso_y"), Ring(2.0)))
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="another name of environment 'ant_soccer'; choose another id"):
            homing.register("ant_ball", Ant(), Reach(("torso_x", "torso_y"), Ring(2.0)), overwrite=overwrite)
    homing.register("ant", Ant(), Reach(("torso_x", "torso_y"), Ring(2.0)), overwrite=True)
    assert homing.envs.get_spec("ant").task.goals.radius == 2.0


@pytest.mark.parametrize("id", ["", "My-Env", "has space", "ÄNT"])
def test_strange_ids_are_refused(id):
    with pytest.raises(ConfigError, match="lower-case letters"):
        homing.register(id, Point(), Reach(("x", "y"), Ring(2.0)))


def test_a_task_that_names_no_state_entry_is_answered_when_made():
    homing.register("odd", Point(), Reach(("x", "z"), Ring(2.0)))
    with pytest.raises(UnknownNameError, match="state entry 'z'"):
        homing.make("odd")


def test_goals_in_cells_need_a_maze_that_has_them():
    homing.register("bare", Point(), Reach(("x", "y"), Cells("G"), starts=Cells("R")), Maze("###\n#R#\n###"))
    with pytest.raises(ConfigError, match="no cell marked G"):
        homing.make("bare")
