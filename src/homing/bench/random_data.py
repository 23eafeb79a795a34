"""Random inputs of an agent's updates, with an environment's sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from homing.bench.case import Case
from homing.data import replay
from homing.data.view import EnvRewards, ReplayView
from homing.types import Array, Key, Obs, Rollout


def random_inputs(case: Case, key: Key) -> Any:
    """Inputs of one round of updates of one seed: batches and draws [U, …], or a rollout and a key."""
    return _rollout(case, key) if case.on_policy else _batches(case, key)


def _batches(case: Case, key: Key) -> tuple[Any, Any]:
    """Batches and draws [U, …], sampled by the agent from a replay buffer of random transitions."""
    k_fill, k_batch, k_draws = jax.random.split(key, 3)
    config = case.plan.config
    buffer = _random_buffer(case, k_fill)
    episodes = replay.episode_index(buffer, jnp.int32(1))
    view = ReplayView(buffer, episodes, _plain_rewards(case))

    def batch(key: Key) -> Any:
        k_index, k_goals = jax.random.split(key)
        index = replay.sample(buffer, episodes, k_index, config.batch_size)
        return case.agent.sample(view, index, k_goals)

    batches = jax.vmap(batch)(jax.random.split(k_batch, case.updates))
    draw = lambda k: case.agent.draw(k, config.batch_size)
    return batches, jax.vmap(draw)(jax.random.split(k_draws, case.updates))


def _random_buffer(case: Case, key: Key) -> replay.ReplayBuffer:
    """One slot of transitions with random states, goals and actions; no episode ends in it."""
    shape = dataclasses.replace(case.plan.buffer_shape, slots=1, num_envs=min(case.plan.config.num_envs, 256))
    empty = replay.empty(shape)
    k_state, k_action, k_goal, k_achieved = jax.random.split(key, 4)
    normal = lambda k, like: jax.random.normal(k, like.shape, jnp.float32).astype(like.dtype)
    return empty.replace(
        state=normal(k_state, empty.state),
        action=jnp.tanh(normal(k_action, empty.action)),
        goal=normal(k_goal, empty.goal),
        achieved_goal=normal(k_achieved, empty.achieved_goal),
        discount=jnp.ones_like(empty.discount),
    )


def _plain_rewards(case: Case) -> EnvRewards:
    """Euclidean distances to random goals; the environment's own reward hardly affects the time of an update."""
    distance = lambda achieved, goal: jnp.linalg.norm(achieved - goal, axis=-1)
    return EnvRewards(
        reward=lambda achieved, goal: (distance(achieved, goal) < 0.5).astype(jnp.float32),
        achieved=lambda state: state[..., : case.spec.goal_dim],
        distance=distance,
    )


def _rollout(case: Case, key: Key) -> tuple[Rollout, Key]:
    k_data, k_choice, k_init, k_learn = jax.random.split(key, 4)
    config, spec = case.plan.config, case.spec
    lead = (config.unroll_length, config.num_envs)
    sizes = (spec.state_dim, spec.goal_dim, spec.state_dim, spec.goal_dim)
    state, goal, next_state, achieved = _normal(k_data, lead, sizes)
    rollout = Rollout(
        obs=Obs(state, goal),
        choice=case.agent.choose(case.agent.init(k_init), Obs(state, goal), k_choice),
        next_obs=Obs(next_state, goal),
        achieved_goal=achieved,
        reward=jnp.zeros(lead, jnp.float32),
        discount=jnp.ones(lead, jnp.float32),
        last=jnp.zeros(lead, bool),
    )
    return rollout, k_learn


def _normal(key: Key, lead: tuple[int, ...], sizes: tuple[int, ...]) -> list[Array]:
    keys = jax.random.split(key, len(sizes))
    return [jax.random.normal(k, (*lead, size), jnp.float32) for k, size in zip(keys, sizes, strict=True)]
