"""Make the generated parts of docs/ again: the table of environments and the contact sheet."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from homing import render
from homing.envs import ALIASES, env_ids, make

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- begin generated table -->", "<!-- end generated table -->"
TILE, COLUMNS = (320, 240), 5


def table() -> str:
    """All environments in Markdown."""
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


def contact_sheet() -> Image.Image:
    """One labelled frame of every environment."""
    ids = env_ids()
    rows = -(-len(ids) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * TILE[0], rows * (TILE[1] + 26)), "white")
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(17)
    for k, id in enumerate(ids):
        env = make(id)
        frame = render.draw(env, render.still(env, seed=3), *TILE)[0]
        x, y = k % COLUMNS * TILE[0], k // COLUMNS * (TILE[1] + 26)
        sheet.paste(Image.fromarray(np.asarray(frame)), (x, y + 26))
        pen.text((x + 6, y + 3), id, fill="black", font=font)
        print(id, flush=True)
    return sheet


if __name__ == "__main__":
    write_table()
    (DOCS / "images").mkdir(exist_ok=True)
    contact_sheet().convert("P", palette=Image.Palette.ADAPTIVE).save(DOCS / "images" / "environments.png")
