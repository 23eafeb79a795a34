"""Trajectories of many episodes, and maps of a critic's values over the floor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from homing.data.rollout import after_step, first_plan, next_actions
from homing.envs.base import GoalEnv
from homing.envs.goal_space import GoalSpace, free_entries, goal_space
from homing.errors import ConfigError
from homing.types import Array, EnvState, Key, Obs
from homing.viz.render import aimed
from homing.viz.video import Actor

Over = Literal["goals", "states"]
GRID = 96  # cells along the longer side of a map
# Energies of a contrastive critic that are negative distances between representations.
DISTANCES = {"l2": "‖φ(s, a) − ψ(g)‖", "l1": "‖φ(s, a) − ψ(g)‖₁", "l2_squared": "‖φ(s, a) − ψ(g)‖²"}


class Scale(NamedTuple):
    """The quantity of a map: `sign` times the critic's value."""

    name: str
    sign: float

    @property
    def near_is_low(self) -> bool:
        """Whether low values mean near."""
        return self.sign < 0


def scale_of(settings: Any) -> Scale:
    """The scale for the critic of an agent with these settings."""
    energy = getattr(settings, "energy", None)
    if energy in DISTANCES:
        return Scale(f"distance {DISTANCES[energy]}", -1.0)
    return Scale("f(s, a, g)" if energy else "value", 1.0)


@dataclass(frozen=True)
class Episodes:
    """Trajectories of the first episode of N parallel environments."""

    label: str
    space: GoalSpace
    track: np.ndarray  # [T + 1, N, goal_dim]: achieved goals
    robot: np.ndarray  # [T, N, 2]: position of the robot's root before each step
    length: np.ndarray  # [N]: episode length in steps
    reached: np.ndarray  # [N] bool: goal reached at least once
    goal: np.ndarray  # [N, goal_dim]
    dt: float


def walk(actor: Actor, start_seed: int, goal: np.ndarray | None) -> Episodes:
    """Run one episode in each of the actor's parallel environments."""
    env = actor.env.of_size(actor.env.num_envs, restarts=False)  # one goal for each
    root = env.scene.engine.layout.links.index(env.scene.spec.body.root)

    def run(learner: Any, key: Key) -> Any:
        k_reset, k_steps = jax.random.split(key)
        first = aimed(env.reset(k_reset), goal)

        def body(carry: tuple[EnvState, Any], k_action: Key) -> Any:
            state, plan = carry
            robot = env.scene.engine.links(state.physics).pos[:, root, :2]
            action, plan = next_actions(plan, actor.act(learner, state.obs, k_action))
            after = env.advance(state, action)
            seen = (after.achieved_goal, robot, after.metrics["success"], after.ended)
            return (aimed(after, goal), after_step(plan, after.ended)), seen

        keys = jax.random.split(k_steps, env.episode_length)
        carry = (first, first_plan(env.num_envs, actor.chunk, env.spec.action_dim))
        return first.obs.goal, first.achieved_goal, jax.lax.scan(body, carry, keys)[1]

    goals, begin, (track, robot, success, ended) = jax.tree.map(
        np.asarray, jax.jit(run)(actor.learner, jax.random.key(start_seed))
    )
    length = np.where(ended.any(axis=0), ended.argmax(axis=0) + 1, len(ended))
    counted = np.arange(len(ended))[:, None] < length
    return Episodes(
        actor.label,
        goal_space(env),
        np.concatenate([begin[None], track]),
        robot,
        length,
        np.any((success > 0) & counted, axis=0),
        goals,
        env.spec.dt,
    )


@dataclass(frozen=True)
class CriticMap:
    """A critic's values over positions: of goals for one state, or of states for one goal."""

    label: str
    space: GoalSpace
    over: Over
    places: np.ndarray  # [rows, columns, 2]
    values: np.ndarray  # [rows, columns]
    free: np.ndarray  # [rows, columns] bool: outside of walls
    scale: Scale
    at: np.ndarray  # [2]: position of the state, if goals vary
    goal: np.ndarray | None  # [goal_dim]: if states vary


def critic_map(
    actor: Actor,
    over: Over,
    start_seed: int,
    goal: str | None = None,
    at: str | None = None,
    size: int = GRID,
) -> CriticMap:
    """Evaluate a policy's critic for its greedy actions on a grid over the floor."""
    space = goal_space(actor.env)
    state, drawn = _start(actor.env, start_seed)
    if at is not None:
        state = placed(actor.env, state, space.parse(at))
    target = drawn if goal is None else space.parse(goal)
    places = space.grid(size) if space.flat else space.grid(4 * size)[:1]
    values = value_function(actor, over)(actor.learner, state, places, target)
    scale = scale_of(actor.policies.settings if actor.policies else None)
    values = scale.sign * np.asarray(values)
    here = space.points(np.asarray(actor.env.achieved(jnp.asarray(state))))[0]
    return CriticMap(
        actor.label,
        space,
        over,
        places,
        values,
        ~space.in_wall(places),
        scale,
        here,
        target if over == "states" else None,
    )


def value_function(actor: Actor, over: Over) -> Callable[..., Array]:
    """A jitted `(learner, state, places [..., 2], goal) -> values [...]` of an actor's critic."""
    if actor.policies is None:
        raise ConfigError(f"{actor.label} has no critic; give a run's folder or a policy")
    agent = actor.policies.agent
    if not agent.has_critic:
        raise ConfigError(f"agents of type {actor.policies.agent_name!r} have no critic")
    if over == "states":
        check_movable(actor.env, "map goals instead of states")
    axes = goal_space(actor.env).axes[0]
    columns = np.array([axes[name] for name in "xy" if name in axes])
    entries = columns if over == "goals" else actor.env.scene.indices(actor.env.task.goal)[columns]

    def values(learner: Any, state: Array, places: Array, goal: Array) -> Array:
        spread = lambda x: jnp.broadcast_to(x, (*places.shape[:-1], len(x)))
        moved = lambda x: spread(x).at[..., entries].set(places[..., : len(entries)])
        obs = Obs(spread(state), moved(goal)) if over == "goals" else Obs(moved(state), spread(goal))
        action = agent.act(learner, obs, jax.random.key(0), explore=False)
        return agent.value(learner, obs, action)

    return jax.jit(values)


def check_movable(env: GoalEnv, fix: str) -> None:
    """Raise, with the fix, if the achieved goal cannot be changed independently of the rest of the state."""
    axes = goal_space(env).axes[0]
    free = free_entries(env.scene)
    if not all(free[axes[name]] for name in "xy" if name in axes):
        raise ConfigError(
            f"in {env.spec.id} a position does not determine a state, since it depends on the joints; {fix}"
        )


def placed(env: GoalEnv, state: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The state with its achieved goal moved to another position."""
    check_movable(env, "leave --at out: --start-seed draws other states")
    moved = np.array(state)
    axes = goal_space(env).axes[0]
    columns = [axes[name] for name in "xy" if name in axes]
    moved[env.scene.indices(env.task.goal)[columns]] = place[columns]
    return moved


def _start(env: GoalEnv, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Initial state and goal of an episode."""

    def sample_reset(key: Key) -> tuple[Array, Array]:
        q, qd, goal = env.scene.sample_reset(key)
        physics = env.scene.engine.init(q[None], qd[None])
        return env.scene.observe(physics, env.scene.still(physics))[0], goal

    state, goal = jax.jit(sample_reset)(jax.random.key(seed))
    return np.asarray(state), np.asarray(goal)
