"""Evaluation on an environment whose answers are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Probe, ProbeSpec

from homing.envs import make
from homing.training.evaluation import evaluate
from homing.training.loop import TrainState, evaluate_greedy

NUM_ENVS, LIMIT, GOAL = 50, 8, 3


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # These tests draw an evaluation's starts a second time.
    with jax.debug_key_reuse(False):
        yield


def counter():
    """State (count, deadline): counts up to its deadline (1..12) or the limit 8; the goal is 3."""

    def start(key):
        return jnp.stack([jnp.float32(0), jax.random.randint(key, (), 1, 13).astype(jnp.float32)])

    def dynamics(state, action, steps, key):
        state = state + jnp.asarray([1, 0], jnp.float32)
        return state, state[0] >= state[1]

    spec = ProbeSpec(state_dim=2, action_dim=1, goal_dim=1, goal_indices=(0,), threshold=1.5)
    goal = jnp.full((1,), GOAL, jnp.float32)
    return Probe(spec, start, lambda key: goal, dynamics, NUM_ENVS, LIMIT)


def still(obs, key):
    return jnp.zeros((NUM_ENVS, 1), jnp.float32)


def expected(deadlines):
    rows = []
    for deadline in deadlines:
        length = int(min(deadline, LIMIT))
        distances = [abs(count - GOAL) for count in range(1, length + 1)]
        near = [d < 1.5 for d in distances]
        rows.append(
            {
                "success_any": any(near),
                "success_end": near[-1],
                "time_near_goal": sum(near) / LIMIT,
                "return": sum(near),
                "episode_length": length,
                "final_distance": distances[-1],
                "mean_distance": sum(distances) / length,
            }
        )
    return {name: np.mean([row[name] for row in rows]) for name in rows[0]}


def test_only_the_first_episode_of_each_environment_counts():
    env, key = counter(), jax.random.key(0)
    deadlines = np.asarray(env.reset(jax.random.split(key)[0]).obs.state[:, 1])
    assert deadlines.min() < 3
    assert deadlines.max() > LIMIT
    found = jax.jit(lambda key: evaluate(env, still, key))(key)
    wanted = expected(deadlines)
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-5), name


def test_absent_metrics_are_absent_and_extra_successes_are_counted():
    class Other(Probe):
        def _metrics(self, achieved, goal):
            return {"success": self.reward(achieved, goal), "success_easy": jnp.ones(NUM_ENVS, jnp.float32)}

    env = Other(**vars(counter()))
    found = evaluate(env, still, jax.random.key(0))
    assert not any("distance" in name for name in found)
    assert float(found["success_easy_any"]) == 1
    assert float(found["success_any"]) < 1


def test_without_restarts_first_episodes_are_the_same_and_nothing_is_dealt_for_others():
    env = make("point_u_maze", num_envs=6, episode_length=12)
    once = env.of_size(6, restarts=False)

    def policy(obs, key):
        return jax.random.uniform(key, (6, 2), minval=-1.0)

    scores = [jax.jit(lambda k, e=e: evaluate(e, policy, k))(jax.random.key(1)) for e in (env, once)]
    assert scores[0].keys() == scores[1].keys()
    for name, value in scores[0].items():
        assert float(value) == pytest.approx(float(scores[1][name]), rel=1e-5), name
    state = jax.jit(once.reset)(jax.random.key(2))
    assert len(state.pool) == 0
    np.testing.assert_array_equal(state.obs.state, jax.jit(env.reset)(jax.random.key(2)).obs.state)
    step = jax.jit(once.step)
    for _ in range(13):
        state = step(state, jnp.zeros((6, 2)))
    assert state.steps.tolist() == [13] * 6
    assert state.ended.all()


class Schedule:
    """A plan whose evaluations follow after so many iterations each."""

    def __init__(self, *stops):
        self.epochs, self.epoch_bounds = len(stops), lambda epoch: (0, stops[epoch])


class Chunked:
    """An agent that stands still, with plans of some length."""

    def __init__(self, chunk):
        self.chunk = chunk

    def act(self, learner, obs, key, *, explore):
        return jnp.zeros((NUM_ENVS, self.chunk), jnp.float32)


def test_methods_are_evaluated_on_the_same_episodes():
    """Starts and goals follow from seed and number of the evaluation, not from agent, chunk or iterations."""

    def lengths(chunk, plan, iteration, seed=3):
        train = TrainState((), (), (), (), jax.random.key(seed))
        return float(
            evaluate_greedy(Chunked(chunk), train, plan, jnp.int32(iteration), counter())["episode_length"]
        )

    often, seldom = Schedule(4, 8, 12), Schedule(10, 20, 30)
    second = lengths(1, often, 8)
    assert lengths(2, seldom, 20) == second
    assert len({second, lengths(1, often, 4), lengths(1, often, 12), lengths(1, often, 8, seed=4)}) == 4
