"""Episodes of a policy in its environment, as a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from homing.data.rollout import Policy, first_plan, next_actions
from homing.datasets.episodes import Dataset, from_rows
from homing.envs.base import GoalEnv
from homing.types import Array, EnvState, Key, Obs

MAX_BATCH_BYTES = 256 * 2**20
MAX_PARALLEL = 512


class Exploration(NamedTuple):
    """What makes a policy's data broader than its own paths."""

    noise: float = 0.0
    """Standard deviation of Gaussian noise on every action."""
    random_actions: float = 0.0
    """Fraction of steps with a uniformly random action."""


def with_exploration(policy: Policy, exploration: Exploration, action_dim: int) -> Policy:
    """A policy with noise on its actions, chunks [..., chunk · action_dim] included."""

    def act(obs: Obs, key: Key) -> Array:
        k_policy, k_noise, k_pick, k_random = jax.random.split(key, 4)
        action = policy(obs, k_policy)
        if exploration.noise > 0:
            action += exploration.noise * jax.random.normal(k_noise, action.shape, action.dtype)
        if exploration.random_actions > 0:
            steps = (*action.shape[:-1], action.shape[-1] // action_dim)
            picked = jax.random.bernoulli(k_pick, exploration.random_actions, steps)
            anything = jax.random.uniform(k_random, action.shape, action.dtype, -1, 1)
            action = jnp.where(jnp.repeat(picked, action_dim, axis=-1), anything, action)
        return jnp.clip(action, -1, 1)

    return act


def parallel_episodes(env: GoalEnv, episodes: int) -> int:
    """Episodes that are collected at once: what fits in some memory."""
    row = 4 * (env.spec.state_dim + env.spec.action_dim + 2)
    return max(1, min(episodes, MAX_PARALLEL, MAX_BATCH_BYTES // (row * env.episode_length)))


def collect(
    env: GoalEnv,
    policy: Policy,
    key: Key,
    episodes: int,
    chunk: int = 1,
    notes: dict[str, Any] | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Dataset:
    """`episodes` episodes with fresh starts and goals; `progress` hears how many are done."""
    count = parallel_episodes(env, episodes)
    env = env.of_size(count, restarts=False)
    unroll = jax.jit(lambda key: _episodes(env, policy, key, chunk))
    parts: list[list[np.ndarray]] = []
    for i in range(-(-episodes // count)):
        batch = jax.tree.map(np.asarray, unroll(jax.random.fold_in(key, i)))
        parts += [_rows(batch, n) for n in range(min(count, episodes - i * count))]
        progress(min(len(parts), episodes))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return from_rows(*columns, notes=notes)


def _episodes(env: GoalEnv, policy: Policy, key: Key, chunk: int) -> tuple[Any, ...]:
    """One episode in each environment: states [T + 1, N, ·], actions, ends, falls [T, N] and goals [N, ·]."""
    k_start, k_steps = jax.random.split(key)
    first = env.reset(k_start)

    def step(carry: tuple[EnvState, Any], k_action: Key) -> tuple[tuple[EnvState, Any], Any]:
        state, plan = carry
        action, plan = next_actions(plan, policy(state.obs, k_action))
        after = env.advance(state, action)
        return (after, plan), (after.next_obs.state, action, after.ended, after.terminated)

    plan = first_plan(env.num_envs, chunk, env.spec.action_dim)
    keys = jax.random.split(k_steps, env.episode_length)
    _, (states, actions, ended, terminated) = lax.scan(step, (first, plan), keys)
    states = jnp.concatenate([first.obs.state[None], states])
    return states, actions, ended, terminated, first.obs.goal


def _rows(batch: tuple[np.ndarray, ...], env: int) -> list[np.ndarray]:
    """The rows of one environment's first episode, in the order of `from_rows`."""
    states, actions, ended, terminated, goals = batch
    length = int(np.argmax(ended[:, env])) + 1
    at_end = np.zeros(length + 1, np.float32)
    at_end[-1] = 1
    dummy = np.zeros((1, actions.shape[-1]), np.float32)
    return [
        states[: length + 1, env],
        np.concatenate([actions[:length, env], dummy]),
        at_end,
        at_end * terminated[length - 1, env],
        np.repeat(goals[None, env], length + 1, axis=0),
    ]
