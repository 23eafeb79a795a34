"""Things that many tests look at, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from homing.envs import GoalEnv, make
from homing.envs.registry import get_spec
from homing.envs.scene import Scene

NUM_ENVS, LENGTH, STEPS = 4, 12, 40


@dataclass(frozen=True)
class Record:
    """What happened in a rollout under random actions: field [T, N, ...], first state [N, ...]."""

    env: GoalEnv
    first_state: np.ndarray
    first_goal: np.ndarray
    action: np.ndarray
    before_state: np.ndarray
    before_goal: np.ndarray
    state: np.ndarray
    goal: np.ndarray
    next_state: np.ndarray
    next_goal: np.ndarray
    achieved: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    steps: np.ndarray
    metrics: dict[str, np.ndarray]


def roll(env: GoalEnv, key, steps: int):
    """One compiled rollout; returns the first observation and what each step gave."""
    k_reset, k_steps = jax.random.split(key)
    first = env.reset(k_reset)

    def body(state, key):
        action = jax.random.uniform(key, (env.num_envs, env.spec.action_dim), jnp.float32, -1.0, 1.0)
        after = env.step(state, action)
        seen = (
            action,
            state.obs.state,
            state.obs.goal,
            after.obs.state,
            after.obs.goal,
            after.next_obs.state,
            after.next_obs.goal,
            after.achieved_goal,
            after.reward,
            after.terminated,
            after.truncated,
            after.steps,
            after.metrics,
        )
        return after, seen

    _, seen = jax.lax.scan(body, first, jax.random.split(k_steps, steps))
    return first.obs, seen


@cache
def record(id: str, reward: str = "sparse", physics: str | None = None) -> Record:
    env = make(id, num_envs=NUM_ENVS, episode_length=LENGTH, reward=reward, physics=physics)
    first, seen = jax.jit(lambda key: roll(env, key, STEPS))(jax.random.key(0))
    first, seen = jax.tree.map(np.asarray, (first, seen))
    return Record(env, first.state, first.goal, *seen)


@cache
def draws(id: str, count: int = 4000):
    """Goals, starts and objects of many episodes, without physics: goal [K, ·], start [K, 2], props."""
    spec = get_spec(id)
    draw = jax.jit(jax.vmap(lambda key: spec.task.draw(key, spec.arena)))
    return jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(1), count)))


@cache
def scene(id: str, pipeline: str | None = None) -> Scene:
    return Scene(get_spec(id), pipeline)
