"""The page as one self-contained HTML file, which loads nothing from elsewhere."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from homing.report.films import KINDS, film_size, read_film
from homing.report.reading import RunRecord, printable, short_names

SCRIPTS = ("base.js", "keys.js", "save.js", "chart.js", "sections.js", "app.js")
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
    entries, used = [], 0
    names = short_names([record.path for record in records])
    for record, run in zip(records, names, strict=True):
        for path in record.films:
            size = film_size(path)
            if size is None:
                continue
            fits = size <= FILM_BYTES and used + size <= FILMS_BYTES
            data = read_film(path, range(size)) if fits else None
            used += len(data) if data is not None else 0
            entries.append(
                film_entry(run, path, size, _data_address(path, data) if data is not None else None)
            )
    return entries


def film_entry(run: str, path: Path, size: int, src: str | None) -> dict[str, Any]:
    """A film as the page shows it: `src` is its address, None where it is too large."""
    kind = "image" if KINDS[path.suffix].startswith("image") else "video"
    why = None if src else f"{size / 2**20:.0f} MiB, too large to embed: {printable(str(path))}"
    return {"run": run, "name": printable(path.name), "kind": kind, "src": src, "why": why}


def _data_address(path: Path, data: bytes) -> str:
    return f"data:{KINDS[path.suffix]};base64,{base64.b64encode(data).decode()}"
