"""Videos of several policies in a grid, labelled with the policy and the distance to the goal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from homing.agents.base import Agent
from homing.envs.base import GoalEnv
from homing.envs.goal_space import goal_space
from homing.errors import ConfigError
from homing.physics.drawing import Camera, Drawer
from homing.policies import Policies, find_policies
from homing.policies.store import Which
from homing.types import Array, Key, Obs
from homing.viz import render, video_files
from homing.viz.render import Film

MOST_PANELS = 16
REACHED, UNDERWAY = (120, 230, 150), (255, 255, 255)
Act = Callable[[Any, Obs, Key], Array]


@dataclass(frozen=True)
class Actor:
    """A policy of one training seed, or scripted actions, in an environment."""

    label: str
    env: GoalEnv
    act: Act
    """(learner, obs, key) -> actions [N, chunk · action_dim]"""
    learner: Any
    policies: Policies | None = None
    seed: int | None = None

    @property
    def chunk(self) -> int:
        """Length of the action chunks, which are executed open-loop."""
        return self.policies.agent.chunk if self.policies is not None else 1


@dataclass(frozen=True)
class Panel:
    """A recording with its label and environment."""

    label: str
    env: GoalEnv
    film: Film


def actors(sources: Sequence[str], seeds: str | None, which: Which, num_envs: int = 1) -> list[Actor]:
    """Actors of the selected seeds of every source; environment and programs are shared within a source."""
    found = []
    for source in sources:
        policies = find_policies(source, which)
        env = policies.choice.make(num_envs)
        act = greedy(policies.agent)
        for seed in wanted_seeds(policies, seeds):
            label = _label(source, policies, seed, len(sources) > 1)
            found.append(Actor(label, env, act, policies.one(seed), policies, seed))
    if len(found) > MOST_PANELS:
        raise ConfigError(
            f"{len(found)} policies are too many for one video, which shows up to {MOST_PANELS}; "
            "give fewer runs or seeds"
        )
    return found


def greedy(agent: Agent) -> Act:
    """The greedy policy of an agent."""
    return lambda learner, obs, key: agent.act(learner, obs, key, explore=False)


def wanted_seeds(policies: Policies, text: str | None) -> tuple[int, ...]:
    """Seeds from `0,1,2`, `best` or `all`; the first seed for None."""
    from homing.policies.export import chosen_seeds

    if text is None:
        return policies.seeds[:1]
    return tuple(
        dict.fromkeys(s for part in text.split(",") for s in chosen_seeds(policies, part.strip())[0])
    )


def _label(source: str, policies: Policies, seed: int, named: bool) -> str:
    what = f"{policies.choice.env} · {policies.agent_name} · seed {seed}"
    return f"{Path(source).name}: {what}" if named and Path(source).name != policies.choice.env else what


def environment_actor(id: str, policy: str, physics: str | None, options: dict[str, Any]) -> Actor:
    """An environment with random or zero actions."""
    from homing.envs import make

    env = make(id, num_envs=1, physics=physics, options=options)
    simple = render.policy_named(policy, env)
    return Actor(f"{env.spec.id} · {policy} actions", env, lambda _, obs, key: simple(obs, key), ())


def recorded(cast: Sequence[Actor], steps: int | None, start_seed: int, goal: str | None) -> list[Panel]:
    """Record each actor, with resets and goals of the same seed."""
    programs: dict[int, Callable[..., Film]] = {}
    aims = parsed_goals(cast, goal)
    panels = []
    for actor in cast:
        length = _length(actor, steps)
        video_files.say(f"simulating {length} steps: {actor.label}")
        record = programs.setdefault(
            id(actor.act), render.recorder(actor.env, actor.act, length, actor.chunk)
        )
        panels.append(Panel(actor.label, actor.env, record(actor.learner, start_seed, aims[id(actor.env)])))
    return panels


def parsed_goals(cast: Sequence[Actor], goal: str | None) -> dict[int, np.ndarray | None]:
    """The goal by `id` of each environment, parsed once, so that a goal that is moved is said once."""
    envs = {id(actor.env): actor.env for actor in cast}
    return {key: None if goal is None else goal_space(env).parse(goal) for key, env in envs.items()}


def _length(actor: Actor, steps: int | None) -> int:
    if steps is not None:
        return steps
    return 100 if actor.policies is None else min(actor.env.episode_length, render.RUN_STEPS)


def write(panels: Sequence[Panel], out: str | Path, width: int, height: int) -> Path:
    """Write a video of all panels, or an image of their last step."""
    out = video_files.check_output(out)
    dt = max(panel.env.spec.dt for panel in panels)
    if out.suffix == ".png":
        panels = [Panel(p.label, p.env, render.moment(p.film, -1)) for p in panels]
    every = video_files.frame_step(dt)
    count = -(-max(len(p.film.pos) for p in panels) // every)
    pictures = composed(panels, width, height, every)
    return video_files.save(video_files.tracked(pictures, count), out, fps=1.0 / (every * dt))


def composed(panels: Sequence[Panel], width: int, height: int, every: int = 1) -> Iterator[np.ndarray]:
    """Frames with all panels in a grid, each width × height; shorter recordings stay at their last step."""
    columns, rows = grid_shape(len(panels), width / height)
    sheet = np.full((rows * height, columns * width, 3), 255, np.uint8)
    with ExitStack() as stack:
        drawers = [stack.enter_context(render.drawer_for(p.env.scene.spec, width, height)) for p in panels]
        cameras = [render.camera_for(p.env.scene.spec, p.film) for p in panels]
        for t in range(0, max(len(p.film.pos) for p in panels), every):
            for k, (panel, drawer, camera) in enumerate(zip(panels, drawers, cameras, strict=True)):
                row, column = divmod(k, columns)
                frame = _frame(panel, drawer, camera, min(t, len(panel.film.pos) - 1))
                sheet[row * height : (row + 1) * height, column * width : (column + 1) * width] = frame
            yield sheet.copy()


def grid_shape(count: int, aspect: float) -> tuple[int, int]:
    """Columns and rows of a grid close to 16:9 with few empty cells."""
    shapes = [(columns, -(-count // columns)) for columns in range(1, count + 1)]
    cost = lambda s: abs(math.log(s[0] * aspect / s[1] / (16 / 9))) + 0.8 * (s[0] * s[1] - count)
    return min(shapes, key=cost)


def _frame(panel: Panel, drawer: Drawer, camera: Camera, t: int) -> np.ndarray:
    film, spec = panel.film, panel.env.scene.spec
    frame = drawer.draw(film.pos[t], film.rot[t], camera, render.goal_markers(spec, film.goal[t]))
    close = bool(film.success[t])
    status = f"{(film.begin + t) * panel.env.spec.dt:.1f} s   {film.distance[t]:.2f} m" + (
        "   reached" if close else ""
    )
    return inscribed(frame, panel.label, status, REACHED if close else UNDERWAY)


def inscribed(frame: np.ndarray, label: str, status: str, colour: tuple[int, int, int]) -> np.ndarray:
    """A frame with a label at the top and a status line at the bottom, on dark strips."""
    height, width = frame.shape[:2]
    size = max(9, round(height / 24))
    strip = round(1.7 * size)
    picture = Image.fromarray(frame)
    shade = Image.new("L", (width, height), 0)
    pen = ImageDraw.Draw(shade)
    pen.rectangle((0, 0, width, strip), fill=150)
    pen.rectangle((0, height - strip, width, height), fill=150)
    picture.paste((20, 24, 30), (0, 0), shade)
    pen, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    pen.text((0.5 * size, 0.5 * strip), _fitting(label, font, width - size), UNDERWAY, font, anchor="lm")
    pen.text((0.5 * size, height - 0.5 * strip), status, colour, font, anchor="lm")
    return np.asarray(picture)


def _fitting(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont, width: float) -> str:
    """The text, truncated to a width in pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text + "…"
