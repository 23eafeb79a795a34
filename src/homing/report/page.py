"""One page that holds everything it shows: no address outside of it is ever asked."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from homing.report.reading import RunRecord, short_names

SCRIPTS = ("base.js", "chart.js", "sections.js", "app.js")
KINDS = {".mp4": "video/mp4", ".webm": "video/webm", ".gif": "image/gif", ".png": "image/png"}
FILM_BYTES, FILMS_BYTES = 12 * 2**20, 80 * 2**20  # of one embedded film, and of all


def page_html(content: Mapping[str, Any]) -> str:
    """The page as one text."""
    assets = resources.files("homing.report") / "assets"

    def read(name: str) -> str:
        return (assets / name).read_text(encoding="utf-8")

    parts = {
        "title": html.escape(content["title"]),
        "style": read("page.css"),
        # "<" could end the element that holds the data.
        "data": json.dumps(content, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "script": "\n".join(read(name) for name in SCRIPTS),
    }
    page = read("page.html")
    head, *rest = page.split("{{")
    return head + "".join(parts[name] + after for name, after in (piece.split("}}", 1) for piece in rest))


def embedded_films(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Films of runs as data; one that is too large is named with its place."""
    told, used = [], 0
    names = short_names([record.path for record in records])
    for record, run in zip(records, names, strict=True):
        for path in record.films:
            size = path.stat().st_size
            fits = size <= FILM_BYTES and used + size <= FILMS_BYTES
            used += size if fits else 0
            told.append(film_entry(run, path, _data_address(path) if fits else None))
    return told


def film_entry(run: str, path: Path, src: str | None) -> dict[str, Any]:
    kind = "image" if KINDS[path.suffix].startswith("image") else "video"
    size = path.stat().st_size / 2**20
    why = None if src else f"{size:.0f} MiB, too large to embed: {path}"
    return {"run": run, "name": path.name, "kind": kind, "src": src, "why": why}


def _data_address(path: Path) -> str:
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(path.read_bytes()).decode()}"
