"""The environment: the only `reset` and `step` there are."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.envs import reset_pool
from homing.envs.scene import EnvSpec, Scene, tuned_as
from homing.envs.tasks.base import point_distances
from homing.errors import ConfigError, unknown
from homing.types import Array, EnvState, Key, Metrics, Obs

REWARDS = ("sparse", "dense")


@dataclass(frozen=True)
class EnvInfo:
    """Facts of an environment, for programs and for people."""

    id: str
    body: str
    task: str
    arena: str
    physics: str
    state_dim: int
    goal_dim: int
    action_dim: int
    goal_indices: tuple[int, ...]
    state_names: tuple[str, ...]
    goal_names: tuple[str, ...]
    threshold: float
    dt: float
    timestep: float
    frames: int
    episode_length: int
    ends_early: bool
    reward: str


class GoalEnv:
    """N copies of one environment, stepped together; an ended episode is followed by a new one at once.

    Pure functions of their arguments: `reset` and `step` can be jitted, scanned and vmapped over seeds.
    """

    def __init__(
        self,
        id: str,
        spec: EnvSpec,
        num_envs: int,
        episode_length: int = 1000,
        physics: str | None = None,
        reward: str = "sparse",
    ):
        check_size("num_envs", num_envs)
        check_size("episode_length", episode_length)
        if reward not in REWARDS:
            raise unknown("reward", reward, REWARDS)
        if reward == "dense" and not (spec.body.dense.progress or spec.body.dense.distance):
            raise ConfigError(
                f"the body of {id}, {spec.body.name}, defines no dense reward; use the sparse one"
            )
        self.id, self.num_envs, self.episode_length = id, int(num_envs), int(episode_length)
        self.task, self.dense = spec.task, spec.body.dense
        self.reward_kind, self.restarts = reward, True
        self.scene = Scene(spec, physics)
        self.interval = reset_pool.interval_for(self.episode_length)
        self._goal = self.scene.indices(spec.task.goal)
        self._hand = self.scene.indices(spec.task.hand)
        self._health = self._health_rule(spec)
        self.spec = self._info(spec)
        self._check_goal_size()

    def of_size(self, num_envs: int, restarts: bool = True, episode_length: int | None = None) -> GoalEnv:
        """The same environment with other numbers of lanes and steps; its model is not loaded again.

        Without `restarts` lanes stay where their first episode ended, and no starts are dealt for others:
        half a program less to compile where only first episodes count.
        """
        length = self.episode_length if episode_length is None else episode_length
        check_size("num_envs", num_envs)
        check_size("episode_length", length)
        other = copy.copy(self)
        other.num_envs, other.restarts, other.episode_length = int(num_envs), restarts, int(length)
        other.interval = reset_pool.interval_for(other.episode_length)
        other.spec = replace(self.spec, episode_length=other.episode_length)
        return other

    # -- the interface ----------------------------------------------------------------------------------

    def reset(self, key: Key) -> EnvState:
        """A new batch in which every lane starts an episode."""
        k_first, k_pool, k_rest = jax.random.split(key, 3)
        keys = [jax.random.split(k_first, self.num_envs)]
        if self.restarts:  # dealt together: apart it would be as much to compile again
            keys += [jax.random.split(k_pool, reset_pool.STARTS_PER_ENV * self.num_envs)]
        starts = self._sample_resets(jnp.concatenate(keys))
        first = jax.tree.map(lambda x: x[: self.num_envs], starts)
        obs = Obs(first.state, first.goal)
        achieved = self.achieved(first.state)
        zeros = jnp.zeros((self.num_envs,), jnp.float32)
        never = jnp.zeros((self.num_envs,), bool)
        return EnvState(
            physics=first.physics,
            obs=obs,
            next_obs=obs,
            achieved_goal=achieved,
            reward=zeros,
            terminated=never,
            truncated=never,
            metrics=self._metrics(achieved, first.goal),
            steps=jnp.zeros((self.num_envs,), jnp.int32),
            pool=reset_pool.pack(starts)[self.num_envs :],
            used=jnp.zeros((self.num_envs,), jnp.int32),
            key=k_rest,
            clock=jnp.zeros((), jnp.int32),
        )

    def step(self, state: EnvState, action: Array) -> EnvState:
        """Act in every lane: action [N, action_dim] in [-1, 1]."""
        state = self.advance(state, action)
        return self._keep_pool(state) if self.restarts else state

    def advance(self, state: EnvState, action: Array) -> EnvState:
        """`step`, for loops that `refill` the starts themselves, at least every `interval` steps.

        On a GPU the branch in `step` asks the host at every step whether it is time.
        """
        self._check_action(action)
        state = self._move(state, action)
        return self._restart(state) if self.restarts else state

    def refill(self, state: EnvState) -> EnvState:
        """Deal new starts for the episodes to come."""
        key, pool, used = self._fill(state.key, state.pool, state.used)
        return state.replace(key=key, pool=pool, used=used)

    def blocks(self, length: int) -> int:
        """The fewest equal parts of `length` steps that are no longer than `interval`; 0 if all are tiny."""
        fits = (n for n in range(1, length + 1) if length % n == 0 and length // n <= self.interval)
        count = next(fits, 0)
        return count if count and length // count >= min(length, self.interval) / 4 else 0

    def achieved(self, state: Array) -> Array:
        """[..., goal_dim]: the entries of a state [..., state_dim] that goals are about."""
        return state[..., self._goal]

    def distance(self, achieved_goal: Array, goal: Array) -> Array:
        """[...]: how far a goal is; of several points the farthest counts."""
        return jnp.max(point_distances(achieved_goal, goal, self.task.parts), axis=-1)

    def reward(self, achieved_goal: Array, goal: Array) -> Array:
        """[...]: the sparse reward, 1 within the threshold, for relabelled goals."""
        return (self.distance(achieved_goal, goal) < self.task.within).astype(jnp.float32)

    @property
    def shaping(self) -> Callable[[Array, Array, Array], Array] | None:
        """The part of the dense reward that depends on the goal; None where the reward is sparse."""
        return self._shaping if self.reward_kind == "dense" else None

    def _shaping(self, state: Array, reached: Array, goal: Array) -> Array:
        """[...]: what leading from a state to the achieved goal `reached` is worth if `goal` was wanted."""
        before, after = (self._total(achieved, goal) for achieved in (self.achieved(state), reached))
        return self.dense.progress * (before - after) / self.scene.engine.dt - self.dense.distance * after

    def _total(self, achieved_goal: Array, goal: Array) -> Array:
        return jnp.sum(point_distances(achieved_goal, goal, self.task.parts), axis=-1)

    def seed_axes(self) -> Any:
        """Axes for `jax.vmap` over seeds: all of a state is per seed, save the clock.

        Vmapping a whole state works too, but then the pool is filled at every step: a branch whose condition
        is batched runs always.
        """
        fields = EnvState.__dataclass_fields__
        axes: dict[str, Any] = {name: None if name == "clock" else 0 for name in fields}
        return EnvState(**axes)

    # -- parts ------------------------------------------------------------------------------------------

    def _move(self, state: EnvState, action: Array) -> EnvState:
        """The step itself; ended episodes are left where they ended."""
        ctrl = self.scene.spec.body.control(self.scene.engine, jnp.clip(action, -1.0, 1.0))
        physics = self.scene.engine.step(state.physics, ctrl)
        reached = self.scene.observe(physics, ctrl)
        # A simulation that blew up ends its episode, and what it computed is not shown.
        broken = ~jnp.all(jnp.isfinite(reached), axis=-1)
        reached = reset_pool.where_envs(broken, state.obs.state, reached)
        achieved = self.achieved(reached)
        metrics = self._metrics(achieved, state.obs.goal)
        steps = state.steps + 1
        terminated = broken | self._fallen(reached)
        after = Obs(reached, state.obs.goal)
        return state.replace(
            physics=physics,
            obs=after,
            next_obs=after,
            achieved_goal=achieved,
            reward=self._reward(state.obs, reached, ctrl, metrics),
            terminated=terminated,
            truncated=(steps >= self.episode_length) & ~terminated,
            metrics=metrics,
            steps=steps,
            clock=state.clock + 1,
        )

    def _restart(self, state: EnvState) -> EnvState:
        """Start a new episode in every lane whose episode has ended."""
        rows, used = reset_pool.choose(state.ended, state.pool, state.used)
        fresh = reset_pool.unpack(rows, reset_pool.Start(state.physics, state.obs.state, state.obs.goal))
        return state.replace(
            physics=reset_pool.where_envs(state.ended, fresh.physics, state.physics),
            obs=reset_pool.where_envs(state.ended, Obs(fresh.state, fresh.goal), state.obs),
            steps=jnp.where(state.ended, 0, state.steps),
            used=used,
        )

    def _sample_resets(self, keys: Key) -> reset_pool.Start:
        """A fresh start, with its goal, for each of the keys [P]."""
        q, qd, goal = jax.vmap(self.scene.sample_reset)(keys)
        physics = self.scene.engine.init(q, qd)
        still = jnp.zeros((len(keys), self.scene.engine.layout.act_size), jnp.float32)
        return reset_pool.Start(physics, self.scene.observe(physics, still), goal)

    def _keep_pool(self, state: EnvState) -> EnvState:
        """Fill the pool of starts again when it is time."""
        due = state.clock % self.interval == 0
        key, pool, used = jax.lax.cond(due, self._fill, lambda *same: same, state.key, state.pool, state.used)
        return state.replace(key=key, pool=pool, used=used)

    def _fill(self, key: Key, pool: Array, used: Array) -> tuple[Key, Array, Array]:
        k_next, k_pool = jax.random.split(key)
        return (
            k_next,
            reset_pool.pack(self._sample_resets(jax.random.split(k_pool, len(pool)))),
            jnp.zeros_like(used),
        )

    def _metrics(self, achieved: Array, goal: Array) -> Metrics:
        """What is reported of every step, each [N]."""
        points = point_distances(achieved, goal, self.task.parts)
        distance = jnp.max(points, axis=-1)
        limits = {"success": self.task.within, **self.task.margins}
        metrics = {name: (distance < limit).astype(jnp.float32) for name, limit in limits.items()}
        if self.task.parts > 1:
            metrics["points_reached"] = jnp.sum((points < self.task.within).astype(jnp.float32), axis=-1)
        return {"distance": distance, **metrics}

    def _reward(self, before: Obs, reached: Array, ctrl: Array, metrics: Metrics) -> Array:
        if self.reward_kind == "sparse":
            return metrics["success"]
        weights = self.dense
        reward = weights.alive + self._shaping(before.state, self.achieved(reached), before.goal)
        reward -= weights.control * jnp.sum(jnp.square(ctrl), axis=-1)
        if weights.near and len(self._hand):
            objects = self.achieved(reached).reshape(len(reached), self.task.parts, -1)
            gap = jnp.linalg.norm(objects - reached[:, None, self._hand], axis=-1)
            reward -= weights.near * jnp.mean(gap, axis=-1)
        return reward

    def _health_rule(self, spec: EnvSpec) -> tuple[int, float, float] | None:
        if spec.body.healthy is None:
            return None
        name, low, high = spec.body.healthy
        return int(self.scene.indices((name,))[0]), low, high

    def _fallen(self, state: Array) -> Array:
        if self._health is None:
            return jnp.zeros((len(state),), bool)
        index, low, high = self._health
        return ~((state[:, index] >= low) & (state[:, index] <= high))

    def _info(self, spec: EnvSpec) -> EnvInfo:
        engine = self.scene.engine
        timing = spec.body.pipelines[tuned_as(self.scene.pipeline)]
        return EnvInfo(
            id=self.id,
            body=spec.body.name,
            task=spec.task.name,
            arena=spec.arena.name,
            physics=self.scene.pipeline,
            state_dim=len(self.scene.columns),
            goal_dim=len(self._goal),
            action_dim=engine.layout.act_size,
            goal_indices=tuple(int(i) for i in self._goal),
            state_names=self.scene.columns,
            goal_names=tuple(spec.task.goal),
            threshold=spec.task.within,
            dt=engine.dt,
            timestep=timing.timestep,
            frames=timing.frames,
            episode_length=self.episode_length,
            ends_early=spec.body.healthy is not None,
            reward=self.reward_kind,
        )

    def _check_action(self, action: Array) -> None:
        """Other shapes would broadcast: one action for all environments, or one number for all motors."""
        expected = (self.num_envs, self.spec.action_dim)
        if jnp.shape(action) != expected:
            raise ConfigError(
                f"{self.id}: actions have shape {jnp.shape(action)}; "
                f"they must have shape (num_envs, action_dim) = {expected}"
            )

    def _check_goal_size(self) -> None:
        """Trace one draw, so that parts which do not fit together fail here and not while training."""
        q, _, goal = jax.eval_shape(lambda: self.scene.sample_reset(jax.random.key(0)))
        if goal.shape != (len(self._goal),):
            raise ConfigError(
                f"{self.id}: goals are drawn with {goal.shape[0]} entries, but the task names "
                f"{len(self._goal)} state entries: {', '.join(self.task.goal)}"
            )
        if q.shape != (self.scene.engine.layout.q_size,):
            raise ConfigError(
                f"{self.id}: a start has {q.shape[0]} coordinates, the model has "
                f"{self.scene.engine.layout.q_size}"
            )


def check_size(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ConfigError(f"{name} must be a whole number, not {value!r}")
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, not {value}")
