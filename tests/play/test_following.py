"""A run that trains while it is played: the page takes up its newer policies."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.errors import HomingError
from homing.play.status import status
from homing.policies.following import Newer, follower
from homing.policies.store import EnvChoice, Policies, Spaces
from homing.runs.policy_files import save_policy

DT = 0.05


class FakeFollower:
    """A run that has written a policy since."""

    def __init__(self, newer, step):
        self.newer, self.step, self.has_newer = newer, step, True

    def read(self):
        self.has_newer = False
        if isinstance(self.newer, Exception):
            raise self.newer
        return self.newer


def test_a_newer_policy_of_the_run_acts_from_the_next_goal_on(session, monkeypatch):
    before, actor = session.sim.learner, session.sim.actor
    newer = Newer(jax.tree.map(lambda x: 2 * x, before), actor.policies)
    monkeypatch.setattr(session, "_follower", FakeFollower(newer, 123_456))
    monkeypatch.setattr(session.sim, "learner", before)
    monkeypatch.setattr(session.sim, "actor", actor)
    session.set_goal((4.0, 12.0))
    session._follower.has_newer, session.sim.learner = True, before
    session.advance(2 * DT)
    assert session.sim.learner is before, "not on the way"
    said = status(session, False)
    assert "step 123,456" in said
    assert "a newer one acts from the next goal on" in said
    session.set_goal((4.0, 8.0))
    assert session.sim.learner is newer.learner
    assert session.advance(2 * DT) == 2, "by the same program"
    assert "newer" not in status(session, False)


@pytest.mark.parametrize("broken", [HomingError("half a file"), None], ids=["unreadable", "diverged"])
def test_a_newer_policy_that_cannot_act_is_told(session, monkeypatch, broken):
    before = session.sim.learner
    monkeypatch.setattr(session, "_follower", FakeFollower(broken, 5))
    session.reset()
    assert session.sim.learner is before
    assert "newer policy" in session.message


def test_a_follower_reads_what_a_run_has_written_since(tmp_path, monkeypatch):
    agent = SimpleNamespace(init=lambda key: {"w": jnp.zeros(3)})
    run = SimpleNamespace(path=tmp_path, config=lambda: None)
    monkeypatch.setattr("homing.policies.following.RunFolder.existing", lambda path: run)
    monkeypatch.setattr("homing.policies.following.run_card", lambda *args: {"step": 640 * args[-1]})
    policies = Policies(
        "here", "crl", agent, None, None, (3, 4), Spaces("walk", 2, 2, 2), EnvChoice("walk"), 1, {"step": 640}
    )
    path = tmp_path / "policies" / "last.safetensors"
    save_policy(path, {"w": np.zeros((2, 3), np.float32)}, 1)
    follow = follower(str(tmp_path), "last", policies, 4)
    assert follow.step == 640
    assert not follow.has_newer
    assert follow.read() is None
    save_policy(path, {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, 7)
    assert follow.has_newer
    newer = follow.read()
    np.testing.assert_array_equal(newer.learner["w"], [3, 4, 5])
    assert follow.step == 640 * 7
    assert not follow.has_newer
    save_policy(path, {"w": np.full((2, 3), np.nan, np.float32)}, 9)
    assert follow.read() is None
    assert follow.step == 640 * 7
    assert follower("reacher", "last", policies, 3) is None, "a file is not followed"
