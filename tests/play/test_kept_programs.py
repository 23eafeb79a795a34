"""A start of `homing play` loads little; a second one traces nothing and goes the same way."""

import subprocess
import sys

import numpy as np
import pytest

from homing.compile import export_cache
from homing.envs import env_ids
from homing.envs.registry import get_spec
from homing.play.simulation import Simulation
from homing.play.sources import Choice, make_actor


def test_what_the_page_does_not_need_at_first_is_not_loaded():
    """Each of these takes tenths of a second."""
    code = "import homing.play.server, sys; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"trimesh", "matplotlib", "scipy", "imageio"} & set(loaded.split())


def way(sim, steps=10):
    """All that is shown along some steps, a push and a new goal."""
    found = []
    for k in range(steps):
        if k == 5:
            sim.push((1.0, 0.0), 2.0)
            sim.sample_goal()
        found.append(np.concatenate([sim.step().state, sim.goal]))
    return np.array(found)


def test_a_second_start_traces_nothing_and_goes_the_same_way(export_folder, monkeypatch):
    actor = make_actor(Choice("point_u_maze"))
    first = way(Simulation(actor))
    assert {path.name.split("-", 1)[1] for path in export_folder.iterdir()} == {
        "play-reset",
        "play-step",
        "play-push",
        "play-goal",
    }

    def traced(*_):
        raise AssertionError("traced again")

    for name in ("_reset_fn", "_step_fn", "_push_fn", "_next_goal_fn"):
        monkeypatch.setattr(Simulation, name, traced)
    np.testing.assert_array_equal(way(Simulation(actor)), first)


def test_what_differs_has_programs_of_its_own(export_folder):
    identities = [
        Simulation._identity(_bare(make_actor(choice)))
        for choice in (
            Choice("point_u_maze"),
            Choice("point_u_maze", env="point_u_maze"),
            Choice("reacher"),
            Choice("point_big_maze"),
        )
    ]
    assert len({export_cache._hash(identity) for identity in identities}) == len(identities)


@pytest.mark.parametrize("id", env_ids())
def test_an_environment_is_described_the_same_in_every_process(id):
    """An address in it would be another each time, and no program would ever be found again."""
    assert " at 0x" not in repr(get_spec(id))


def _bare(actor):
    """A simulation of an actor of which nothing is compiled."""
    sim = object.__new__(Simulation)
    sim.actor, sim.env, sim.learner = actor, actor.env, actor.learner
    return sim
