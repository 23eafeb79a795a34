"""What brax's pipelines give, for tests that compare with them: asked now, or read from a file.

Compiling brax takes longer than all else in such tests. For some robots its numbers are recorded in
`physics/brax_reference.npz`, and tests that are marked slow hold it against brax itself.
`python tests/brax_reference.py` writes it anew.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path

if __name__ == "__main__":
    import conftest  # noqa: F401  # compiled as in tests

import jax
import mujoco
import numpy as np
import pytest
from helpers import scene as scene_of

from homing import physics
from homing.envs import scene
from homing.envs.registry import get_spec
from homing.physics import brax_pipelines
from homing.physics.spring.engine import Spring

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from brax.envs import ant, half_cheetah, humanoid, pusher, reacher

FILE = Path(__file__).parent / "physics" / "brax_reference.npz"
Arrays = dict[str, np.ndarray]

# -- trajectories of brax's own environments ----------------------------------------------------------------

# An environment of ours, its pipeline, brax's environment, and whether the robot's root is free.
ROBOTS = {
    "ant on spring": ("ant", "spring", ant.Ant, True),
    "humanoid on spring": ("humanoid", "spring", humanoid.Humanoid, True),
    "reacher on spring, brax with target": ("reacher", "spring", reacher.Reacher, False),
    "reacher on generalized, brax with target": ("reacher", "generalized", reacher.Reacher, False),
    "pusher on generalized, brax with goal": ("pusher_easy", "generalized", pusher.Pusher, False),
    "half-cheetah on mjx": ("half_cheetah", "mjx_mujoco", half_cheetah.Halfcheetah, False),
}
FEW, STEPS = 3, 50


def noisy_start(layout, quaternion: bool, noise: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """The same noisy start for both sides: q, qd [FEW, ·]."""
    rng = np.random.default_rng(3)
    q = layout.init_q + noise * rng.normal(size=(FEW, layout.q_size))
    if quaternion:
        q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=-1, keepdims=True)
    return q.astype(np.float32), (2 * noise * rng.normal(size=(FEW, layout.qd_size))).astype(np.float32)


def random_controls(layout, *shape: int, seed: int = 7) -> np.ndarray:
    """Controls [..., act_size]."""
    shape = (*shape, layout.act_size)
    return np.random.default_rng(seed).uniform(-1.0, 1.0, shape).astype(np.float32)


def start_of(robot: str) -> tuple[physics.Engine, np.ndarray, np.ndarray]:
    id, pipeline, _, quaternion = ROBOTS[robot]
    engine = scene_of(id, pipeline).engine
    # The pusher's rest pose is at its joints' limits, and beyond them its solver stops at another iteration
    # for every small difference: it starts as the environment starts it.
    return engine, *noisy_start(engine.layout, quaternion, noise=0.002 if id == "pusher_easy" else 0.05)


def robot(name: str) -> Arrays:
    """Fifty steps of brax's own model; coordinates that only it has (a target's) start at its own rest."""
    (engine, q, qd), (_, pipeline, kind, _) = start_of(name), ROBOTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = kind(backend=scene.base_pipeline(pipeline))
    full_q = np.tile(env.sys.init_q, (FEW, 1))
    full_qd = np.zeros((FEW, env.sys.qd_size()), np.float32)
    full_q[:, : q.shape[1]], full_qd[:, : qd.shape[1]] = q, qd

    def body(state, action):
        state = jax.vmap(env.pipeline_step)(state, action)
        return state, (state.q, state.qd, state.x.pos)

    first = jax.jit(jax.vmap(env.pipeline_init))(full_q, full_qd)
    acts = random_controls(engine.layout, STEPS, FEW)
    q_, qd_, pos = jax.jit(lambda state: jax.lax.scan(body, state, acts)[1])(first)
    links = len(engine.layout.links)
    return {"q": q_[..., : q.shape[1]], "qd": qd_[..., : qd.shape[1]], "pos": pos[..., :links, :]}


# -- frames of the spring pipeline on our models ----------------------------------------------------------------

MANY = 18


def compiled(id: str) -> tuple[mujoco.MjModel, physics.Timing, tuple]:
    spec = get_spec(id)
    model, timing = scene.build_model(spec), spec.body.pipelines["spring"]
    model.set_option(timestep=timing.timestep)
    if timing.gears is not None:
        model.set_gear(timing.gears)
    return model.compile(), timing, spec.arena.windows(scene.followed(spec))


class Pair:
    """Both engines for one environment, stepping one physics frame at a time."""

    def __init__(self, id: str):
        model, timing, windows = compiled(id)
        self.spec, self.frames = get_spec(id), timing.frames
        single = dataclasses.replace(timing, frames=1)
        self._given = model, single, windows
        self.own = Spring(*self._given)
        self.step_own, self.init_own = jax.jit(self.own.step), jax.jit(self.own.init)

    @cached_property
    def brax(self) -> brax_pipelines.Spring:
        return brax_pipelines.Spring(*self._given)

    @cached_property
    def step_brax(self) -> Callable:
        return jax.jit(self.brax.step)

    @cached_property
    def init_brax(self) -> Callable:
        return jax.jit(self.brax.init)

    @cached_property
    def _sample_resets(self) -> Callable:
        return jax.jit(jax.vmap(scene.Scene(self.spec, "spring").sample_reset))

    def starts(self, seed: int, spread: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Starts of episodes, with velocities of the size `spread` added."""
        q, qd, _ = map(np.array, self._sample_resets(jax.random.split(jax.random.key(seed), MANY)))
        return q, qd + np.float32(spread) * np.random.default_rng(seed).normal(size=qd.shape).astype(
            np.float32
        )

    def controls(self, seed: int, *shape: int) -> np.ndarray:
        return random_controls(self.own.layout, *shape, MANY, seed=seed)

    def into_walls(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Poses in and round walls: faces, edges and corners."""
        rng, arena = np.random.default_rng(seed), self.spec.arena
        q, qd = self.starts(seed, spread=2.0)
        walls = np.argwhere(arena.wall_cells) * arena.cell
        q[:, :2] = rng.choice(walls, MANY) + arena.cell * rng.uniform(-0.7, 0.7, (MANY, 2))
        if self.own.joints.types[0] == "f":
            turn = rng.normal(size=(MANY, 4))
            q[:, 2] = rng.uniform(0.1, 2.3, MANY)
            q[:, 3:7] = turn / np.linalg.norm(turn, axis=-1, keepdims=True)
        return q, qd


pair = cache(Pair)


def motion(state: brax_pipelines.SpringState) -> Arrays:
    """Coordinates, and the motion of the links' centres of mass."""
    parts = {"pos": state.x_i.pos, "rot": state.x_i.rot, "vel": state.xd_i.vel, "ang": state.xd_i.ang}
    return jax.device_get({"q": state.q, "qd": state.qd, **parts})


def stacked(motions: list[Arrays]) -> Arrays:
    return {name: np.stack([each[name] for each in motions]) for name in motions[0]}


def started(id: str) -> Arrays:
    """A start, and what is read of it."""
    engines = pair(id)
    state = engines.init_brax(*engines.starts(0, spread=0.5))
    return {**motion(state), **jax.jit(reading(engines.brax))(state, engines.controls(1))}


def reading(engine) -> Callable:
    """All that an engine tells of a state, as a function of it and controls."""

    def read(state, ctrl):
        links = {f"links' {name}": x for name, x in vars(engine.links(state)).items()}
        inertia, speed = engine.mass_features(state)
        told = {"q told": engine.q(state), "qd told": engine.qd(state), "inertia": inertia, "speed": speed}
        return {**links, **told, "torques": engine.torques(state, ctrl)}

    return read


def frames(id: str) -> Arrays:
    """Twelve frames one after the other, and the start: [13, ...]."""
    engines = pair(id)
    states = [engines.init_brax(*engines.starts(2, spread=1.0))]
    for ctrl in engines.controls(3, 12):
        states.append(engines.step_brax(states[-1], ctrl))
    return stacked([motion(state) for state in states])


def frames_in_walls(id: str) -> Arrays:
    """One frame from each of ten poses in and round walls: [10, 2, ...]."""
    engines = pair(id)
    ctrl, each = engines.controls(4), []
    for seed in range(10, 20):
        state = engines.init_brax(*engines.into_walls(seed))
        each.append(stacked([motion(state), motion(engines.step_brax(state, ctrl))]))
    return stacked(each)


def one_frame(id: str) -> Arrays:
    """A start and the frame after it: [2, ...]."""
    engines = pair(id)
    state = engines.init_brax(*engines.starts(8, spread=1.0))
    return stacked([motion(state), motion(engines.step_brax(state, engines.controls(9)))])


def trajectory(id: str) -> Arrays:
    """Coordinates of a start, and positions of the links [50, ...] after each environment step."""
    engines = pair(id)
    q, qd = engines.starts(6)
    state, places = engines.init_brax(q, qd), []
    for ctrl in engines.controls(7, 50):
        for _ in range(engines.frames):
            state = engines.step_brax(state, ctrl)
        places.append(np.asarray(state.x.pos))
    return {"q": q, "qd": qd, "links": np.stack(places)}


# -- the file -----------------------------------------------------------------------------------------------

QUESTIONS: dict[str, Callable[[str], Arrays]] = {
    f.__name__: f for f in (robot, started, frames, frames_in_walls, one_frame, trajectory)
}
# Those that take longest beside what they need in the file.
RECORDED = [
    ("robot", "ant on spring"),
    ("robot", "humanoid on spring"),
    ("robot", "reacher on spring, brax with target"),
    ("robot", "reacher on generalized, brax with target"),
    ("started", "humanoid"),
    ("one_frame", "humanoid"),
    ("started", "reacher"),
    ("frames", "reacher"),
    ("trajectory", "reacher"),
    ("frames", "point_u_maze"),
    ("trajectory", "point_u_maze"),
]


@cache
def live(question: str, name: str) -> Arrays:
    return {part: np.asarray(array) for part, array in QUESTIONS[question](name).items()}


@cache
def recorded(question: str, name: str) -> Arrays:
    begin = f"{question}/{name}/"
    with np.load(FILE) as file:
        return {part.removeprefix(begin): file[part] for part in file.files if part.startswith(begin)}


def asking(question: str, names: list[str], slow: tuple[str, ...] = ()) -> list:
    """Parameters `name` and `brax`, whose answer is read from the file where it is there, and asked in slow tests."""
    asked = []
    for name in names:
        known = (question, name) in RECORDED
        marks = [pytest.mark.slow] if known or name in slow else []
        asked += [pytest.param(name, recorded, id=f"{name}, recorded")] if known else []
        asked += [pytest.param(name, live, id=name, marks=marks)]
    return asked


def write() -> None:
    arrays = {
        f"{question}/{name}/{part}": array
        for question, name in RECORDED
        for part, array in live(question, name).items()
    }
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE}: {len(arrays)} arrays, {FILE.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    write()
