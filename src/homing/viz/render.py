"""Rollouts recorded as link frames, and rendered with their goals as images or videos."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from homing.data.rollout import after_step, first_plan, next_actions, renewed
from homing.envs.arenas import WALL_RGBA, Floor, Table
from homing.envs.base import GoalEnv
from homing.envs.bodies.base import Dressed
from homing.envs.reset_pool import where_envs
from homing.envs.scene import EnvSpec
from homing.errors import unknown
from homing.physics import Model
from homing.physics.drawing import Camera, Drawer, Marker
from homing.types import Array, EnvState, Key, Obs
from homing.viz.video_files import check_output, frame_step, save

RUN_STEPS = 500  # maximum default length of a trained policy's video
GOAL_COLOURS = ((0.10, 0.70, 0.35), (0.15, 0.35, 0.85), (0.75, 0.15, 0.60))
Policy = Callable[[Obs, Key], Array]
Goal = np.ndarray | Array


@dataclass(frozen=True)
class Film:
    """A recorded rollout of one environment: link frames, goal and distance at each step."""

    pos: np.ndarray  # [T, L, 3]
    rot: np.ndarray  # [T, L, 4]
    goal: np.ndarray  # [T, goal_dim]
    distance: np.ndarray  # [T]
    success: np.ndarray  # [T]
    begin: int = 0  # index of the first recorded step


def random_policy(env: GoalEnv) -> Policy:
    """Uniform random actions."""
    size = (env.num_envs, env.spec.action_dim)
    return lambda obs, key: jax.random.uniform(key, size, jnp.float32, -1.0, 1.0)


def zero_policy(env: GoalEnv) -> Policy:
    """Zero actions."""
    return lambda obs, key: jnp.zeros((env.num_envs, env.spec.action_dim), jnp.float32)


POLICIES = {"random": random_policy, "zero": zero_policy}


def aimed(state: EnvState, goal: Goal | None) -> EnvState:
    """The state with the goal [goal_dim] in every environment; None keeps each environment's own."""
    if goal is None:
        return state
    goal = jnp.broadcast_to(jnp.asarray(goal, jnp.float32), state.obs.goal.shape)
    return state.replace(obs=state.obs.replace(goal=goal))


def recorder(
    env: GoalEnv, act: Callable[[Any, Obs, Key], Array], steps: int, chunk: int = 1
) -> Callable[..., Film]:
    """A rollout compiled once, `(learner, seed, goal) -> Film` of environment 0; None keeps each episode's goal.

    With `chunk` > 1, `act` proposes action chunks, which are executed open-loop. A step that reaches a goal shows
    that goal, also where a new one is commanded at once.
    """

    def shot(state: EnvState, goal: Array) -> tuple[Array, ...]:
        links = env.scene.engine.links(state.physics)
        distance = env.distance(env.achieved(state.obs.state), goal)
        close = (distance < env.task.within).astype(jnp.float32)
        return links.pos[0], links.rot[0], goal[0], distance[0], close[0]

    def run(learner: Any, key: Key, goal: Goal | None) -> tuple[Array, ...]:
        k_reset, k_steps = jax.random.split(key)
        first = aimed(env.reset(k_reset), goal)

        def body(carry: tuple[EnvState, Any], key: Key) -> tuple[tuple[EnvState, Any], tuple[Array, ...]]:
            state, plan = carry
            action, plan = next_actions(plan, act(learner, state.obs, key))
            after = env.step(state, action)
            state, plan = aimed(after, goal), after_step(plan, after.ended | renewed(after))
            shown = where_envs(after.ended, state.obs.goal, after.next_obs.goal)
            return (state, plan), shot(state, shown)

        plan = first_plan(env.num_envs, chunk, env.spec.action_dim)
        _, rest = jax.lax.scan(body, (first, plan), jax.random.split(k_steps, steps))
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), shot(first, first.obs.goal), rest)

    compiled = jax.jit(run)

    def film(learner: Any, seed: int, goal: Goal | None = None) -> Film:
        shots = compiled(learner, jax.random.key(seed), goal)
        pos, rot, goals, distance, success = (np.asarray(x) for x in shots)
        return Film(pos, rot, goals, distance, success)

    return film


def record(
    env: GoalEnv, policy: Policy, steps: int, seed: int = 0, goal: Goal | None = None, chunk: int = 1
) -> Film:
    """Record one rollout of environment 0."""
    return recorder(env, lambda _, obs, key: policy(obs, key), steps, chunk)((), seed, goal)


def still(env: GoalEnv, seed: int = 0) -> Film:
    """The initial state of an episode, as a recording of one step."""
    q, qd, goal = env.scene.sample_reset(jax.random.key(seed))
    links = env.scene.engine.links(jax.jit(env.scene.engine.init)(q[None], qd[None]))
    nothing = np.zeros(1)
    return Film(np.asarray(links.pos), np.asarray(links.rot), np.asarray(goal)[None], nothing, nothing)


def draw(env: GoalEnv, film: Film, width: int = 640, height: int = 480, every: int = 1) -> list[np.ndarray]:
    """Images [height, width, 3] of every `every`-th step."""
    return list(frames(env, film, width, height, every))


def frames(env: GoalEnv, film: Film, width: int, height: int, every: int = 1) -> Iterator[np.ndarray]:
    """`draw` as an iterator."""
    spec = env.scene.spec
    with drawer_for(spec, width, height) as drawer:
        camera = camera_for(spec, film)
        for t in range(0, len(film.pos), every):
            yield drawer.draw(film.pos[t], film.rot[t], camera, goal_markers(spec, film.goal[t]))


def drawer_for(spec: EnvSpec, width: int, height: int) -> Drawer:
    """The renderer of an environment."""
    model = display_model(spec)
    return Drawer(model, own_colours(spec, model), width, height, tile=0.1 if is_arm(spec) else 1.0)


def own_colours(spec: EnvSpec, model: Model) -> tuple[str, ...]:
    """Names of the bodies that keep their geoms' colours: objects, and all of a robot that has colours."""
    if isinstance(spec.body, Dressed):
        return tuple(model.body_names)
    return tuple(prop.name for prop in spec.task.props)


def display_model(spec: EnvSpec) -> Model:
    """The model for rendering, with all walls in place."""
    model = spec.body.build()
    if isinstance(spec.body, Dressed):
        spec.body.dress(model)
    for prop in spec.task.props:
        prop.build(model)
    for k, wall in enumerate(spec.arena.walls()):
        model.add_geom(None, f"shown_wall_{k}", "box", wall.half, wall.centre, rgba=WALL_RGBA)
    return model


def goal_markers(spec: EnvSpec, goal: np.ndarray) -> list[Marker]:
    """A sphere of the threshold's radius at each point of the goal, and a post to see it from afar."""
    markers = []
    names = np.reshape(spec.task.goal, (spec.task.parts, -1))
    for k, values in enumerate(goal.reshape(names.shape)):
        place = dict(zip((name[-1] for name in names[k]), (float(v) for v in values), strict=True))
        pos = (place.get("x", 0.0), place.get("y", 0.0), place.get("z", 0.05))
        colour = GOAL_COLOURS[k % len(GOAL_COLOURS)]
        radius = spec.task.within
        markers.append(Marker("sphere", pos, (radius, radius, radius), (*colour, 0.4)))
        if not is_arm(spec):
            markers.append(Marker("cylinder", (*pos[:2], 1.5), (0.06, 1.5, 0.0), (*colour, 0.8)))
    return markers


def camera_for(spec: EnvSpec, film: Film) -> Camera:
    """A static camera that shows the robot and the goals, or the whole maze."""
    if isinstance(spec.body, Dressed):
        return spec.body.camera
    if is_arm(spec):
        far = spec.arena.extent()[1]
        # The reacher is viewed from above, the pusher's arm from the far side of its table.
        target = (0.0, 0.0, 0.0) if far < 0.5 else (0.4, -0.3, -0.2)
        if far < 0.5:
            return Camera(target, 2.6 * far, azimuth=90.0, elevation=-65.0)
        return Camera(target, 2.2 * far, azimuth=-90.0, elevation=-50.0)
    if not isinstance(spec.arena, Floor):
        x0, x1, y0, y1 = spec.arena.extent()
        return Camera((0.5 * (x0 + x1), 0.5 * (y0 + y1), 0.0), 1.15 * max(x1 - x0, y1 - y0), 90.0, -62.0)
    # The view contains all goals and the robot's trajectory.
    goals = [marker.pos[:2] for goal in np.unique(film.goal, axis=0) for marker in goal_markers(spec, goal)]
    seen = np.concatenate([np.array(goals), film.pos[:, 0, :2]])
    low, high = seen.min(axis=0), seen.max(axis=0)
    middle, apart = 0.5 * (low + high), float(np.linalg.norm(high - low))
    return Camera((float(middle[0]), float(middle[1]), 0.5), 3.0 + 1.1 * apart, 90.0, -30.0)


def is_arm(spec: EnvSpec) -> bool:
    """Whether the robot is a small arm, by its arena."""
    return isinstance(spec.arena, Table) or (isinstance(spec.arena, Floor) and spec.arena.half < 1.0)


def film_run(
    run: str | Path,
    out: str | Path,
    *,
    steps: int | None = None,
    seed: int = 0,
    of_seed: int | None = None,
    which: Literal["last", "best"] = "last",
    width: int = 640,
    height: int = 480,
    picture: str | Path | None = None,
) -> Path:
    """Write a video, or an image of the last step, of a trained policy in its training environment.

    seed:    seed of resets and goals
    of_seed: training seed of the policy; default: the run's first
    picture: also write an image of the step that reaches the first goal to this file
    """
    from homing.policies import find_policies
    from homing.policies.policy import Policy as TrainedPolicy

    out = check_output(out)
    trained = TrainedPolicy(find_policies(run, which), of_seed)
    env = trained.make_env()
    length = min(env.episode_length, RUN_STEPS) if steps is None else steps
    film = record(env, lambda obs, key: trained.act(obs), length, seed, chunk=trained.chunk)
    if picture is not None:
        save(frames(env, moment(film), width, height), picture, fps=1.0)
    if out.suffix == ".png":
        film = moment(film, -1)
    every = frame_step(env.spec.dt)
    return save(frames(env, film, width, height, every), out, fps=1.0 / (every * env.spec.dt))


def moment(film: Film, step: int | None = None) -> Film:
    """One step of a recording; default: the step that reaches the first goal, or the last step."""
    if step is None:
        reached = np.flatnonzero(film.success)
        step = int(reached[0]) if len(reached) else -1
    t = range(len(film.pos))[step]
    fields = (film.pos, film.rot, film.goal, film.distance, film.success)
    return Film(*(x[t : t + 1] for x in fields), begin=film.begin + t)


def policy_named(name: str, env: GoalEnv) -> Policy:
    """The policy of `POLICIES` with this name."""
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    return POLICIES[name](env)
