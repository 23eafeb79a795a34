"""Make the pictures of docs/see.md and the cards of docs/policies.md again, by the commands themselves."""

import time
from pathlib import Path

from PIL import Image

from homing.cli.main import main as homing
from homing.policies import find_policies, shipped, shipped_names
from homing.policies.card_page import markdown
from homing.training.device import choose_device

DOCS = Path(__file__).parent.parent / "docs"
PICTURES = DOCS / "images" / "see"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
HEAD = """# Shipped policies

They come with the package: `homing play NAME`, `homing render NAME --out film.mp4`, `homing.load("NAME")`.
`homing policies` lists them, `homing play` shows them in a gallery, and [See it](see.md#policy-files) shows
how to write your own policy files. They were trained to be played with: with goals that change within an
episode and, where the environment's name or settings say so, with starts and goals anywhere. Their cards
therefore begin with what one can expect on the page: goals that are clicked one after the other, in chains of
five. A fallen robot gets up there, with a fresh start, and goals farther away than any in training are
approached in stages; `reached_without_fall` counts goals that were reached with no fall on the way. The
stricter number beside it is of an evaluation: goals of the environment's own distribution, and a fall ends a
chain, whose other goals count as missed. {fixed}

`python tools/train_policies.py` trains, compares, exports and measures all of them, as `tools/policies.toml`
says, and records their outputs for the tests; those that need a GPU are skipped if there is none. This page
is written by `python tools/make_see.py` from the model cards in the files.

"""


def pictures() -> None:
    """Last frames of films, paths and critic maps of the shipped policies."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    at = lambda name: str(PICTURES / f"{name}.png")
    size = ("--width", "320", "--height", "240")
    homing(
        [
            "render",
            "reacher",
            "--seed",
            "all",
            "--goal",
            "0.1,0.1",
            "--steps",
            "60",
            "--out",
            at("film"),
            *size,
        ]
    )
    homing(["render", "point_u_maze", "--paths", "--episodes", "48", "--out", at("paths")])
    homing(["render", "point_u_maze", "--map", "states", "--goal", "12,4", "--out", at("map")])
    for picture in PICTURES.glob("*.png"):
        shrink(picture)


def shrink(path: Path) -> None:
    Image.open(path).convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE).save(path, optimize=True)


def page() -> None:
    """The gallery and the page of `homing play`, as a browser draws them."""
    from playwright.sync_api import sync_playwright

    from homing.play.server import Player, free_port, running
    from homing.play.session import Choice, Session

    choose_device(cpu=True)
    session = Session(Choice("point_u_maze"), shipped_names())
    session.sim.set_goal((12.0, 6.0))
    player = Player(session, free_port(None)[0], "point_u_maze · Homing")
    player.page.critic.value = True
    with running(player), sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        shown = browser.new_page(viewport={"width": 1100, "height": 700})
        shown.goto(f"{player.address}?gallery")
        shown.wait_for_load_state("networkidle")
        shown.screenshot(path=str(PICTURES / "gallery.png"), full_page=True)
        shown.goto(player.address)
        shown.wait_for_selector("text=distance", timeout=180_000)
        shown.add_style_tag(content=".mantine-Notifications-root { display: none }")
        time.sleep(12)  # the robot is on its way, and WebGL in software is slow
        shown.screenshot(path=str(PICTURES / "play.png"), timeout=120_000)
        browser.close()
    for name in ("gallery", "play"):
        shrink(PICTURES / f"{name}.png")


def cards() -> None:
    """docs/policies.md"""
    found = {name: find_policies(name).card for name in shipped_names()}
    fixed = [f"`{name}`" for name, card in found.items() if "chain" not in card]
    told = f"{', '.join(fixed)}: trained from one start, and elsewhere it may stop short." if fixed else ""
    cards = [markdown(name, card, shipped(name).stat().st_size) for name, card in found.items()]
    head = HEAD.replace("{fixed}", told).replace(" \n", "\n")
    (DOCS / "policies.md").write_text(head + "\n".join(cards).rstrip() + "\n")


if __name__ == "__main__":
    pictures()
    cards()
    if CHROMIUM.exists():
        page()
    else:
        print(f"no {CHROMIUM}: the picture of the page stays as it is")
