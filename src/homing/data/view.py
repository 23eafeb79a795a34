"""What an agent reads of replay to make its batches: transitions, goals, chunks, distances to goals."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from homing.data import replay
from homing.data.relabel import GOAL_SAMPLERS, geometric_offset
from homing.data.replay import EpisodeIndex, ReplayBuffer
from homing.errors import unknown
from homing.types import Array, Batch, FirstReach, Key, Obs, Relabel, TransitionIndex, is_static

CACHE_LINE = 128  # bytes, of a GPU's memory
FUSED_GOALS = 8  # of a sequence, compared in one pass over the window: for 32 XLA compiles minutes on a GPU

# Samplers of `mixed_goals` whose goals go on: after one of them comes what the episode achieves next.
PATH_SAMPLERS = ("future", "uniform_future", "current")


@dataclasses.dataclass(frozen=True)
class EnvRewards:
    """What relabelling asks of an environment; pure functions of arrays [...]."""

    reward: Callable[[Array, Array], Array]
    """(achieved_goal, goal) -> sparse reward"""
    achieved: Callable[[Array], Array]
    """(state) -> achieved goal"""
    distance: Callable[[Array, Array], Array]
    """(achieved_goal, goal) -> distance"""
    shaping: Callable[[Array, Array, Array], Array] | None = None
    """(state, achieved_goal, goal) -> the part of a dense reward that depends on the goal"""


@dataclasses.dataclass(frozen=True)
class ReplayView:
    """A replay buffer as agents see it; implements `homing.agents.base.ReplayView`."""

    buffer: ReplayBuffer
    episodes: EpisodeIndex
    env: EnvRewards

    def read(self, field: Array, index: TransitionIndex, offset: Array | int = 0) -> Array:
        """Entries of a buffer field, `offset` steps later; past the last stored step, that of the last."""
        position = jnp.minimum(index.position + offset, index.last)
        return replay.read(field, self.episodes, position, index.env)

    def goals(self, relabel: Relabel, index: TransitionIndex, key: Key) -> Array:
        """Goals [B, goal_dim]: the sampler's with probability `ratio`, else the commanded ones.

        With probability `random_ratio` a transition takes the goal of its neighbour in the batch instead, which
        is nearly always one of another episode.
        """
        k_own, k_swap = jax.random.split(key)
        own = self._own_goals(relabel, index, k_own)
        if is_static(relabel.random_ratio, 0):
            return own
        swapped = jax.random.bernoulli(k_swap, relabel.random_ratio, index.position.shape)
        return jnp.where(swapped[..., None], jnp.roll(own, 1, axis=0), own)

    def _own_goals(self, relabel: Relabel, index: TransitionIndex, key: Key) -> Array:
        k_sampler, k_ratio = jax.random.split(key)
        sampled = self.sampled_goals(relabel.sampler, index, k_sampler, relabel.gamma)
        if is_static(relabel.ratio, 1):
            return sampled
        chosen = jax.random.bernoulli(k_ratio, relabel.ratio, index.position.shape)
        return jnp.where(chosen[..., None], sampled, self.read(self.buffer.goal, index))

    def sampled_goals(self, sampler: str, index: TransitionIndex, key: Key, gamma: float = 0.99) -> Array:
        """Goals [B, goal_dim] by one of `homing.data.relabel.GOAL_SAMPLERS`, or those of the states (`current`)."""
        if sampler == "current":
            return self.achieved_now(index)
        if sampler not in GOAL_SAMPLERS:
            raise unknown("goal sampler", sampler, (*GOAL_SAMPLERS, "current"))
        return GOAL_SAMPLERS[sampler](self.buffer, self.episodes, index, key, gamma)

    def mixed_goals(
        self,
        ratios: Mapping[str, float],
        rest: str,
        index: TransitionIndex,
        key: Key,
        gamma: float = 0.99,
        path: Sequence[int] = (0,),
    ) -> Array:
        """Goals [B, goal_dim] by several samplers, each with its ratio as probability, else by `rest`.

        Each has a key of its own, whether it is used or not: a ratio that is known while tracing and the same one
        that varies within a population give the same goals.

        With a `path` 0, …, n of several steps, goals are sequences [B, len(path), goal_dim]: what the episode
        achieves so many steps after a goal of `PATH_SAMPLERS`, for which transitions need n more steps, or a goal of
        another sampler, repeated. Transitions without these steps take the next sampler in their place.
        """
        k_mix, k_rest, *keys = jax.random.split(key, 2 + len(ratios))
        u = jax.random.uniform(k_mix, index.position.shape, jnp.float32)
        draw = functools.partial(self._goal_paths, index=index, gamma=gamma, path=path)
        goal = draw(rest, key=k_rest)
        long_enough = index.remaining > path[-1]
        # From the last to the first: each takes over below its cumulative ratio.
        bounds = itertools.accumulate(ratios.values())
        for (name, ratio), until, k_goal in reversed(list(zip(ratios.items(), bounds, keys, strict=True))):
            if is_static(ratio, 0):
                continue
            chosen = u < until
            if len(path) > 1:
                # Transitions near the end fall to later samplers, but to none whose ratio is a traced 0.
                chosen = chosen & (long_enough if name in PATH_SAMPLERS else ratio > 0)
            goal = jnp.where(jnp.expand_dims(chosen, range(1, goal.ndim)), draw(name, key=k_goal), goal)
        return goal

    def _goal_paths(
        self, sampler: str, index: TransitionIndex, key: Key, gamma: float, path: Sequence[int]
    ) -> Array:
        """Goals of one sampler [B, goal_dim], or [B, len(path), goal_dim] for a `path` of several steps."""
        if len(path) == 1:
            return self.sampled_goals(sampler, index, key, gamma)
        if sampler not in PATH_SAMPLERS:
            goal = self.sampled_goals(sampler, index, key, gamma)
            return jnp.broadcast_to(goal[:, None], (len(goal), len(path), goal.shape[-1]))
        if sampler == "current":
            return self.achieved_path(index, path)
        # Equal keys draw equal offsets: goals of the transition i steps later lie i steps after its own.
        left = jnp.maximum(index.remaining - path[-1], 1)
        first = index.replace(remaining=left)

        def later(step: Array) -> Array:
            position = index.position + jnp.minimum(step, index.remaining - left)
            return self.sampled_goals(sampler, first.replace(position=position), key, gamma)

        return jax.vmap(later, out_axes=1)(jnp.asarray(path, jnp.int32))

    def achieved_path(self, index: TransitionIndex, steps: Sequence[int]) -> Array:
        """What the episode achieves so many steps from each state [B, len(steps), goal_dim].

        Past the last stored step, what that one achieves.
        """
        window = jax.tree.map(lambda x: x[:, None], index)
        ahead = jnp.asarray(steps, jnp.int32)
        # A transition stores what its action achieves: one step ahead is its own entry.
        later = self.read(self.buffer.achieved_goal, window, jnp.maximum(ahead - 1, 0))
        return jnp.where((ahead == 0)[:, None], self.achieved_now(index)[:, None], later)

    def waypoints(
        self, index: TransitionIndex, key: Key, gamma: float, radius: float
    ) -> tuple[Array, Array, Array]:
        """A goal of the own future, one on the way there, [B, goal_dim] each, and whether there is a way [B].

        The waypoint lies k steps ahead, P(k) ∝ γ^k, the goal at a uniformly drawn step from there on. Where another
        goal was commanded by then, the commanded one, which was reached before that, takes its place. There is no way
        where the waypoint was achieved for another command, or where two of state, waypoint and goal are within
        `radius`: around a goal an episode goes anywhere.
        """
        k_near, k_far = jax.random.split(key)
        near = geometric_offset(k_near, index.remaining, gamma)
        far = jax.random.randint(k_far, near.shape, near, index.remaining + 1, jnp.int32)
        commanded = self.read(self.buffer.goal, index)

        def for_the_same(offset: Array) -> Array:
            return jnp.all(self.read(self.buffer.goal, index, offset - 1) == commanded, axis=-1)

        def achieved(offset: Array) -> Array:
            return self.read(self.buffer.achieved_goal, index, offset - 1)

        now, waypoint = self.achieved_now(index), achieved(near)
        goal = jnp.where(for_the_same(far)[:, None], achieved(far), commanded)
        apart = (
            self.env.distance(*pair) > radius for pair in itertools.combinations((now, waypoint, goal), 2)
        )
        return goal, waypoint, functools.reduce(jnp.logical_and, apart, for_the_same(near))

    def states(self, index: TransitionIndex, offset: Array | int = 0) -> Array:
        """States [B, state_dim], `offset` steps later in the same episode."""
        return self.read(self.buffer.state, index, offset)

    def achieved_now(self, index: TransitionIndex) -> Array:
        """Achieved goals [B, goal_dim] of the states themselves, before their actions."""
        return self.env.achieved(self.states(index))

    def actions(self, index: TransitionIndex, count: int = 1) -> Array:
        """`count` consecutive actions [B, count · action_dim] from each transition on.

        Where the episode has fewer stored, the last one is repeated: see `whole`.
        """
        if count == 1:
            return self.read(self.buffer.action, index)
        return jnp.concatenate([self.read(self.buffer.action, index, i) for i in range(count)], axis=-1)

    def whole(self, index: TransitionIndex, count: int) -> Array:
        """[B] bool: `count` transitions of the episode are stored from here on."""
        return index.remaining >= count

    def with_whole_chunks(self, index: TransitionIndex, count: int) -> TransitionIndex:
        """The transitions, those with fewer than `count` of their episode left moved back until there are so many.

        An episode that is shorter than that leaves them where they are.
        """
        short = jnp.maximum(count - index.remaining, 0)
        position = jnp.maximum(index.position - short, 0)
        remaining = replay.remaining(self.buffer, self.episodes, position, index.env)
        moved = TransitionIndex(position=position, env=index.env, remaining=remaining)
        whole = (moved.last == index.last) & (remaining >= count)
        return jax.tree.map(lambda new, old: jnp.where(whole, new, old), moved, index)

    def terminates(self, index: TransitionIndex) -> Array:
        """[B] bool: the episode's end is stored, and it is a termination (a fall), no time limit."""
        return self.read(self.buffer.discount, index, index.remaining) == 0

    def goal_distances(self, index: TransitionIndex, goal: Array, horizon: int) -> Array:
        """Distances [B, horizon + 1] to `goal` of what the episode achieves 0, 1, … steps from each state.

        Infinite where the episode is not stored any further.
        """
        steps = jnp.arange(horizon + 1, dtype=jnp.int32)
        window = jax.tree.map(lambda x: x[:, None], index)
        # A transition stores what its action achieves: one step ahead is its own entry.
        achieved = self.read(self.buffer.achieved_goal, window, jnp.maximum(steps - 1, 0))
        later = self.env.distance(achieved, jnp.broadcast_to(goal[:, None], achieved.shape))
        now = self.env.distance(self.achieved_now(index), goal)
        return jnp.where(steps == 0, now[:, None], jnp.where(steps <= window.remaining, later, jnp.inf))

    def nearness(self, index: TransitionIndex, goal: Array, radii: Sequence[float], horizon: int) -> Array:
        """How many of the `radii` around `goal` contain what is achieved 0, 1, … steps ahead: [B, W] int8.

        W is `horizon` + 1, padded with zeros to whole cache lines. Labels are made of this and not of distances:
        a window of a thousand steps is most of what sampling writes and reads.
        """
        width = -(-(horizon + 1) // CACHE_LINE) * CACHE_LINE
        distance = self.goal_distances(index, goal, width - 1)
        inside = sum((distance <= radius).astype(jnp.int8) for radius in radii)
        steps = jnp.arange(width, dtype=jnp.int32)
        return lax.optimization_barrier(jnp.where(steps <= horizon, inside, jnp.int8(0)))

    def first_near(self, index: TransitionIndex, near: Array, horizon: int, dwell: int = 1) -> FirstReach:
        """When each episode first comes near its goal, by `nearness`, and stays for `dwell` steps."""
        return first_near(near > 0, index.remaining, self.terminates(index), horizon, dwell)

    def first_match(
        self, index: TransitionIndex, goal: Array, path: Sequence[int], radius: float, horizon: int
    ) -> FirstReach:
        """When each episode first follows its sequence of goals [B, len(path), goal_dim].

        It does from the step on after which it is within `radius` of each goal at its step of the `path`.
        """
        # The window is most of what is read: it is read once, and shifted for each goal.
        achieved = lax.optimization_barrier(self.achieved_path(index, range(horizon + path[-1] + 1)))
        steps = jnp.arange(horizon + 1, dtype=jnp.int32)

        def inside(place: int, step: int) -> Array:
            later = achieved[:, step : step + horizon + 1]
            distance = self.env.distance(later, jnp.broadcast_to(goal[:, place, None], later.shape))
            return (distance <= radius) & (steps + step <= index.remaining[:, None])

        follows = jnp.ones((len(goal), horizon + 1), bool)
        for place, step in enumerate(path):
            follows &= inside(place, step)
            if (place + 1) % FUSED_GOALS == 0:
                follows = lax.optimization_barrier(follows)
        return first_near(follows, index.remaining, self.terminates(index), horizon)

    def first_reach(
        self, index: TransitionIndex, goal: Array, radius: float, horizon: int, dwell: int = 1
    ) -> FirstReach:
        """When each episode first comes within `radius` of its goal, and stays for `dwell` steps."""
        return self.first_near(index, self.nearness(index, goal, (radius,), horizon), horizon, dwell)

    def batch(self, index: TransitionIndex, goal: Array, chunk: int = 1, gamma: float = 1.0) -> Batch:
        """The transitions [B] for `goal` [B, goal_dim] in place of the commanded one; see `Batch`."""
        taken = jnp.minimum(index.remaining, chunk)
        follows = index.remaining > chunk
        discount = self.read(self.buffer.discount, index, chunk - 1)
        whole = follows | (discount == 0)
        if chunk > 1:
            discount = discount * jnp.power(jnp.asarray(gamma, jnp.float32), chunk - 1)
        state = self.states(index)
        return Batch(
            obs=Obs(state=state, goal=goal),
            action=self.actions(index, chunk),
            next_obs=Obs(state=self.states(index, chunk), goal=goal),
            reward=functools.reduce(
                jnp.add, (self._reward(index, goal, i, gamma, taken) for i in range(chunk))
            ),
            discount=discount,
            weight=whole.astype(jnp.float32),
            steps_to_termination=self.steps_to_termination(index),
        )

    def steps_to_termination(self, index: TransitionIndex) -> Array:
        """[B] float32: steps to the end of an episode that terminates, this one included; else infinite."""
        return jnp.where(self.terminates(index), index.remaining.astype(jnp.float32), jnp.inf)

    def _reward(self, index: TransitionIndex, goal: Array, offset: int, gamma: float, taken: Array) -> Array:
        """γ^offset times the reward of the action `offset` steps on, for another goal; 0 past the end."""
        achieved = self.read(self.buffer.achieved_goal, index, offset)
        if self.env.shaping is None:
            reward = self.env.reward(achieved, goal)
        else:
            # The stored reward loses the shaping of the old goal and gains that of the new one.
            state = self.states(index, offset)
            old = self.env.shaping(state, achieved, self.read(self.buffer.goal, index, offset))
            stored = self.read(self.buffer.reward, index, offset)
            reward = stored - old + self.env.shaping(state, achieved, goal)
        reward = reward.astype(jnp.float32)
        return reward if offset == 0 else jnp.where(offset < taken, gamma**offset * reward, 0.0)


def first_near(
    inside: Array, remaining: Array, terminates: Array, horizon: int, dwell: int = 1
) -> FirstReach:
    """First-reach times from whether the goal is near 0, 1, … steps ahead [B, ≥ horizon + 1]."""
    held = 1
    while held < dwell:
        # Inside for so many steps, and for so many more later on.
        more = min(held, dwell - held)
        inside = inside & jnp.pad(inside, ((0, 0), (0, more)))[:, more:]
        held += more
    steps = jnp.arange(inside.shape[1], dtype=jnp.int32)
    first = jnp.min(jnp.where(inside, steps, horizon + 1), axis=1)
    reached = first <= horizon
    observed = jnp.minimum(remaining, horizon)
    return FirstReach(
        steps=jnp.where(reached, first, observed),
        reached=reached,
        terminated=~reached & terminates & (remaining <= horizon),
    )
