"""Recordings of several goals, for environments whose physics no page can compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from homing.viz.render import RUN_STEPS, Film, recorder
from homing.viz.video import Actor

EPISODES = 6
AFTER = 1.5  # seconds that are shown after the goal is reached


def record(actor: Actor, seed: int) -> list[Film]:
    """The policy's way to several goals, each cut soon after the goal is reached or the robot has fallen."""
    env = actor.env
    length = min(env.episode_length, RUN_STEPS)
    shoot = recorder(env.of_size(1, restarts=False), actor.act, length, actor.chunk)
    return [cut(shoot(actor.learner, seed + k), round(AFTER / env.spec.dt)) for k in range(EPISODES)]


def cut(film: Film, after: int) -> Film:
    """The film up to `after` steps beyond the first that reaches the goal."""
    reached = np.flatnonzero(film.success)
    end = min(len(film.pos), int(reached[0]) + 1 + after) if len(reached) else len(film.pos)
    return Film(film.pos[:end], film.rot[:end], film.goal[:end], film.distance[:end], film.success[:end])


def packed(films: list[Film]) -> tuple[dict[str, Any], bytes]:
    """Lengths and goals of films as JSON, and frames [T, L, 7] with distances [T] as float32."""
    about = [{"steps": len(f.pos), "goal": [float(v) for v in f.goal[0]]} for f in films]
    parts = []
    for film in films:
        frames = np.concatenate([film.pos, film.rot], axis=-1)
        parts += [frames.astype("<f4").tobytes(), film.distance.astype("<f4").tobytes()]
    return {"films": about}, b"".join(parts)
