"""The pages that a browser can open: the gallery of shipped policies, and the page that plays one."""

from __future__ import annotations

import base64
import contextlib
import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs, quote

from homing.errors import HomingError
from homing.play.client_page import ICON_ADDRESS, client_page
from homing.policies import shipped, shipped_names
from homing.policies.bundled import picture
from homing.policies.card import Card, on_page
from homing.policies.store import read_card

MAX_FIELDS = 8  # of a query
GALLERY, PLAY = "gallery", "play"
STYLE = """
:root { color-scheme: light dark; --ink: #1d2b27; --soft: #5c6b66; --card: #fff; --ground: #eef1f0; --ours: #246e5a }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8efec; --soft: #9fb0aa; --card: #1d2523; --ground: #141a18; --ours: #58c4a3 } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--ground) }
h1 { margin: 0; font-size: 1.6rem } h2 { margin: 0; font-size: 1.1rem; overflow-wrap: anywhere } p { margin: .3rem 0 }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(16rem, 1fr)); gap: 1.2rem; margin: 1.5rem 0 }
a.card { background: var(--card); color: inherit; text-decoration: none; border-radius: .7rem; overflow: hidden;
  box-shadow: 0 1px 4px #0003; transition: transform .1s }
a.card:hover, a.card:focus-visible { transform: translateY(-3px); outline: 3px solid var(--ours) }
a.card img, .blank { display: block; width: 100%; aspect-ratio: 4 / 3; object-fit: cover; background: #d5dcd9 }
.text { padding: .8rem 1rem 1rem } .soft { color: var(--soft); font-size: .9rem } b { color: var(--ours) }
code { font-size: .9em }
"""


@dataclass
class Pages:
    """Which page answers a request, by its query; what a browser may open by name is a shipped policy.

    title:       of the page that plays, before another policy is chosen in the gallery
    has_gallery: the address without a query is that of the gallery
    """

    title: str
    has_gallery: bool = False
    on_open: Callable[[str], None] = lambda name: None

    def __call__(self, query: str) -> bytes | None:
        """The page of a query; None if there is none."""
        try:
            fields = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            return None
        if PLAY in fields:
            return self._playing(fields[PLAY])
        if GALLERY in fields or self.has_gallery:
            return self.gallery
        return client_page(self.title)

    def _playing(self, names: list[str]) -> bytes | None:
        if len(names) != 1 or names[0] not in shipped_names():
            return None
        self.on_open(names[0])
        return client_page(f"{names[0]} · Homing")

    @cached_property
    def gallery(self) -> bytes:
        cards = "\n".join(_card(name) for name in shipped_names())
        return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Homing</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="{ICON_ADDRESS}"><style>{STYLE}</style></head><body>
<h1>Homing</h1>
<p>Policies that come with the package. Choose one, then click where it should go.</p>
<main class="cards">
{cards}
</main>
<p class="soft">Yours: <code>homing play runs/…</code> plays what you trained, and follows a run while it trains.</p>
</body></html>""".encode()


def _card(name: str) -> str:
    card: Card = {"scores": []}
    with contextlib.suppress(HomingError):  # the page that plays it tells what is wrong
        card = read_card(shipped(name))
    config = card.get("config", {})
    about = " · ".join(str(config[key]) for key in ("env", "agent") if key in config)
    return f"""<a class="card" href="?{PLAY}={quote(name)}">{_image(name)}<div class="text">
<h2>{html.escape(name)}</h2><p class="soft">{html.escape(about)}</p>
<p>{_numbers(card)}</p></div></a>"""


def _image(name: str) -> str:
    path = picture(name)
    if path is None:
        return '<div class="blank"></div>'
    data = base64.b64encode(path.read_bytes()).decode()
    return f'<img src="data:image/png;base64,{data}" alt="">'


def _numbers(card: Mapping[str, Any]) -> str:
    """Success in a few words: on the page and stricter where they were measured, else of single goals."""
    chain = card.get("chain", {})
    found, along = on_page(card), [row["reached"] for row in chain.get("scores", ()) if "reached" in row]
    if found:
        rate, what = found
        strict = (
            f'<br><span class="soft">{_percent(max(along))} where a fall ends a chain</span>' if along else ""
        )
        return f"<b>{_percent(rate)}</b> {what}{strict}"
    if along:
        return f"<b>{_percent(max(along))}</b> of goals reached, in chains of {chain.get('length', '?')}"
    rates = [row["success_any"] for row in card["scores"] if "success_any" in row]
    return f"<b>{_percent(max(rates))}</b> of single goals reached" if rates else "not evaluated"


def _percent(fraction: float) -> str:
    """Never rounded up to all of them."""
    return f"{min(100.0 * fraction, 99.9) if fraction < 1 else 100.0:.3g} %"
