"""Episodes: fresh starts and goals, true last observations, ends, seeds, rewards, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import LENGTH, NUM_ENVS, STEPS, Programs, programs, random_actions, record

import homing
from homing.data.rollout import unroll
from homing.envs import reset_pool
from homing.errors import ConfigError, UnknownNameError
from homing.viz.render import random_policy

SLOW_CHEETAH = pytest.param("half_cheetah", marks=pytest.mark.slow)
SLOW_PUSHER = pytest.param("pusher_easy", marks=pytest.mark.slow)
MIXED = ("ant", "ant_u_maze", "ant_soccer", "reacher", "humanoid", SLOW_PUSHER, SLOW_CHEETAH)

# Other pipelines than spring take longest to compile.
SLOW_GOALS = [pytest.param(id, marks=pytest.mark.slow) for id in ("pusher_easy", "ant_push")]
SLOW_STARTS = [
    pytest.param(id, marks=pytest.mark.slow)
    for id in ("half_cheetah", "ant_push", "pusher_easy", "ant_u_maze")
]


@pytest.mark.parametrize("id", ["ant", "ant_soccer", "reacher", "humanoid", *SLOW_GOALS])
def test_every_episode_of_every_environment_has_a_new_goal(id):
    r = record(id)
    ended = r.truncated | r.terminated
    for i in range(ended.shape[1]):
        goals = [r.first_goal[i], *r.goal[ended[:, i], i]]
        assert len(goals) >= 4
        assert len({g.tobytes() for g in goals}) == len(goals)
    starts = np.concatenate([r.first_goal, r.goal[ended]])
    assert len({g.tobytes() for g in starts}) == len(starts), "and no other environment has the same"


@pytest.mark.parametrize("id", ["ant", "reacher", *SLOW_STARTS])
def test_every_episode_of_every_environment_has_a_new_start(id):
    r = record(id)
    ended = r.truncated | r.terminated
    starts = np.concatenate([r.first_state, r.state[ended]])
    assert len({s.tobytes() for s in starts}) == len(starts)


@pytest.mark.parametrize("id", MIXED)
def test_the_last_observation_of_an_episode_is_not_lost(id):
    r = record(id)
    ended = r.truncated | r.terminated
    assert ended.any() and (~ended).any()
    np.testing.assert_array_equal(r.next_state[~ended], r.state[~ended])
    np.testing.assert_array_equal(r.next_goal, r.before_goal)
    moved = np.abs(r.next_state[ended] - r.state[ended]).max(axis=-1)
    assert (moved > 1e-6).all(), "after an end the policy sees another episode"
    np.testing.assert_array_equal(r.before_state[1:], r.state[:-1])


def test_the_last_observation_continues_the_motion():
    """The state that an ended episode reached is what the same actions reach without a time limit."""
    short = programs("point_u_maze")
    long = Programs(short.env.of_size(NUM_ENVS, episode_length=50))
    long.reset = short.reset
    actions = random_actions(short.env, LENGTH)
    a, b = (parts.roll(jax.random.key(3), actions)[1] for parts in (short, long))
    np.testing.assert_allclose(a[5], b[5], atol=1e-6)
    assert a[10][-1].all() and not b[10].any()


def test_time_limit_truncates_and_a_fall_terminates():
    r = record("reacher")
    assert not r.terminated.any()
    np.testing.assert_array_equal(
        np.flatnonzero(r.truncated[:, 0]), [LENGTH - 1, 2 * LENGTH - 1, 3 * LENGTH - 1]
    )
    assert (r.steps[LENGTH - 1] == 0).all() and (r.steps[LENGTH] == 1).all()
    for id in ("ant", "humanoid"):
        r = record(id)
        z = r.next_state[..., r.env.spec.state_names.index("torso_z")]
        low, high = {"ant": (0.2, 1.0), "humanoid": (1.0, 2.0)}[id]
        np.testing.assert_array_equal(r.terminated, (z < low) | (z > high))
        assert not (r.terminated & r.truncated).any()


@pytest.fixture(scope="module")
def ant():
    parts = programs("ant")
    return parts.env, parts.reset, parts.step


STILL = np.zeros((NUM_ENVS, 8), np.float32)


@pytest.fixture(scope="module")
def lift(ant):
    """The same batch with the torso put at heights z [N]."""
    init = jax.jit(ant[0].scene.engine.init)

    def lifted(state, z):
        q = np.array(state.physics.q)
        q[:, 2] = z
        return state.replace(physics=init(q, np.zeros_like(state.physics.qd)))

    return lifted


def test_an_ant_out_of_range_ends_its_episode_and_the_others_go_on(ant, lift):
    _, reset, step = ant
    state = lift(reset(jax.random.key(0)), [0.55, 1.6, -5.0, 0.6])
    after = step(state, STILL)
    np.testing.assert_array_equal(after.terminated, [False, True, True, False])
    np.testing.assert_array_equal(after.truncated, [False, False, False, False])
    np.testing.assert_array_equal(after.steps, [1, 0, 0, 1])
    assert np.asarray(after.next_obs.state)[1, 2] > 1.0 > np.asarray(after.obs.state)[1, 2]


def test_a_fall_on_the_last_step_is_a_fall(ant, lift):
    _, reset, step = ant
    state = reset(jax.random.key(0)).replace(steps=np.full(NUM_ENVS, LENGTH - 1, np.int32))
    after = step(lift(state, [0.55, 1.6, 0.55, 0.6]), STILL)
    np.testing.assert_array_equal(after.terminated, [False, True, False, False])
    np.testing.assert_array_equal(after.truncated, [True, False, True, True])


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e8])
def test_a_broken_simulation_ends_its_episode_only(ant, value):
    _, reset, step = ant
    state = reset(jax.random.key(0))

    def broken(x):
        x = np.array(x)
        x[1] = value
        return x

    after = step(state.replace(physics=jax.tree.map(broken, state.physics)), STILL)
    np.testing.assert_array_equal(after.terminated, [False, True, False, False])
    for leaf in jax.tree.leaves((after.obs, after.next_obs, after.physics, after.reward, after.metrics)):
        assert (np.abs(np.asarray(leaf)) < 1e5).all()


def test_success_when_the_robot_stands_on_its_goal(ant):
    _, reset, step = ant
    state = reset(jax.random.key(0))
    away = np.array([[0.0, 0.0], [0.3, 0.0], [2.5, 0.0], [0.0, 2.5]], np.float32)
    goal = np.asarray(state.obs.state)[:, :2] + away
    after = step(state.replace(obs=state.obs.replace(goal=goal)), STILL)
    np.testing.assert_array_equal(after.reward, [1.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(after.metrics["success"], [1.0, 1.0, 0.0, 0.0])
    assert not np.asarray(after.ended).any(), "success does not end an episode"


def test_actions_beyond_the_range_count_as_its_ends(ant):
    _, reset, step = ant
    beyond, end = (step(reset(jax.random.key(0)), np.full_like(STILL, action)) for action in (7.0, 1.0))
    np.testing.assert_array_equal(beyond.obs.state, end.obs.state)


def test_same_key_same_bits_other_key_other_episode(ant):
    _, reset, _ = ant
    a, b, c = reset(jax.random.key(1)), reset(jax.random.key(1)), reset(jax.random.key(2))
    np.testing.assert_array_equal(a.obs.state, b.obs.state)
    assert (np.asarray(a.obs.goal) != np.asarray(c.obs.goal)).all()


@pytest.mark.parametrize("id", ["point_u_maze", "reacher"])
def test_seeds_vmapped_equal_one_by_one(id):
    one = programs(id)
    keys, actions = lambda: jax.random.split(jax.random.key(4), 3), random_actions(one.env, STEPS, 3)
    with jax.debug_key_reuse(False):  # of vmapped branches
        first, shown = Programs(one.env, jax.vmap).roll(keys(), actions)
    together = (first, jax.tree.map(lambda x: x.swapaxes(0, 1), shown))
    for seed, key in enumerate(keys()):
        alone = one.roll(key, actions[:, seed])
        mine = jax.tree.map(lambda x, seed=seed: x[seed], together)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), alone, mine)
    assert (together[1][4][0] != together[1][4][1]).any(), "seeds differ"


def test_seed_axes_share_the_clock_and_keep_the_branch(keys_reused_on_purpose):
    env = homing.make("point_u_maze", num_envs=2, episode_length=6)
    reset = jax.jit(jax.vmap(env.reset, out_axes=env.seed_axes()))
    states = reset(jax.random.split(jax.random.key(0), 3))
    assert states.clock.shape == () and states.used.shape == (3, 2) and states.obs.goal.shape == (3, 2, 2)
    step = jax.jit(jax.vmap(env.step, in_axes=(env.seed_axes(), 0), out_axes=env.seed_axes()))
    actions = np.zeros((3, 2, 2), np.float32)
    branches = str(step.trace(states, actions).jaxpr).count(" cond[")
    plain = jax.eval_shape(jax.vmap(env.reset), jax.random.split(jax.random.key(0), 3))
    assert branches == 1 + str(jax.make_jaxpr(jax.vmap(env.step))(plain, actions)).count(" cond["), (
        "the pool is filled in a branch, not at every step"
    )
    assert step(states, actions).clock == 1


def test_one_trace_for_all_steps(ant):
    env, reset, _ = ant
    step = jax.jit(env.step)
    state = reset(jax.random.key(0))
    for _ in range(3):
        state = step(state, STILL)
    assert step._cache_size() == 1


def test_the_pool_gives_each_start_once():
    pool = jnp.arange(12.0)[:, None]  # three starts for each of four environments
    used = jnp.zeros(4, jnp.int32)
    given = []
    for ended in ([True, False, True, True], [True, True, False, True], [True, False, False, False]):
        fresh, used = reset_pool.choose(jnp.asarray(ended), pool, used)
        given += np.asarray(fresh)[np.asarray(ended), 0].tolist()
    assert len(given) == len(set(given)) == 7
    np.testing.assert_array_equal(used, [3, 1, 1, 2])


def test_packing_keeps_every_number():
    start = reset_pool.Start(
        {"a": jnp.arange(12.0).reshape(2, 3, 2), "b": jnp.ones(2)}, jnp.zeros((2, 4)), jnp.ones((2, 1))
    )
    packed = reset_pool.pack(start)
    assert packed.shape == (2, 12)
    jax.tree.map(np.testing.assert_array_equal, start, reset_pool.unpack(packed, start))


@pytest.mark.parametrize("length", [1, 3, 16, 1000])
def test_time_limits_leave_a_start_in_each_environment_for_falls(length):
    interval = reset_pool.interval_for(length)
    assert interval >= 1
    assert -(-interval // length) <= reset_pool.STARTS_PER_ENV - 1


def test_blocks_divide_an_unroll_and_are_no_longer_than_the_interval():
    env = homing.make("point_u_maze")
    assert env.interval == 64
    assert [env.blocks(n) for n in (1, 62, 64, 100, 1000)] == [1, 1, 1, 2, 20]
    assert env.blocks(127) == 0, "a prime has no useful blocks"
    assert homing.make("point_u_maze", episode_length=5).blocks(60) == 4


def test_an_unroll_in_blocks_draws_fresh_goals_too():
    parts = programs("reacher")
    env = parts.env.of_size(NUM_ENVS, episode_length=4)
    policy, first = random_policy(env), parts.reset(jax.random.key(0))
    after, rows = jax.jit(lambda s, k: unroll(env, s, policy, k, 36))(first, jax.random.key(1))
    assert env.blocks(36) == 3
    starts = np.concatenate([np.asarray(rows.obs.goal)[::4].reshape(-1, 3), np.asarray(after.obs.goal)])
    assert len(np.unique(starts, axis=0)) == len(starts) == NUM_ENVS * 10
    np.testing.assert_array_equal(np.asarray(rows.last).sum(axis=0), [9] * NUM_ENVS)


def test_short_episodes_never_repeat_a_goal():
    """One-step episodes use starts as fast as can be."""
    env = homing.make("point_u_maze", num_envs=4, episode_length=1, options={"task.starts": None})
    _, shown = Programs(env).roll(jax.random.key(0), random_actions(env, 30))
    states = shown[3].reshape(-1, 4)
    assert len({s.tobytes() for s in states}) == len(states)


def test_dense_rewards_follow_their_formulas():
    r = record("ant", reward="dense")
    d0 = np.linalg.norm(r.before_state[..., :2] - r.before_goal, axis=-1)
    d1 = np.linalg.norm(r.achieved - r.before_goal, axis=-1)
    expected = 10.0 * (d0 - d1) / 0.05 + 1.0 - 0.5 * (r.action**2).sum(-1)
    np.testing.assert_allclose(r.reward, expected, rtol=1e-3, atol=2e-3)
    r = record("reacher", reward="dense")
    np.testing.assert_allclose(r.reward, -np.linalg.norm(r.achieved - r.before_goal, axis=-1), atol=1e-5)


@pytest.mark.slow
def test_the_dense_reward_of_two_pucks():
    r = record("pusher_two", reward="dense")
    pucks = r.achieved.reshape(*r.achieved.shape[:2], 2, 3)
    goals = r.before_goal.reshape(pucks.shape)
    wrist = r.next_state[..., 7:10]
    expected = -np.linalg.norm(pucks - goals, axis=-1).sum(-1) - 0.1 * (r.action**2).sum(-1)
    expected -= 0.5 * np.linalg.norm(pucks - wrist[..., None, :], axis=-1).mean(-1)
    np.testing.assert_allclose(r.reward, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("kwargs", "part"),
    [
        ({"id": "antt"}, "'ant'"),
        ({"id": "ant", "num_envs": 0}, "num_envs must be at least 1"),
        ({"id": "ant", "num_envs": 2.5}, "whole number"),
        ({"id": "ant", "episode_length": -3}, "episode_length"),
        ({"id": "ant", "physics": "sprnig"}, "'spring'"),
        ({"id": "ant_push", "physics": "spring"}, "runs on mjx"),
        ({"id": "ant", "reward": "spares"}, "'sparse'"),
        ({"id": "ant", "options": {"task.witin": 0.3}}, "'within'"),
        ({"id": "ant", "options": {"task.within": "near"}}, "takes a number"),
        ({"id": "ant", "options": {"task.within.x": 1}}, "plain value"),
        ({"id": "ant", "options": {"arena.layout": "u"}}, "layout"),
        ({"id": "ant_u_maze", "options": {"arena.layout": "v_maze"}}, "unknown maze layout"),
        ({"id": "ant_u_maze", "options": {"arena.cell": -1.0}}, "above 0"),
        ({"id": "ant", "options": {"task.goal": ("torso_x", "torso_y", "torso_z")}}, "2 entries"),
        ({"id": "ant", "options": {"task.goal": ("torso_u", "torso_y")}}, "'torso_x'"),
    ],
)
def test_bad_input_is_answered_with_the_way_out(kwargs, part):
    with pytest.raises((ConfigError, UnknownNameError)) as caught:
        homing.make(**kwargs)
    assert part in str(caught.value)


def test_options_reach_body_task_and_arena():
    env = homing.make("ant", options={"task.within": 0.25, "task.goals.radius": 3})
    assert env.spec.threshold == 0.25
    goals = jax.jit(lambda key: env.reset(key).obs.goal)(jax.random.key(0))
    np.testing.assert_allclose(np.linalg.norm(goals, axis=-1), 3.0, rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (2,), (1, 2), (3, 1), (2, 3), (1, 3, 2)])
@pytest.mark.parametrize("method", ["step", "advance"])
def test_actions_of_another_shape_are_refused_and_not_broadcast(method, shape):
    env = homing.make("point_u_maze", num_envs=3)
    state = jax.eval_shape(env.reset, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"\(num_envs, action_dim\) = \(3, 2\)"):
        jax.eval_shape(getattr(env, method), state, jax.ShapeDtypeStruct(shape, jnp.float32))
    after = jax.eval_shape(getattr(env, method), state, jax.ShapeDtypeStruct((3, 2), jnp.float32))
    assert after.reward.shape == (3,)
