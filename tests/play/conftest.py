"""A session without a browser whose point heads straight for its goal."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from policy_helpers import maze_policy  # noqa: F401

from homing.play.session import Session
from homing.play.simulation import Simulation
from homing.play.sources import Choice, make_actor


def towards(learner, obs, key):
    """Straight to the goal, braking on the way."""
    return jnp.clip(obs.goal - obs.state[..., :2] - obs.state[..., 2:], -1, 1)


@pytest.fixture(scope="session")
def made(maze_policy):  # noqa: F811
    """A session whose point heads straight for its goal; compiled once for all files."""
    actor = dataclasses.replace(make_actor(Choice(maze_policy, 4)), act=towards)
    sim = Simulation(actor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("homing.play.session.Simulation", lambda *_: sim)
        patch.setattr("homing.play.session.make_actor", lambda choice: actor)
        session = Session(Choice(maze_policy, 4), ("other",))
    return session, sim


@pytest.fixture
def session(made):
    session, _ = made
    session.paused, session.speed, session.auto_goal, session.message = False, 1.0, False, ""
    session._fallen = None
    session.sim.goal = np.array([4.0, 8.0], np.float32)
    session.reset()
    session._pending_seconds = 0.0
    return session
