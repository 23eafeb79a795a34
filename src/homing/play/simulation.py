"""One environment with one policy, stepped interactively: compiled once, then faster than real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.data.rollout import ActionPlan, after_step, first_plan, next_actions
from homing.envs.goal_space import GoalSpace, goal_space
from homing.envs.reset_pool import STARTS_PER_ENV
from homing.types import Array, EnvState, Key
from homing.viz.critic_map import value_function
from homing.viz.render import aimed
from homing.viz.video import Actor

MAP_SIZE = 48  # cells along the longer side of the critic map
WARM_STEPS = 20  # steps over which the time of a step is measured

Arrays = tuple[Array, ...]
"""The fields of a Snapshot, on the device."""
Carry = tuple[EnvState, ActionPlan | None]


@dataclass(frozen=True)
class Snapshot:
    """What is shown of the environment after a step."""

    pos: np.ndarray  # [L, 3]
    rot: np.ndarray  # [L, 4]
    achieved: np.ndarray  # [goal_dim]
    state: np.ndarray  # [state_dim]
    distance: float
    reached: bool
    terminated: bool
    """The episode terminated, and this is the first state of the next one."""

    @property
    def is_finite(self) -> bool:
        """False once the physics has diverged."""
        return bool(np.isfinite(self.pos).all() and np.isfinite(self.state).all())


class Simulation:
    """An actor, its one environment, and the current goal."""

    def __init__(self, actor: Actor, seed: int = 0):
        self.actor, self.env, self.learner = actor, actor.env, actor.learner
        self.space: GoalSpace = goal_space(self.env)
        self.space.free_points()  # kept, so that goals on walls are moved without a delay
        self.dt = float(self.env.spec.dt)
        self._key = jax.random.key(seed)
        self._reset, self._step, self._push = self._compiled()
        self.steps = self.draws = self.terminations = 0
        self.goal = self.space.template
        self.sample_goal()
        self.reset()
        self.step_seconds = self._measured()

    # Commands.

    def reset(self) -> Snapshot:
        """Start a new episode with the same goal."""
        self.draws += 1
        self.state, arrays = self._reset(jax.random.fold_in(self._key, self.draws), self.goal)
        self.plan = self._first_plan()
        self.snapshot = _snapshot(arrays)
        return self.snapshot

    def step(self) -> Snapshot:
        """One step of the policy towards the goal."""
        self.steps += 1
        carry = (self.state, self.plan)
        (self.state, self.plan), arrays = self._step(
            self.learner, carry, self.goal, self._key, np.int32(self.steps)
        )
        self.snapshot = _snapshot(arrays)
        self.terminations += self.snapshot.terminated
        if self.snapshot.terminated and self.terminations % STARTS_PER_ENV == 0:
            self.reset()  # the environment's reset pool is used up
        return self.snapshot

    def set_goal(self, xy: tuple[float, ...], part: int = 0) -> np.ndarray:
        """Move one point of the goal to x, y or x, y, z, or to the nearest free position."""
        self.goal = self.space.moved(self.goal, xy, part)
        return self.goal

    def sample_goal(self) -> np.ndarray:
        """Draw a goal from the task's distribution."""
        self.draws += 1
        spec = self.env.scene.spec
        self.goal = np.asarray(spec.task.draw(jax.random.fold_in(self._key, self.draws), spec.arena).goal)
        return self.goal

    def push(self, direction: tuple[float, float], speed: float) -> Snapshot:
        """Add to velocities at once: the whole robot's along the floor, or those of an arm's joints."""
        delta = np.zeros(self.env.scene.engine.layout.qd_size, np.float32)
        if self.has_planar_root:
            delta[:2] = speed * np.asarray(direction) / max(float(np.linalg.norm(direction)), 1e-6)
        else:
            delta[: self.env.scene.body_qd] = speed * (1.0 if direction[0] >= 0 else -1.0)
        self.state, arrays = self._push(self.state, delta)
        self.snapshot = _snapshot(arrays)
        return self.snapshot

    # Queries.

    @cached_property
    def has_planar_root(self) -> bool:
        """Whether the first two coordinates move the whole robot along x and y."""
        engine = self.env.scene.engine
        q = np.tile(engine.layout.init_q, (3, 1))
        q[1, 0] += 1.0
        q[2, 1] += 1.0
        links = jax.jit(lambda q, qd: engine.links(engine.init(q, qd)).pos)
        pos = np.asarray(links(q, np.zeros((3, engine.layout.qd_size), np.float32)))
        root = engine.layout.links.index(self.env.scene.spec.body.root)
        return bool(np.allclose(pos[1:, root] - pos[0, root], np.eye(3)[:2], atol=1e-3))

    @cached_property
    def has_critic(self) -> bool:
        return self.actor.policies is not None and self.actor.policies.agent.has_critic

    @cached_property
    def _values(self) -> Callable[..., Array]:
        return value_function(self.actor, "goals")

    def critic_values(self) -> np.ndarray:
        """The critic's value of each goal on the floor from the current state [rows, columns]."""
        goals = self.space.grid(MAP_SIZE)
        return np.asarray(self._values(self.learner, self.snapshot.state, goals, self.goal))

    # Compiled functions.

    def _compiled(self) -> list[Callable[..., Any]]:
        """Reset, step and push, compiled in parallel."""
        shape = lambda *size: jax.ShapeDtypeStruct(size, jnp.float32)
        key, count = jax.eval_shape(lambda: self._key), jax.ShapeDtypeStruct((), jnp.int32)
        goal, delta = shape(len(self.space.template)), shape(self.env.scene.engine.layout.qd_size)
        state = jax.eval_shape(self._reset_fn, key, goal)[0]
        plan = jax.eval_shape(self._first_plan)
        calls = [
            (self._reset_fn, key, goal),
            (self._step_fn, self.learner, (state, plan), goal, key, count),
            (self._push_fn, state, delta),
        ]
        with ThreadPoolExecutor() as pool:
            return list(pool.map(lambda call: jax.jit(call[0]).lower(*call[1:]).compile(), calls))

    def _observed(self, state: EnvState, terminated: Array) -> Arrays:
        links = self.env.scene.engine.links(state.physics)
        achieved = self.env.achieved(state.obs.state)
        distance = self.env.distance(achieved, state.obs.goal)
        reached = distance[0] < self.env.task.within
        return links.pos[0], links.rot[0], achieved[0], state.obs.state[0], distance[0], reached, terminated

    def _reset_fn(self, key: Key, goal: Array) -> tuple[EnvState, Arrays]:
        state = aimed(self.env.reset(key), goal)
        return state, self._observed(state, jnp.zeros((), bool))

    def _step_fn(
        self, learner: Any, carry: Carry, goal: Array, key: Key, count: Array
    ) -> tuple[Carry, Arrays]:
        state, plan = carry
        state = aimed(state, goal)
        proposed = self.actor.act(learner, state.obs, jax.random.fold_in(key, count))
        action, plan = next_actions(plan, proposed)
        after = self.env.advance(state, action)
        terminated = after.ended
        after = aimed(after, goal)
        return (after, after_step(plan, terminated)), self._observed(after, terminated[0])

    def _push_fn(self, state: EnvState, delta: Array) -> tuple[EnvState, Arrays]:
        engine = self.env.scene.engine
        physics = engine.init(engine.q(state.physics), engine.qd(state.physics) + delta)
        observation = self.env.scene.observe(physics, self.env.scene.still(physics))
        state = state.replace(physics=physics, obs=state.obs.replace(state=observation))
        return state, self._observed(state, jnp.zeros((), bool))

    def _first_plan(self) -> ActionPlan | None:
        return first_plan(self.env.num_envs, self.actor.chunk, self.env.spec.action_dim)

    def _measured(self) -> float:
        """Median seconds of a compiled step; the environment is reset afterwards."""
        self.step()
        times = []
        for _ in range(WARM_STEPS):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        self.reset()
        return float(np.median(times))


def _snapshot(arrays: Arrays) -> Snapshot:
    pos, rot, achieved, state, distance, reached, terminated = (np.asarray(x) for x in arrays)
    return Snapshot(pos, rot, achieved, state, float(distance), bool(reached), bool(terminated))
