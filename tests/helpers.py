"""Things that many tests look at, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax
import numpy as np

from homing.envs import GoalEnv, make
from homing.envs.registry import get_spec
from homing.envs.scene import Scene
from homing.types import EnvState

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


def seen(before: EnvState, action, after: EnvState):
    """What a record keeps of a step."""
    return (
        action,
        before.obs.state,
        before.obs.goal,
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


class Programs:
    """Parts of an environment, compiled one by one: as one program, a rollout takes up to twice as long."""

    def __init__(self, env: GoalEnv, wrapped: Callable = lambda part: part):
        self.env = env
        self.reset, self.step = jax.jit(wrapped(env.reset)), jax.jit(wrapped(env.step))

    def roll(self, key, actions):
        """The first observation, and what each of T steps gave under actions [T, ...], fields [T, ...]."""
        state = first = self.reset(key)
        shown = []
        for action in actions:
            before, state = state, self.step(state, action)
            shown.append(jax.device_get(seen(before, action, state)))
        assert jax.tree.map(jax.typeof, state) == jax.tree.map(jax.typeof, first), (
            "one trace serves all steps"
        )
        return jax.device_get(first.obs), jax.tree.map(lambda *x: np.stack(x), *shown)


@cache
def _programs(id: str, reward: str, physics: str | None) -> Programs:
    parts = Programs(make(id, num_envs=NUM_ENVS, episode_length=LENGTH, reward=reward, physics=physics))
    if reward != "sparse":
        parts.reset = programs(id, physics=physics).reset  # the same program
    return parts


def programs(id: str, reward: str = "sparse", physics: str | None = None) -> Programs:
    return _programs(id, reward, physics)


def random_actions(env: GoalEnv, *shape: int) -> np.ndarray:
    """Actions [..., N, action_dim]."""
    shape = (*shape, env.num_envs, env.spec.action_dim)
    return np.random.default_rng(0).uniform(-1.0, 1.0, shape).astype(np.float32)


@cache
def record(id: str, reward: str = "sparse", physics: str | None = None) -> Record:
    parts = programs(id, reward, physics)
    first, shown = parts.roll(jax.random.key(0), random_actions(parts.env, STEPS))
    return Record(parts.env, first.state, first.goal, *shown)


@cache
def draws(id: str, count: int = 4000):
    """Goals, starts and objects of many episodes, without physics: goal [K, ·], start [K, 2], props."""
    spec = get_spec(id)
    draw = jax.jit(jax.vmap(lambda key: spec.task.draw(key, spec.arena)))
    return jax.tree.map(np.asarray, draw(jax.random.split(jax.random.key(1), count)))


@cache
def scene(id: str, pipeline: str | None = None) -> Scene:
    return Scene(get_spec(id), pipeline)
