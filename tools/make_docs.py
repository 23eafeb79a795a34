"""Generate the figures, the pages about environments, the gallery, the live pages and the first page's numbers.

`--text` skips the images and films of environments and the live pages, which take minutes; `--missing` makes only
images and films that are absent.
"""

import sys
from pathlib import Path
from typing import Any

import make_env_pages
import make_figures
import make_live
import make_numbers
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from homing.envs import ALIASES, env_ids, make
from homing.policies import shipped_names
from homing.share.film import cut
from homing.viz import render, video, video_files

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- begin generated table -->", "<!-- end generated table -->"
TILE, COLUMNS = (320, 240), 5
TILES = DOCS / "images" / "envs"
# A film has eight seconds, or more where a goal is reached later, and one after it.
FILM_SECONDS, MOST_SECONDS, SECONDS_AFTER, FILM_BYTES = 8.0, 20.0, 1.0, 300_000
FILM_STARTS = range(3, 13)  # random seeds of resets


def table() -> str:
    """The table of environments in Markdown."""
    lines = [
        "| id | body, task, arena | physics | dt | state | goal | action | within | ends early | alias |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for id in env_ids():
        i = make_env_pages.info(id)
        alias = ", ".join(f"`{a}`" for a, own in ALIASES.items() if own == id)
        goal = ", ".join(i.goal_names)
        early = "yes" if i.ends_early else "no"
        lines.append(
            f"| `{id}` | {i.body}, {i.task}, {i.arena} | {i.physics} | {i.dt:g} | {i.state_dim} | {goal} "
            f"| {i.action_dim} | {i.threshold:g} | {early} | {alias} |"
        )
    return "\n".join(lines)


def write_table() -> None:
    page = DOCS / "environments.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}")


def gallery() -> str:
    """An image and the properties of every environment, by body."""
    parts = [
        "# Gallery",
        "Every environment at a start of its own; green marks the goal. Sizes and options are in the "
        "[table](environments.md), `homing render ENV --out film.mp4` shows one moving.",
    ]
    specs = {id: make_env_pages.info(id) for id in env_ids()}
    for body in dict.fromkeys(spec.body for spec in specs.values()):
        parts.append(f"## {body.replace('_', ' ').capitalize()}")
        cards = [_card(id, spec) for id, spec in specs.items() if spec.body == body]
        parts.append('<div class="gallery">\n' + "\n".join(cards) + "\n</div>")
    return "\n\n".join(parts) + "\n"


def _card(id: str, spec: Any) -> str:
    goal = ", ".join(spec.goal_names)
    facts = f"{spec.task}, {spec.arena}; goal: {goal} within {spec.threshold:g}; {spec.action_dim} actions"
    picture = f'<img src="images/envs/{id}.png" alt="{id}" loading="lazy" width="320" height="240">'
    return f"<figure>{picture}<figcaption><b>{id}</b><br>{facts}</figcaption></figure>"


def draw_tiles(only_missing: bool = False) -> None:
    """Render one image of every environment."""
    TILES.mkdir(parents=True, exist_ok=True)
    for id in env_ids():
        if only_missing and (TILES / f"{id}.png").is_file():
            continue
        env = make(id)
        frame = render.draw(env, render.still(env, seed=3), *TILE)[0]
        _save(Image.fromarray(np.asarray(frame)), TILES / f"{id}.png")
        print(id, flush=True)


def draw_films(only_missing: bool = False) -> None:
    """Film every policy that ships in its environment."""
    for name in shipped_names():
        if not (only_missing and (make_env_pages.FILMS / f"{name}.webp").is_file()):
            draw_film(name)


def draw_film(name: str) -> None:
    """Film a policy that ships in its environment, ten frames a second, from the first start that leads to a goal."""
    out = make_env_pages.FILMS / f"{name}.webp"
    (actor,) = video.actors([name], None, "last")
    dt = actor.env.spec.dt
    record = render.recorder(actor.env, actor.act, round(MOST_SECONDS / dt), actor.chunk)
    takes = (record(actor.learner, seed, None) for seed in FILM_STARTS)
    film = next((take for take in takes if take.success.any()), None)
    if film is None:
        raise SystemExit(f"{name} reaches no goal from any of the starts of {FILM_STARTS}")
    after = max(SECONDS_AFTER, FILM_SECONDS - dt * int(np.argmax(film.success)))
    panel = video.Panel(actor.label, actor.env, cut(film, round(after / dt)))
    every = max(1, round(0.1 / dt))
    frames = video.composed([panel], *TILE, every)
    video_files.save(frames, out, fps=1.0 / (every * dt))
    if out.stat().st_size > FILM_BYTES:
        raise SystemExit(f"{out} has {out.stat().st_size:,} bytes; film fewer steps")


def contact_sheet() -> Image.Image:
    """All environments in one labelled image."""
    ids = env_ids()
    rows = -(-len(ids) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * TILE[0], rows * (TILE[1] + 26)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(17)
    for k, id in enumerate(ids):
        x, y = k % COLUMNS * TILE[0], k // COLUMNS * (TILE[1] + 26)
        sheet.paste(Image.open(TILES / f"{id}.png").convert("RGB"), (x, y + 26))
        pen.text((x + 6, y + 3), id, fill="black", font=font)
    return sheet


def _save(picture: Image.Image, path: Path) -> None:
    picture.convert("P", palette=Image.Palette.ADAPTIVE).save(path, optimize=True)


def main(flags: set[str]) -> None:
    if "--text" not in flags:
        draw_tiles("--missing" in flags)
        draw_films("--missing" in flags)
        _save(contact_sheet(), DOCS / "images" / "environments.png")
        make_live.main()
    make_numbers.main()
    make_live.write_lists()
    write_table()
    make_env_pages.write_pages()
    (DOCS / "gallery.md").write_text(gallery())
    make_figures.main()


if __name__ == "__main__":
    main(set(sys.argv[1:]))
