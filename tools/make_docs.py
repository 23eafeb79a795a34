"""Generate the figures, the table of environments, the gallery and the live pages in docs/.

`--text` skips the images of environments and the live pages, which take minutes.
"""

import sys
from pathlib import Path
from typing import Any

import make_figures
import make_live
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from homing.envs import ALIASES, env_ids, make
from homing.viz import render

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- begin generated table -->", "<!-- end generated table -->"
TILE, COLUMNS = (320, 240), 5
TILES = DOCS / "images" / "envs"


def table() -> str:
    """The table of environments in Markdown."""
    lines = [
        "| id | body, task, arena | physics | dt | state | goal | action | within | ends early | alias |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for id in env_ids():
        i = make(id).spec
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
    specs = {id: make(id).spec for id in env_ids()}
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


def draw_tiles() -> None:
    """Render one image of every environment."""
    TILES.mkdir(parents=True, exist_ok=True)
    for id in env_ids():
        env = make(id)
        frame = render.draw(env, render.still(env, seed=3), *TILE)[0]
        _save(Image.fromarray(np.asarray(frame)), TILES / f"{id}.png")
        print(id, flush=True)


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


if __name__ == "__main__":
    write_table()
    (DOCS / "gallery.md").write_text(gallery())
    make_figures.main()
    if "--text" not in sys.argv:
        make_live.main()
        draw_tiles()
        _save(contact_sheet(), DOCS / "images" / "environments.png")
