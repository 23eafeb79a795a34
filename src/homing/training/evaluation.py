"""How well a policy reaches goals: one episode in each of N environments."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from homing.data.rollout import Policy, first_plan, next_actions
from homing.envs.base import GoalEnv
from homing.types import Array, EnvState, Key, Metrics


class Tally(struct.PyTreeNode):
    """Running sums over the first episode of each environment, all [N]."""

    running: Array  # bool: the first episode is not over
    steps: Array
    reward: Array
    near: dict[str, Array]  # steps on which a success metric held
    at_end: dict[str, Array]  # its value at the last step
    distance_sum: Array
    distance: Array  # at the last step


def evaluate(env: GoalEnv, policy: Policy, key: Key, chunk: int = 1, by_goal: bool = False) -> Metrics:
    """Means over N episodes with fresh starts and goals; an environment counts until its first episode ends.

    `success_any`: reached at least once. `success_end`: within the threshold at the last step.
    `time_near_goal`: fraction of the episode's time limit spent there. Other success metrics likewise.
    Where a maze has an `_eval` layout, `success_far_any` and `time_near_goal_far` are of the goals in it alone.
    With `chunk` > 1 the policy proposes action chunks, which are executed open-loop. With `by_goal`, the metrics
    also have `by_goal/…` [K]: episodes, success and time near the goal for each group of goals.
    """
    k_start, k_steps = jax.random.split(key)
    state = env.reset(k_start)

    def step(carry: tuple[EnvState, Any, Tally], k_action: Key) -> tuple[tuple[EnvState, Any, Tally], None]:
        state, plan, tally = carry
        action, plan = next_actions(plan, policy(state.obs, k_action))
        # Only first episodes count: the reset pool is not refilled.
        state = env.advance(state, action)
        return (state, plan, _count(tally, state)), None

    tally = _nothing(state)
    plan = first_plan(env.num_envs, chunk, env.spec.action_dim)
    keys = jax.random.split(k_steps, env.episode_length)
    (_, _, tally), _ = lax.scan(step, (state, plan, tally), keys)
    metrics = _summary(tally, env.episode_length, "distance" in state.metrics)
    groups = env.goal_groups
    group = groups.of(state.obs.goal, env.distance(state.achieved_goal, state.obs.goal))
    if groups.far is not None:
        far = jnp.asarray(groups.far, jnp.float32)[group]
        _, success, time = _of_members(tally, far, env.episode_length)
        metrics |= {"success_far_any": success, "time_near_goal_far": time}
    return metrics | (_by_goal(env, group, tally) if by_goal else {})


def _of_members(tally: Tally, member: Array, episode_length: int) -> tuple[Array, Array, Array]:
    """Episodes, success rate and time near the goal of the episodes with 1 in `member`, [N] or [N, K]."""
    near, episodes = tally.near["success"], jnp.sum(member, axis=0)
    return (
        episodes,
        (near > 0).astype(jnp.float32) @ member / episodes,
        near @ member / (episodes * episode_length),
    )


def _by_goal(env: GoalEnv, group: Array, tally: Tally) -> Metrics:
    """Means over the episodes of each group of goals [K]; NaN for a group without any."""
    groups = env.goal_groups
    member = jax.nn.one_hot(group, len(groups.labels), dtype=jnp.float32)
    episodes, success, time = _of_members(tally, member, env.episode_length)
    where = {f"by_goal/{name}": jnp.asarray(x, jnp.float32) for name, x in groups.coordinates().items()}
    return where | {
        "by_goal/episodes": episodes,
        "by_goal/success_any": success,
        "by_goal/time_near_goal": time,
    }


def _nothing(state: EnvState) -> Tally:
    zeros = jnp.zeros(state.reward.shape, jnp.float32)
    successes = {name: zeros for name in state.metrics if name.startswith("success")}
    return Tally(
        running=jnp.ones(state.reward.shape, bool),
        steps=zeros,
        reward=zeros,
        near=successes,
        at_end=dict(successes),
        distance_sum=zeros,
        distance=zeros,
    )


def _count(tally: Tally, state: EnvState) -> Tally:
    counts = tally.running

    def added(total: Array, value: Array) -> Array:
        return total + jnp.where(counts, value, 0).astype(jnp.float32)

    def latest(old: Array, value: Array) -> Array:
        return jnp.where(counts, value, old)

    distance = state.metrics.get("distance", tally.distance)
    return Tally(
        running=counts & ~state.ended,
        steps=added(tally.steps, jnp.ones_like(tally.steps)),
        reward=added(tally.reward, state.reward),
        near={name: added(total, state.metrics[name]) for name, total in tally.near.items()},
        at_end={name: latest(old, state.metrics[name]) for name, old in tally.at_end.items()},
        distance_sum=added(tally.distance_sum, distance),
        distance=latest(tally.distance, distance),
    )


def _summary(tally: Tally, episode_length: int, has_distance: bool) -> Metrics:
    metrics = {"episode_length": jnp.mean(tally.steps), "return": jnp.mean(tally.reward)}
    for name, near in tally.near.items():
        suffix = name.removeprefix("success")
        metrics[f"success{suffix}_any"] = jnp.mean((near > 0).astype(jnp.float32))
        metrics[f"success{suffix}_end"] = jnp.mean(tally.at_end[name])
        metrics[f"time_near_goal{suffix}"] = jnp.mean(near) / episode_length
    if has_distance:
        metrics["final_distance"] = jnp.mean(tally.distance)
        metrics["mean_distance"] = jnp.mean(tally.distance_sum / tally.steps)
    return metrics
