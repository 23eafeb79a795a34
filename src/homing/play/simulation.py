"""One robot in one environment, a step at a time: compiled once, then far quicker than life."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.data.rollout import after_step, first_plan, next_actions
from homing.envs.goal_space import GoalSpace, goal_space
from homing.envs.reset_pool import STARTS_PER_ENV
from homing.types import Array, EnvState, Key
from homing.viz.critic_map import Scale, scale_of, value_function
from homing.viz.render import aimed
from homing.viz.video import Actor

MAP_SIZE = 48  # squares along the longer side of the critic's map
WARM_STEPS = 20  # on which the time of a step is measured


@dataclass(frozen=True)
class Moment:
    """What is seen after a step."""

    pos: np.ndarray  # [L, 3]
    rot: np.ndarray  # [L, 4]
    achieved: np.ndarray  # [goal_dim]
    state: np.ndarray  # [state_dim]
    distance: float
    reached: bool
    fell: bool
    """The episode ended by its own rules, and this is the start of a new one."""


class Simulation:
    """An actor, its one environment, and the goal that a person chooses."""

    def __init__(self, actor: Actor, seed: int = 0):
        self.actor, self.env, self.learner = actor, actor.env, actor.learner
        self.space: GoalSpace = goal_space(self.env)
        self.dt = float(self.env.spec.dt)
        self._key = jax.random.key(seed)
        self._reset, self._step, self._push = self._compiled()
        self.steps = self.starts = self.falls = 0
        self.goal = self.space.template
        self.new_goal()
        self.restart()
        self.step_seconds = self._measured()

    # What a person does.

    def restart(self) -> Moment:
        """A new start; the goal stays where it is."""
        self.starts += 1
        self.state, shot = self._reset(jax.random.fold_in(self._key, self.starts), self.goal)
        self.plan = self._first_plan()
        self.moment = _moment(shot)
        return self.moment

    def step(self) -> Moment:
        """One step of the policy towards the goal."""
        self.steps += 1
        carry = (self.state, self.plan)
        (self.state, self.plan), shot = self._step(
            self.learner, carry, self.goal, self._key, np.int32(self.steps)
        )
        self.moment = _moment(shot)
        self.falls += self.moment.fell
        if self.moment.fell and self.falls % STARTS_PER_ENV == 0:
            self.restart()  # the environment's ready starts are used up
        return self.moment

    def aim(self, xy: tuple[float, float], part: int = 0) -> np.ndarray:
        """Move one point of the goal to a place, or to the free ground nearest to it."""
        self.goal = self.space.at(self.space.nearest_free(xy), part, self.goal)
        return self.goal

    def new_goal(self) -> np.ndarray:
        """A goal as the task draws them."""
        self.starts += 1
        spec = self.env.scene.spec
        self.goal = np.asarray(spec.task.draw(jax.random.fold_in(self._key, self.starts), spec.arena).goal)
        return self.goal

    def push(self, direction: tuple[float, float], speed: float) -> Moment:
        """Change velocities at once: of the whole robot along the floor, or of an arm's joints."""
        kick = np.zeros(self.env.scene.engine.layout.qd_size, np.float32)
        if self.slides:
            kick[:2] = speed * np.asarray(direction) / max(float(np.linalg.norm(direction)), 1e-6)
        else:
            kick[: self.env.scene.body_qd] = speed * np.resize(
                np.sign(direction) + (np.sign(direction) == 0), 1
            )
        self.state, shot = self._push(self.state, kick)
        self.moment = _moment(shot)
        return self.moment

    # What the page asks.

    @cached_property
    def slides(self) -> bool:
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
    def scale(self) -> Scale:
        return scale_of(self.actor.policies.settings if self.actor.policies else None)

    @cached_property
    def _values(self) -> Any:
        return value_function(self.actor, "goals")

    def critic(self) -> np.ndarray:
        """What the critic thinks of every goal on the floor from here [rows, columns]; high is near."""
        places = self.space.grid(MAP_SIZE)
        return np.asarray(self._values(self.learner, self.moment.state, places, self.goal))

    # Compiled parts.

    def _compiled(self) -> tuple[Any, Any, Any]:
        """Reset, step and push, compiled side by side."""
        shape = lambda *size: jax.ShapeDtypeStruct(size, jnp.float32)
        key, count = jax.eval_shape(lambda: self._key), jax.ShapeDtypeStruct((), jnp.int32)
        goal, kick = shape(len(self.space.template)), shape(self.env.scene.engine.layout.qd_size)
        state = jax.eval_shape(self._start, key, goal)[0]
        wanted = [
            (self._start, key, goal),
            (self._advance, self.learner, (state, jax.eval_shape(self._first_plan)), goal, key, count),
            (self._kicked, state, kick),
        ]
        with ThreadPoolExecutor() as pool:
            made = [pool.submit(lambda fn, *args: jax.jit(fn).lower(*args).compile(), *w) for w in wanted]
            reset, step, push = (future.result() for future in made)
        return reset, step, push

    def _shot(self, state: EnvState, fell: Array) -> tuple[Array, ...]:
        links = self.env.scene.engine.links(state.physics)
        achieved = self.env.achieved(state.obs.state)
        distance = self.env.distance(achieved, state.obs.goal)
        return (
            links.pos[0],
            links.rot[0],
            achieved[0],
            state.obs.state[0],
            distance[0],
            self._near(distance),
            fell,
        )

    def _near(self, distance: Array) -> Array:
        return distance[0] < self.env.task.within

    def _start(self, key: Key, goal: Any) -> tuple[EnvState, tuple[Array, ...]]:
        state = aimed(self.env.reset(key), goal)
        return state, self._shot(state, jnp.zeros((), bool))

    def _advance(
        self, learner: Any, carry: tuple[EnvState, Any], goal: Array, key: Key, count: Array
    ) -> tuple[tuple[EnvState, Any], tuple[Array, ...]]:
        state, plan = carry
        state = aimed(state, goal)
        proposed = self.actor.act(learner, state.obs, jax.random.fold_in(key, count))
        action, plan = next_actions(plan, proposed)
        after = self.env.advance(state, action)
        fell = after.ended
        after = aimed(after, goal)
        return (after, after_step(plan, fell)), self._shot(after, fell[0])

    def _first_plan(self) -> Any:
        return first_plan(self.env.num_envs, self.actor.chunk, self.env.spec.action_dim)

    def _kicked(self, state: EnvState, kick: Array) -> tuple[EnvState, tuple[Array, ...]]:
        engine = self.env.scene.engine
        physics = engine.init(engine.q(state.physics), engine.qd(state.physics) + kick)
        still = jnp.zeros((1, engine.layout.act_size), jnp.float32)
        seen = self.env.scene.observe(physics, still)
        state = state.replace(physics=physics, obs=state.obs.replace(state=seen))
        return state, self._shot(state, jnp.zeros((), bool))

    def _measured(self) -> float:
        """Seconds that a step takes once compiled: the median of a few, which are then taken back."""
        self.step()
        times = []
        for _ in range(WARM_STEPS):
            begin = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - begin)
        self.restart()
        return float(np.median(times))


def _moment(shot: tuple[Array, ...]) -> Moment:
    pos, rot, achieved, state, distance, reached, fell = (np.asarray(x) for x in shot)
    return Moment(pos, rot, achieved, state, float(distance), bool(reached), bool(fell))
