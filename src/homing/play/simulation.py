"""One environment with one policy, stepped interactively: compiled once, then faster than real time."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile import export_cache
from homing.compile.jitted import lower_arrays
from homing.data.rollout import ActionPlan, after_step, first_plan, next_actions
from homing.envs.goal_space import GoalSpace, goal_space
from homing.envs.goals import Relative
from homing.envs.reset_pool import STARTS_PER_ENV
from homing.types import Array, EnvState, Key
from homing.viz.critic_map import value_function
from homing.viz.render import aimed
from homing.viz.video import Actor

GOAL_CANDIDATES = 64  # goals that are drawn for one that lies at a distance of training
EPISODES = 16  # whose distances between start and goal are looked at
FARTHER = 1.05  # times the largest of them
MAP_SIZE = 48  # cells along the longer side of the critic map
OPTIMISATION = "xla_backend_optimization_level"
SHOWN = 7  # fields of a Snapshot
WARM_STEPS = 20  # steps over which the time of a step is measured

Arrays = tuple[Array, ...]
"""The fields of a Snapshot, on the device."""


class OwnGoal(NamedTuple):
    """The goal that the environment draws with a start, and its distance from there."""

    goal: Array  # [goal_dim]
    distance: Array  # []


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
        # Goals nearer to a wall would have the robot press against it; kept, so that none is moved with a delay.
        self.margin = float(self.env.task.within)
        self.space.free_points(self.margin)
        self.dt = float(self.env.spec.dt)
        self._key = jax.random.key(seed)
        self.goal = np.zeros(self.env.spec.goal_dim, np.float32)
        self._reset, self._step, self._push, self._next_goal = self._compiled()
        self.steps = self.draws = self.terminations = 0
        self.restart()
        self.step_seconds = self._measured()

    # Commands.

    def reset(self) -> Snapshot:
        """Start a new episode with the same goal."""
        self.draws += 1
        *leaves, _, _ = self._reset(self._draw_key(), self.goal)
        self.state, arrays = self._unpacked(leaves)
        self.plan = self._first_plan()
        self.snapshot = _snapshot(arrays)
        return self.snapshot

    def restart(self) -> Snapshot:
        """Start a new episode with a goal of its own, drawn together with the start as in training."""
        # The draw of `reset`, whose own goal is known once it is drawn.
        *_, own, _ = self._reset(jax.random.fold_in(self._key, self.draws + 1), self.goal)
        self.goal = np.asarray(own)
        return self.reset()

    def step(self) -> Snapshot:
        """One step of the policy towards the goal."""
        self.steps += 1
        plan = jax.tree.structure(self.plan)
        leaves = self._step(self.learner, self.state, self.plan, self._aim(), self._key, np.int32(self.steps))
        self.plan = jax.tree.unflatten(plan, leaves[: plan.num_leaves])
        self.state, arrays = self._unpacked(leaves[plan.num_leaves :])
        self.snapshot = self._seen(arrays)
        self.terminations += self.snapshot.terminated
        if self.snapshot.terminated and self.terminations % STARTS_PER_ENV == 0:
            self.reset()  # the environment's reset pool is used up
        return self.snapshot

    def set_goal(self, xy: tuple[float, ...], part: int = 0) -> np.ndarray:
        """Move one point of the goal to x, y or x, y, z, or to the nearest position that is free and in reach."""
        self.goal = self.space.moved(self.goal, xy, part, self.margin)
        self.plan = self._first_plan()  # a new goal begins a new action chunk
        return self.goal

    def sample_goal(self) -> np.ndarray:
        """Draw a goal of the task's distribution, no farther from the robot than goals are in training."""
        self.draws += 1
        (goal,) = self._next_goal(self._draw_key(), self.snapshot.achieved, self.farthest)
        self.goal = np.asarray(goal)
        self.plan = self._first_plan()
        return self.goal

    def _draw_key(self) -> Key:
        return jax.random.fold_in(self._key, self.draws)

    def push(self, direction: tuple[float, float], speed: float) -> Snapshot:
        """Add to velocities at once: the whole robot's along the floor, or those of an arm's joints."""
        delta = np.zeros(self.env.scene.engine.layout.qd_size, np.float32)
        if self.has_planar_root:
            delta[:2] = speed * np.asarray(direction) / max(float(np.linalg.norm(direction)), 1e-6)
        else:
            delta[: self.env.scene.body_qd] = speed * (1.0 if direction[0] >= 0 else -1.0)
        self.state, arrays = self._unpacked(self._push(self.state, delta))
        self.snapshot = self._seen(arrays)
        return self.snapshot

    # Goals that are farther away than those of training.

    def _aim(self) -> np.ndarray:
        return self.space.aim(self.snapshot.achieved, self.goal)

    def _seen(self, arrays: Arrays) -> Snapshot:
        """What is shown, with the distance to the goal itself, whatever the policy aims at."""
        seen = _snapshot(arrays)
        if not np.isfinite(self.space.farthest):
            return seen
        distance = float(np.linalg.norm(seen.achieved - self.goal))
        return replace(seen, distance=distance, reached=distance < self.env.task.within)

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
    def farthest(self) -> np.float32:
        """The largest distance between a start and its goal in a sample of the environment's episodes.

        Found out when a goal is first drawn, so that the page is there sooner.
        """
        keys = jax.random.split(jax.random.fold_in(self._key, 0), EPISODES)
        return np.float32(FARTHER * max(float(self._reset(key, self.goal)[-1]) for key in keys))

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
        """Reset and step, compiled in parallel; push and the draw of a goal, which are compiled while these run."""
        kept = export_cache.store(self._identity())
        shape = lambda *size: jax.ShapeDtypeStruct(size, jnp.float32)
        key, count = jax.eval_shape(lambda: self._key), jax.ShapeDtypeStruct((), jnp.int32)
        goal, delta = shape(len(self.goal)), shape(self.env.scene.engine.layout.qd_size)
        plan = jax.eval_shape(self._first_plan)
        programs: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
            "reset": (self._reset_fn, lambda: (key, goal)),
            "step": (self._step_fn, lambda: (self.learner, self._shapes, plan, goal, key, count)),
            "push": (self._push_fn, lambda: (self._shapes, delta)),
            "goal": (self._next_goal_fn, lambda: (key, goal, shape())),
        }

        def compiled(name: str) -> Callable[..., list[Array]]:
            # All but the step are called now and then, so a fast compilation counts for more than a fast program.
            quick: dict[str, str | bool] = {} if name == "step" else {OPTIMISATION: "0"}
            made = lower_arrays(*programs[name], kept, f"play-{name}").compile(compiler_options=quick)
            return lambda *args: made(*jax.tree.leaves(args))

        with ThreadPoolExecutor() as pool:
            ready = list(pool.map(compiled, ("reset", "step")))
        later = ThreadPoolExecutor()
        waiting = [later.submit(compiled, name) for name in ("push", "goal")]
        later.shutdown(wait=False)
        return [*ready, *(lambda *args, made=made: made.result()(*args) for made in waiting)]

    def _identity(self) -> dict[str, Any]:
        """What the programs follow from, beside the package itself."""
        policies, env = self.actor.policies, self.env
        shapes = jax.tree.map(lambda x: f"{x.shape} {x.dtype}", self.learner)
        return {
            "env": repr(env.scene.spec),
            "physics": (env.spec.id, env.spec.physics, env.episode_length),
            "agent": None if policies is None else (policies.agent_name, repr(policies.settings)),
            "learner": str(jax.tree.leaves(shapes)),
        }

    @cached_property
    def _shapes(self) -> EnvState:
        """The environment's state as shapes; only needed to trace."""
        return jax.eval_shape(self.env.reset, self._key)

    def _unpacked(self, leaves: list[Array]) -> tuple[list[Array], Arrays]:
        """Leaves of a state, and what is shown of it."""
        return leaves[:-SHOWN], tuple(leaves[-SHOWN:])

    def _observed(self, state: EnvState, terminated: Array) -> Arrays:
        links = self.env.scene.engine.links(state.physics)
        achieved = self.env.achieved(state.obs.state)
        distance = self.env.distance(achieved, state.obs.goal)
        reached = distance[0] < self.env.task.within
        return links.pos[0], links.rot[0], achieved[0], state.obs.state[0], distance[0], reached, terminated

    def _reset_fn(self, key: Key, goal: Array) -> tuple[EnvState, Arrays, OwnGoal]:
        """A new episode towards `goal`, what is shown of it, and the goal that was drawn with its start."""
        fresh = self.env.reset(key)
        state = aimed(fresh, goal)
        own = OwnGoal(fresh.obs.goal[0], self.env.distance(fresh.achieved_goal, fresh.obs.goal)[0])
        return state, self._observed(state, jnp.zeros((), bool)), own

    def _next_goal_fn(self, key: Key, achieved: Array, farthest: Array) -> Array:
        """A goal [goal_dim] for a robot that has achieved [goal_dim], at most `farthest` away if possible."""
        goals = self.env.next_goals(key, jnp.tile(achieved, (GOAL_CANDIDATES, 1)))
        if isinstance(getattr(self.env.task, "goals", None), Relative):
            return goals[0]
        distance = self.env.distance(achieved, goals)
        suits = (distance >= self.env.task.within) & (distance <= farthest)
        # Where none suits, the nearest that is not reached yet.
        rank = jnp.where(suits, -jnp.inf, jnp.where(distance < self.env.task.within, jnp.inf, distance))
        return goals[jnp.argmin(rank)]

    def _step_fn(
        self, learner: Any, state: EnvState, plan: ActionPlan | None, goal: Array, key: Key, count: Array
    ) -> tuple[ActionPlan | None, EnvState, Arrays]:
        state = aimed(state, goal)
        proposed = self.actor.act(learner, state.obs, jax.random.fold_in(key, count))
        action, plan = next_actions(plan, proposed)
        after = self.env.advance(state, action)
        terminated = after.ended
        after = aimed(after, goal)
        return after_step(plan, terminated), after, self._observed(after, terminated[0])

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
