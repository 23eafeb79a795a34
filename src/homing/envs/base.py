"""The batched environment: `reset`, `step`, auto-reset, rewards and metrics."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp

from homing.bounds import check_value
from homing.envs import reset_pool
from homing.envs.geodesic import shortest_paths
from homing.envs.goal_groups import GoalGroups, goal_groups
from homing.envs.info import EnvInfo, check_reward, check_shapes, describe
from homing.envs.part_checks import check_spec
from homing.envs.renewal import next_goals
from homing.envs.scene import EnvSpec, Scene
from homing.envs.tasks.base import point_distances
from homing.errors import ConfigError
from homing.types import Array, EnvState, Key, Metrics, Obs

__all__ = ["EnvInfo", "GoalEnv"]

DIVERGED = 1e4  # metres, radians or their rates, which no robot reaches while its simulation is sound


class GoalEnv:
    """N parallel environments with auto-reset.

    `reset` and `step` are pure functions: they can be jitted, scanned and vmapped over seeds.
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
        self.id = id
        self.num_envs = check_value("num_envs", num_envs)
        self.episode_length = check_value("episode_length", episode_length)
        check_spec(spec)
        spec.goals.check()
        check_reward(id, spec, reward)
        self.task, self.dense = spec.task, spec.body.dense
        self.reward_kind, self.restarts = reward, True
        self._paths = shortest_paths(spec.arena) if reward == "dense" and self.dense.geodesic else None
        self.scene = Scene(spec, physics)
        self.interval = reset_pool.interval_for(self.episode_length)
        self._goal = self.scene.indices(spec.task.goal)
        self._hand = self.scene.indices(spec.task.hand)
        self._health = self._health_rule(spec)
        self.spec = describe(id, self.scene, self.episode_length, reward)
        check_shapes(id, self.scene)

    def of_size(self, num_envs: int, restarts: bool = True, episode_length: int | None = None) -> GoalEnv:
        """A copy with another number of environments or episode length; the model is shared.

        Without `restarts` there is no auto-reset, no reset pool and no new goal inside of an episode, which halves
        compilation where only the first episode of each environment counts.
        """
        length = self.episode_length if episode_length is None else episode_length
        other = copy.copy(self)
        other.num_envs, other.restarts = check_value("num_envs", num_envs), restarts
        other.episode_length = check_value("episode_length", length)
        other.interval = reset_pool.interval_for(other.episode_length)
        other.spec = replace(self.spec, episode_length=other.episode_length)
        return other

    # -- public interface -------------------------------------------------------------------------------

    def reset(self, key: Key) -> EnvState:
        """Start an episode in every environment."""
        k_first, k_pool, k_rest = jax.random.split(key, 3)
        keys = [jax.random.split(k_first, self.num_envs)]
        if self.restarts:  # sampled in the same call, so that the reset is compiled once
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
        """Step every environment: action [N, action_dim] in [-1, 1]."""
        state = self.advance(state, action)
        return self._keep_pool(state) if self.restarts else state

    def advance(self, state: EnvState, action: Array) -> EnvState:
        """`step` without refilling the reset pool; the caller calls `refill` at least every `interval` steps.

        On a GPU the conditional in `step` synchronises with the host at every step.
        """
        self._check_action(action)
        state = self._move(state, action)
        return self._restart(self._renew(state)) if self.restarts else state

    def refill(self, state: EnvState) -> EnvState:
        """Sample a new reset pool."""
        key, pool, used = self._fill(state.key, state.pool, state.used)
        return state.replace(key=key, pool=pool, used=used)

    def blocks(self, length: int) -> int:
        """Smallest number of equal blocks of at most `interval` steps in `length`; 0 if blocks would be tiny."""
        fits = (n for n in range(1, length + 1) if length % n == 0 and length // n <= self.interval)
        count = next(fits, 0)
        return count if count and length // count >= min(length, self.interval) / 4 else 0

    def achieved(self, state: Array) -> Array:
        """Achieved goal [..., goal_dim] of a state [..., state_dim]."""
        return state[..., self._goal]

    def distance(self, achieved_goal: Array, goal: Array) -> Array:
        """Distance to the goal [...]; the maximum over points for goals of several points."""
        points = point_distances(achieved_goal, goal, self.task.parts)
        return functools.reduce(jnp.maximum, (points[..., i] for i in range(self.task.parts)))

    def reward(self, achieved_goal: Array, goal: Array) -> Array:
        """Sparse reward [...], 1 within the threshold; also for relabelled goals."""
        return (self.distance(achieved_goal, goal) < self.task.within).astype(jnp.float32)

    @property
    def shaping(self) -> Callable[[Array, Array, Array], Array] | None:
        """Goal-dependent part of the dense reward, `(state, reached, goal) -> [...]`; None for sparse rewards."""
        return self._shaping if self.reward_kind == "dense" else None

    def _shaping(self, state: Array, reached: Array, goal: Array) -> Array:
        """Dense reward [...] for moving from `state` to the achieved goal `reached` under desired goal `goal`."""
        before, after = (self._total(achieved, goal) for achieved in (self.achieved(state), reached))
        return self.dense.progress * (before - after) / self.scene.engine.dt - self.dense.distance * after

    def _total(self, achieved_goal: Array, goal: Array) -> Array:
        """The distance of the dense reward [...], the sum over points for goals of several points."""
        if self._paths is None:
            return jnp.sum(point_distances(achieved_goal, goal, self.task.parts), axis=-1)
        start, end = (x.reshape(*x.shape[:-1], self.task.parts, -1) for x in (achieved_goal, goal))
        along = self._paths(start[..., :2], end[..., :2])
        above = jnp.sum(jnp.square(start[..., 2:] - end[..., 2:]), axis=-1)
        return jnp.sum(jnp.sqrt(jnp.square(along) + above), axis=-1)

    def next_goals(self, key: Key, achieved_goal: Array) -> Array:
        """New goals [N, goal_dim] for robots under way, from where they are in environments that start anywhere."""
        return next_goals(self.task, self.scene.spec.arena, key, achieved_goal)

    @property
    def splits_episodes(self) -> bool:
        """Whether replay treats steps with another commanded goal as another episode."""
        return self.scene.spec.goals.split

    @property
    def goal_groups(self) -> GoalGroups:
        """Groups of goals by which evaluations are broken down."""
        return goal_groups(self.scene.spec)

    def seed_axes(self) -> EnvState:
        """`in_axes` for `jax.vmap` over seeds: every field is per seed except the clock.

        Vmapping the clock too works, but refills the reset pool at every step: a `cond` with a batched
        predicate executes both branches.
        """
        fields = EnvState.__dataclass_fields__
        axes: dict[str, int | None] = {name: None if name == "clock" else 0 for name in fields}
        return EnvState(**axes)  # type: ignore[arg-type]  # a pytree of axes, not of arrays

    # -- internals --------------------------------------------------------------------------------------

    def _move(self, state: EnvState, action: Array) -> EnvState:
        """Advance physics, observation, reward and episode ends, without auto-reset."""
        ctrl = self.scene.control(state.physics, jnp.clip(action, -1.0, 1.0))
        physics = self.scene.engine.step(state.physics, ctrl)
        reached = self.scene.observe(physics, ctrl)
        # A diverged simulation terminates its episode; its state is replaced by the previous one. Numbers grow before
        # they overflow: in replay, such states would make losses overflow instead.
        broken = ~jnp.all(jnp.abs(reached) < DIVERGED, axis=-1)
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

    def _renew(self, state: EnvState) -> EnvState:
        """Command a new goal where one is due; `next_obs` keeps the goal that the last action was for."""
        options = self.scene.spec.goals
        if options.renew is None:
            return state
        k_next, k_goals, k_due = jax.random.split(state.key, 3)
        due = options.due(k_due, state.steps, state.metrics["success"])
        goals = self.next_goals(k_goals, state.achieved_goal)
        goal = reset_pool.where_envs(due, goals, state.obs.goal)
        return state.replace(obs=state.obs.replace(goal=goal), key=k_next)

    def _restart(self, state: EnvState) -> EnvState:
        """Reset the environments whose episode has ended."""
        rows, used = reset_pool.choose(state.ended, state.pool, state.used)
        fresh = reset_pool.unpack(rows, reset_pool.Start(state.physics, state.obs.state, state.obs.goal))
        return state.replace(
            physics=reset_pool.where_envs(state.ended, fresh.physics, state.physics),
            obs=reset_pool.where_envs(state.ended, Obs(fresh.state, fresh.goal), state.obs),
            steps=jnp.where(state.ended, 0, state.steps),
            used=used,
        )

    def _sample_resets(self, keys: Key) -> reset_pool.Start:
        """Initial states and goals [P, ...], one for each key [P]."""
        q, qd, goal = jax.vmap(self.scene.sample_reset)(keys)
        physics = self.scene.engine.init(q, qd)
        return reset_pool.Start(physics, self.scene.observe(physics, self.scene.still(physics)), goal)

    def _keep_pool(self, state: EnvState) -> EnvState:
        """Refill the reset pool every `interval` steps."""
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
        """Metrics of one step, each [N]."""
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

    def _check_action(self, action: Array) -> None:
        """Refuse actions of another shape, which would broadcast over environments or actuators."""
        expected = (self.num_envs, self.spec.action_dim)
        if jnp.shape(action) != expected:
            raise ConfigError(
                f"{self.id}: actions have shape {jnp.shape(action)}; "
                f"they must have shape (num_envs, action_dim) = {expected}"
            )
