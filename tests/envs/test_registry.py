"""Every environment of the table resets, steps and is what it says it is."""

import numpy as np
import pytest
from helpers import LENGTH, NUM_ENVS, STEPS, record

import homing
from homing.envs import ALIASES, env_ids
from homing.envs.registry import resolve

# Facts of the benchmark: state, goal and action sizes, goal indices, dt, threshold, whether it ends early.
FACTS = {
    "reacher": (10, (4, 5, 6), 2, 0.02, 0.05, False),
    "half_cheetah": (18, (0,), 6, 0.05, 0.5, False),
    "half_cheetah_fixed": (18, (0,), 6, 0.05, 0.5, False),
    "pusher_easy": (20, (10, 11, 12), 7, 0.05, 0.1, False),
    "pusher_hard": (20, (10, 11, 12), 7, 0.05, 0.1, False),
    "pusher_two": (23, (10, 11, 12, 13, 14, 15), 7, 0.05, 0.1, False),
    "pusher_reach": (17, (14, 15, 16), 7, 0.05, 0.1, False),
    "arm_reach": (20, (7, 8, 9), 4, 0.05, 0.1, False),
    "arm_grasp": (42, (0, 1, 2, *range(26, 32)), 5, 0.05, 0.02, False),
    "arm_push_easy": (36, (0, 1, 2), 5, 0.05, 0.1, False),
    "arm_push_hard": (36, (0, 1, 2), 5, 0.05, 0.1, False),
    "arm_binpick_easy": (36, (0, 1, 2), 5, 0.05, 0.1, False),
    "arm_binpick_hard": (36, (0, 1, 2), 5, 0.05, 0.1, False),
    "arm_binpick_easy_hand": (22, (0, 1, 2), 4, 0.05, 0.1, False),
    "ant": (29, (0, 1), 8, 0.05, 0.5, True),
    "ant_random_start": (29, (0, 1), 8, 0.05, 0.5, True),
    "ant_soccer": (31, (29, 30), 8, 0.05, 0.5, True),
    "ant_push": (31, (0, 1), 8, 0.05, 0.5, True),
    "humanoid": (246, (0, 1, 2), 17, 0.015, 0.5, True),
}
FAMILIES = {
    "ant_soccer_": FACTS["ant_soccer"],
    "humanoid_": FACTS["humanoid"],
    "point_": (4, (0, 1), 2, 0.05, 0.5, False),
    "ant_": FACTS["ant"],
}


# Environments that differ from another one by numbers only (a layout, a region of goals) have a program of
# their own to compile; their episodes are run by `make test-all`.
ONE_OF_EACH = {
    "reacher",
    "half_cheetah",
    "pusher_easy",
    "arm_reach",
    "ant",
    "ant_soccer",
    "ant_push",
    "humanoid",
    "ant_u_maze",
    "point_u_maze",
    "point_u_maze_anywhere",
}
EACH = [pytest.param(id, marks=[] if id in ONE_OF_EACH else pytest.mark.slow) for id in env_ids()]


def facts(id: str):
    if id in FACTS:
        return FACTS[id]
    return next(fact for prefix, fact in FAMILIES.items() if id.startswith(prefix))


@pytest.mark.parametrize("id", EACH)
def test_an_episode_of_random_actions(id):
    r = record(id)
    state_dim, indices = facts(id)[:2]
    for states in (r.state, r.next_state):
        assert states.shape == (STEPS, NUM_ENVS, state_dim)
        assert states.dtype == np.float32
        assert np.isfinite(states).all()
    assert r.goal.shape == (STEPS, NUM_ENVS, len(indices))
    assert np.isfinite(r.goal).all()
    assert (r.truncated | r.terminated)[:LENGTH].any(axis=0).all(), (
        "every environment ends an episode in time"
    )
    assert r.reward.dtype == np.float32
    assert set(np.unique(r.reward)) <= {0.0, 1.0}
    assert np.abs(r.state[1:] - r.state[:-1]).max() > 1e-4, "something moves"


@pytest.mark.parametrize("id", EACH)
def test_achieved_goal_is_part_of_the_reached_state(id):
    r = record(id)
    np.testing.assert_array_equal(r.achieved, r.next_state[..., list(r.env.spec.goal_indices)])


@pytest.mark.parametrize("id", EACH)
def test_being_at_the_goal_pays(id):
    r = record(id)
    achieved = r.achieved.reshape(-1, r.achieved.shape[-1])
    assert (np.asarray(r.env.reward(achieved, achieved)) == 1.0).all()
    step = np.zeros_like(achieved)
    step[:, 0] = 1.01 * r.env.spec.threshold
    assert (np.asarray(r.env.reward(achieved, achieved + step)) == 0.0).all()
    step[:, 0] = 0.99 * r.env.spec.threshold
    assert (np.asarray(r.env.reward(achieved, achieved + step)) == 1.0).all()


@pytest.mark.parametrize("id", env_ids())
def test_every_environment_is_what_the_benchmark_says(id):
    spec = homing.make(id).spec
    state_dim, indices, action_dim, dt, threshold, ends_early = facts(id)
    assert (spec.state_dim, spec.goal_indices, spec.action_dim) == (state_dim, indices, action_dim)
    assert (spec.dt, spec.threshold, spec.ends_early) == (pytest.approx(dt), threshold, ends_early)
    assert spec.goal_dim == len(indices) == len(spec.goal_names)
    assert len(set(spec.state_names)) == state_dim


@pytest.mark.parametrize("id", [id for id in env_ids() if id.endswith("_anywhere")])
def test_policies_transfer_between_an_environment_and_its_starts_anywhere(id):
    ours, base = homing.make(id).spec, homing.make(id.removesuffix("_anywhere")).spec
    for name in ("state_names", "goal_names", "action_dim", "goal_indices", "threshold", "dt", "physics"):
        assert getattr(ours, name) == getattr(base, name), name


def test_aliases_lead_to_environments_and_hide_none():
    for alias, id in ALIASES.items():
        assert id in env_ids()
        assert alias not in env_ids()
        assert resolve(alias) == id
    assert homing.make("ant_ball").spec.id == "ant_soccer"


def test_the_original_ids_all_work():
    original = """
        reacher cheetah pusher_easy pusher_hard pusher_reacher pusher2
        ant ant_random_start ant_ball ant_push humanoid ant_u_maze ant_big_maze ant_hardest_maze
        simple_u_maze simple_big_maze simple_hardest_maze humanoid_u_maze humanoid_big_maze
        humanoid_hardest_maze arm_reach arm_grasp arm_push_easy arm_push_hard arm_binpick_easy
        arm_binpick_hard arm_binpick_easy_EEF ant_ball_u_maze ant_ball_big_maze ant_u_maze_eval ant_big_maze_eval
    """
    for id in original.split():
        assert resolve(id) in env_ids()
