"""Batches of survival RL: what episodes tell about when their goals are first reached."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from homing.agents.base import ReplayView
from homing.losses import survival
from homing.types import Array, FirstReach, Key, Obs, TransitionIndex


class SRLBatch(struct.PyTreeNode):
    """State-action pairs, goals, and what their episodes tell about reaching them."""

    obs: Obs  # [B, ...], goals as in `goal`
    goal: (
        Array  # [B, P, goal_dim] of P points, in the environment's units where those of `obs` are normalised
    )
    action: Array  # [B, chunk · action_dim]
    first: FirstReach  # each [B]
    whole: Array  # [B] float32: the episode has all actions of the chunk
    occupancy: Array  # [B, bins]
    observed: Array  # [B, bins] bool
    fails: Array  # [B] float32: the episode terminates within the horizon
    steps_to_termination: Array  # [B]
    way: Obs | None = None  # [B, 2, goal_dim] goals that the policy is given and judged by, if others


def labelled(
    replay: ReplayView,
    index: TransitionIndex,
    goal: Array,
    radii: Sequence[float],
    occupancy_edges: np.ndarray,
    *,
    horizon: int,
    chunk: int,
    dwell: int,
    path: Sequence[int] = (0,),
    true_censoring: bool,
) -> SRLBatch:
    """The transitions with their goals [B, goal_dim] or [B, P, goal_dim], first-reach times and occupancies.

    path: the steps within a stay of `dwell` at which a sequence has its goals; other settings as in `SRLConfig`
    """
    goal = goal.reshape(len(goal), len(path), -1)
    near = replay.nearness(index, goal[:, 0], radii, horizon)
    if len(path) == 1:
        first = replay.first_near(index, near, horizon, dwell)
    else:
        first = replay.first_match(index, goal, path, radii[0], horizon)
    # A fall is known to never reach the goal; a cut episode is known only so far, if that is to count.
    never = first.terminated if true_censoring else ~first.reached
    # Whether a stay begins depends on the steps after it: of a cut episode's last ones nothing is known.
    seen = index.remaining - (dwell - 1)
    known = jnp.where(~first.reached & (seen < horizon), jnp.maximum(seen, -1), first.steps)
    first = first._replace(steps=jnp.where(never, horizon, known))
    fails = replay.terminates(index) & (index.remaining <= horizon)
    occupancy, observed = survival.occupancy_labels(near, index.remaining, fails, len(radii), occupancy_edges)
    return SRLBatch(
        obs=Obs(replay.states(index), goal),
        goal=goal,
        action=replay.actions(index, chunk),
        first=first,
        whole=replay.whole(index, chunk).astype(jnp.float32),
        occupancy=occupancy,
        observed=observed,
        fails=fails.astype(jnp.float32),
        steps_to_termination=replay.steps_to_termination(index),
    )


def way_goals(
    replay: ReplayView,
    index: TransitionIndex,
    key: Key,
    goal: Array,
    radius: float,
    *,
    ratio: float,
    gamma: float,
) -> Array:
    """Goals [B, 2, goal_dim] that the policy is given and judged by: two of the own future, the nearer one second.

    With probability 1 − `ratio`, or where no nearer one is on the way, both are `goal` [B, goal_dim].
    """
    k_way, k_ratio = jax.random.split(key)
    far, near, on_the_way = replay.waypoints(index, k_way, gamma, radius)
    chosen = on_the_way & jax.random.bernoulli(k_ratio, ratio, on_the_way.shape)
    return jnp.where(chosen[:, None, None], jnp.stack([far, near], axis=1), goal[:, None])
