"""The page: one HTML file that holds program, constants, resets and viewer, and asks nothing of any server."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from homing.errors import ConfigError, HomingError
from homing.runs.folder import write_with
from homing.share import film, scene
from homing.share.simulator import MAP_BATCH, MAP_CELLS, Simulator, simulator, why_recorded
from homing.share.values import as_words
from homing.viz.video import Actor

SCRIPTS = ("machine.js", "goals.js", "sources.js", "shapes.js", "view.js", "controls.js", "app.js")
LARGEST = 3 * 10**6  # bytes of a page


def live_page(actor: Actor, seed: int = 0) -> str:
    """A page that computes physics, policy and critic map."""
    made = simulator(actor, seed)
    content = scene.describe(actor) | {"kind": "live", **_program(made)}
    return page_html(
        content, {"code": made.program.code, "constants": made.program.constants, **_resets(made)}
    )


def recorded_page(actor: Actor, seed: int = 0) -> str:
    """A page that replays recordings."""
    about, frames = film.packed(film.record(actor, seed))
    return page_html(scene.describe(actor) | {"kind": "recorded", **about}, {"frames": frames})


def _program(made: Simulator) -> dict[str, Any]:
    return {
        "program": made.program.description,
        "carry": list(made.carry),
        "resets": len(made.resets["goal"]),
        "map": {"cells": MAP_CELLS, "batch": MAP_BATCH} if made.has_critic else None,
    }


def _resets(made: Simulator) -> dict[str, bytes]:
    """Resets one after the other, each the words of all arrays of the carry and of the goal."""
    names = (*made.carry, "goal")
    rows = [
        as_words(x[k], x.dtype)
        for k in range(len(made.resets["goal"]))
        for x in (made.resets[n] for n in names)
    ]
    return {"resets": b"".join(rows)}


def page_html(content: Mapping[str, Any], blobs: Mapping[str, bytes]) -> str:
    """The page as one text."""
    assets = resources.files("homing.share") / "assets"
    read = lambda name: (assets / name).read_text(encoding="utf-8")
    viewer = (assets / "three.min.js").read_bytes()
    parts = {
        "title": html.escape(content["title"]),
        "style": read("page.css"),
        # "<" could end the element that holds the data.
        "data": json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "blobs": "\n".join(_blob(name, data) for name, data in {**blobs, "viewer": viewer}.items()),
        "licence": html.escape(read("LICENSE.three.txt").strip()),
        "script": "\n".join(read(name) for name in SCRIPTS),
    }
    head, *rest = read("page.html").split("{{")
    return head + "".join(parts[name] + after for name, after in (piece.split("}}", 1) for piece in rest))


def _blob(name: str, data: bytes) -> str:
    text = base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()
    return f'<script type="text/plain" id="blob-{name}">{text}</script>'


def check_out(out: Path) -> Path:
    """Refuse a name that is no page's."""
    if out.suffix not in (".html", ".htm"):
        raise ConfigError(f"a page ends in .html, not in {out.suffix or out.name!r}")
    return out


class Written(NamedTuple):
    """A page on the disk; `note` says why it replays recordings, empty if that was asked for or it computes."""

    path: Path
    note: str


def write_page(actor: Actor, out: Path, recorded: bool = False, seed: int = 0) -> Written:
    """Write a page that computes or, where that is impossible or `recorded`, one that replays recordings."""
    note = "" if recorded else why_recorded(actor.env)
    data = (recorded_page if recorded or note else live_page)(actor, seed).encode()
    if len(data) > LARGEST:
        raise HomingError(
            f"the page would have {len(data) / 1e6:.1f} MB, more than {LARGEST / 1e6:g}: its networks are too large; "
            "--recorded writes a page with recordings instead"
        )
    write_with(out, lambda file: file.write(data), parents=True, fix="; make room or choose another --out")
    return Written(out, note)
