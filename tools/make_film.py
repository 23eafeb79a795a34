"""Make the film on the first page again: a shipped policy in three episodes, each with a goal of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from homing.training.device import choose_device
from homing.viz import render, video

OUT = Path(__file__).parent.parent / "docs" / "images" / "film.webp"
CANDIDATES, SHOWN = 16, 3
STEPS, EVERY = 200, 2
SIZE = 400, 300
RESTART = 1.0  # metres in one step that only a new episode makes


def frames() -> tuple[Iterator[np.ndarray], float]:
    """The first three of some episodes that reach their goal, side by side as `homing render` draws them; dt."""
    (actor,) = video.actors(["ant"], None, "last")
    record = render.recorder(actor.env, actor.act, STEPS, actor.chunk)
    films = [record(actor.learner, seed, None) for seed in range(CANDIDATES)]
    chosen = [film for film in films if _arrives(film)][:SHOWN]
    panels = [video.Panel(f"ant, goal {k + 1}", actor.env, film) for k, film in enumerate(chosen)]
    print(f"{sum(map(_arrives, films))} of {CANDIDATES} arrive within {STEPS} steps")
    return video.composed(panels, *SIZE, every=EVERY), actor.env.spec.dt


def _arrives(film: render.Film) -> bool:
    """Whether it is one episode, and ends at its goal or goes on to another, which comes when one is reached."""
    moved = np.linalg.norm(np.diff(np.asarray(film.pos)[:, 0], axis=0), axis=-1)
    if moved.max() > RESTART:
        return False
    goals = np.asarray(film.goal)
    return bool((goals != goals[0]).any() or np.asarray(film.success)[-20:].all())


def main(out: Path = OUT) -> None:
    choose_device(cpu=True)
    drawn, dt = frames()
    pictures = [Image.fromarray(frame) for frame in drawn]
    shown = round(1000 * EVERY * dt)
    pictures[0].save(
        out, save_all=True, append_images=pictures[1:], duration=shown, loop=0, quality=60, method=6
    )
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB, {len(pictures)} frames of {shown} ms")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
