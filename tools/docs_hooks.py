"""mkdocs hooks: pages from other parts of the repository, and links between them."""

from __future__ import annotations

import base64
import functools
import json
import os
import posixpath
import re
from pathlib import Path
from typing import Any

import docs_reference
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")
FIGURE = re.compile(r"(!\[[^\]]+\]\()([^)\s:]+\.png)(?=\))")
LONG = 40  # characters of code that a table cell breaks into lines
SECTIONS = {
    "Agents": "agents/",
    "Environments": "environments/",
    "How to": "howto/",
    "Ecosystem": "ecosystem/",
}
# Files of the repository that are pages of the site.
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "results/README.md": "results.md",
    "README.md": "index.md",
}


@functools.cache
def pages() -> dict[str, str]:
    """Pages made from files outside of docs/, by their place on the site."""
    made = {place: (ROOT / name).read_text() for name, place in ELSEWHERE.items() if place != "index.md"}
    made |= {"api.md": docs_reference.api_page(), "commands.md": docs_reference.commands_page()}
    for path in sorted((ROOT / "examples").glob("*.py")):
        made[f"examples/{path.stem}.md"] = example_page(path)
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"{path.stem}.md"] = notebook_page(path)
    return made


def example_page(path: Path) -> str:
    source = path.read_text()
    title = source.split('"""')[1].split("\n")[0]
    return f"# {path.stem.replace('_', ' ').capitalize()}\n\n{title}\n\n```python\n{source}```\n"


def notebook_page(path: Path) -> str:
    """Text, code and outputs of a notebook."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [
            shown
            for k, output in enumerate(cell.get("outputs", ()))
            if (shown := _output(path, cell, k, output))
        ]
    note = f"This page is a notebook: [download it](notebooks/{path.name}) and run it with Jupyter.\n"
    return "\n\n".join([parts[0], note, *parts[1:]]) + "\n"


def _output(path: Path, cell: dict[str, Any], k: int, output: dict[str, Any]) -> str:
    """What a cell printed, returned or drew."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![Output]({picture_place(path, cell, k)})"
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"```text\n{text}\n```" if text else ""


def picture_place(path: Path, cell: dict[str, Any], k: int) -> str:
    return f"images/notebooks/{path.stem}-{cell['id']}-{k}.png"


def notebook_pictures() -> dict[str, bytes]:
    """Pictures that cells of notebooks drew, by their place on the site."""
    found = {}
    for path in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            for k, output in enumerate(cell.get("outputs", ())):
                if "image/png" in output.get("data", {}):
                    picture = "".join(output["data"]["image/png"])
                    found[picture_place(path, cell, k)] = base64.b64decode(picture)
    return found


def on_config(config: Any) -> Any:
    """Pages that the nav does not name go to their folder's section, or to More; examples have a section."""
    if not config["site_url"]:  # not published, so there are no other versions to ask for
        config["extra"].pop("version", None)
    docs, nav = Path(config["docs_dir"]), config["nav"]
    left = _names(docs, docs) - set(_leaves(nav))
    for title, folder in SECTIONS.items():
        section = next(part[title] for part in nav if title in part)
        section += sorted(page for page in left if page.startswith(folder))
    examples = [page for page in pages() if page.startswith("examples/")]
    more = sorted(_names(docs, docs) - set(_leaves(nav)))
    nav += [{"Examples": examples}, {"More": more}]
    config["nav"] = [part for part in nav if all(part.values())]
    return config


def _names(folder: Path, docs: Path) -> set[str]:
    return {path.relative_to(docs).as_posix() for path in folder.rglob("*.md")}


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    items = nav.values() if isinstance(nav, dict) else nav
    return [leaf for item in items for leaf in _leaves(item)]


def on_files(files: Files, config: Any) -> Files:
    for place, text in pages().items():
        files.append(File.generated(config, place, content=text))
    for place, content in notebook_pictures().items():
        files.append(File.generated(config, place, content=content))
    for path in sorted((ROOT / "results").rglob("*.png")):
        place = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Commands may be broken into lines in tables, ids and flags not: else they are as wide as the command."""
    return re.sub(rf"<code>(?=[^<]{{{LONG},}}</code>)", '<code class="long">', html)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that leave docs/ lead to the site's own pages, or are plain words where it has none."""
    place = page.file.src_uri
    origin = next((name for name, made in ELSEWHERE.items() if made == place and place != "index.md"), None)
    base = posixpath.dirname(origin or f"docs/{place}")

    def replace(match: re.Match) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        if ":" in target:
            return match.group(0)
        path = posixpath.normpath(posixpath.join(base, target))
        there = _on_site(path)
        if there is None:
            return match.group(0) if path.startswith("docs/") else text
        return f"[{text}]({os.path.relpath(there, posixpath.dirname(place) or '.')}{anchor})"

    def figure(match: re.Match) -> str:
        """Figures of results/ are on the site under the same path."""
        path = posixpath.normpath(posixpath.join(base, match.group(2)))
        if not path.startswith("results/"):
            return match.group(0)
        return match.group(1) + os.path.relpath(path, posixpath.dirname(place) or ".")

    return LINK.sub(replace, FIGURE.sub(figure, markdown))


def _on_site(path: str) -> str | None:
    """Where a file of the repository is on the site."""
    if path in ELSEWHERE:
        return ELSEWHERE[path]
    if path.startswith("examples/") and path.endswith(".py"):
        return path.removesuffix(".py") + ".md"
    return path.removeprefix("docs/") if path.startswith("docs/") else None
