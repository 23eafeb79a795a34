"""Make the film on the first page again: a shipped policy in three episodes, each with a goal of its own."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from homing.api import choose_device
from homing.viz import render, video

OUT = Path(__file__).parent.parent / "docs" / "images" / "film.webp"
STARTS = (3, 5, 8)
STEPS, EVERY = 200, 2
SIZE = 300, 225


def frames() -> Iterator[np.ndarray]:
    """Three episodes side by side, as `homing render` draws them."""
    (actor,) = video.actors(["ant"], None, "last")
    record = render.recorder(actor.env, actor.act, STEPS, actor.chunk)
    films = [record(actor.learner, seed, None) for seed in STARTS]
    panels = [video.Panel(f"ant · goal {k + 1}", actor.env, film) for k, film in enumerate(films)]
    return video.composed(panels, *SIZE, every=EVERY)


def main(out: Path = OUT) -> None:
    choose_device(cpu=True)
    pictures = [Image.fromarray(frame) for frame in frames()]
    (actor,) = video.actors(["ant"], None, "last")
    shown = round(1000 * EVERY * actor.env.spec.dt)
    pictures[0].save(
        out, save_all=True, append_images=pictures[1:], duration=shown, loop=0, quality=60, method=6
    )
    print(f"{out}: {out.stat().st_size / 1e6:.2f} MB, {len(pictures)} frames of {shown} ms")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
