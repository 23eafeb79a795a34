"""The docs' site: it builds without a warning, its links resolve, and it loads nothing from other hosts."""

import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "notebooks" / "first_ten_minutes.ipynb"
LOADS = {"img": "src", "script": "src", "link": "href", "source": "src", "video": "src", "iframe": "src"}


class Page(HTMLParser):
    """What a page loads, where it leads, and the names inside it."""

    def __init__(self, text: str):
        super().__init__()
        self.loads, self.links, self.names = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if (
            tag in LOADS
            and attributes.get(LOADS[tag])
            and attributes.get("rel") not in ("canonical", "next", "prev")
        ):
            self.loads.add(attributes[LOADS[tag]])
        if tag == "a" and attributes.get("href"):
            self.links.add(attributes["href"])
        self.names |= {attributes[name] for name in ("id", "name") if attributes.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The whole site, built strictly: a warning is an error."""
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    out = tmp_path_factory.mktemp("site")
    path = list(sys.path)
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(out), strict=True)
    build(config)
    sys.path[:] = path
    return {p.relative_to(out).as_posix(): Page(p.read_text()) for p in out.rglob("*.html")}, out


def test_the_site_has_its_pages(site):
    pages, out = site
    wanted = {
        "index",
        "getting-started",
        "first_ten_minutes",
        "concepts",
        "gallery",
        "environments",
        "training",
    }
    wanted |= {"report", "api", "commands", "changelog", "results", "architecture", "fidelity"}
    wanted |= {"glossary", "contributing", "agents/srl"}
    wanted |= {f"howto/{name}" for name in ("own-environment", "own-agent", "own-loss", "resume", "gpu")}
    assert {f"{name}.html" for name in wanted} <= set(pages)
    assert (out / "notebooks" / NOTEBOOK.name).is_file()
    agents = {p.stem for p in (ROOT / "docs" / "agents").glob("*.md")}
    assert {f"agents/{name}.html" for name in agents} <= set(pages)


def test_every_link_leads_to_a_page_and_a_name_in_it(site):
    pages, out = site
    wrong = []
    for place, page in pages.items():
        if place == "404.html":  # served for any address, so its links are absolute
            continue
        for link in page.links | page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (out / place).parent / unquote(parts.path) if parts.path else out / place
            name = target.resolve().relative_to(out.resolve()).as_posix() if target.exists() else None
            if name is None or (parts.fragment and name in pages and parts.fragment not in pages[name].names):
                wrong.append(f"{place}: {link}")
    # The theme marks the top of a page by a name that is not there.
    assert not [link for link in wrong if not link.endswith("#__skip")]


def test_the_site_loads_nothing_from_elsewhere(site):
    pages, out = site
    loads = {load for page in pages.values() for load in page.loads}
    assert not {load for load in loads if urlsplit(load).netloc}
    styles = "".join(path.read_text() for path in out.rglob("*.css"))
    assert not re.findall(r"url\([\"']?(?:https?:)?//[^)]*\)", styles)


def test_every_picture_of_the_gallery_is_there():
    from homing.envs import env_ids

    text = (ROOT / "docs" / "gallery.md").read_text()
    for id in env_ids():
        assert f"images/envs/{id}.png" in text, "run `make docs`"
        assert (ROOT / "docs" / "images" / "envs" / f"{id}.png").is_file(), "run `make docs`"


def test_the_reference_tells_what_there_is(site):
    _, out = site
    api, commands = ((out / f"{name}.html").read_text() for name in ("api", "commands"))
    for name in ("train", "resume", "evaluate", "load", "make", "register", "write_report"):
        assert f'id="{name}"' in api
    assert "Environment steps of each seed, all environments together" in api  # settings have their texts
    for name in ("train", "report", "watch", "eval", "render"):
        assert f'id="homing-{name}"' in commands


# The notebook.


def notebook():
    return json.loads(NOTEBOOK.read_text())


def test_the_notebook_is_stored_without_output_and_each_cell_is_python():
    for cell in notebook()["cells"]:
        assert cell["id"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            compile("".join(cell["source"]), cell["id"], "exec")
    sources = ["".join(cell["source"]) for cell in notebook()["cells"]]
    assert any("homing.train(" in text for text in sources) and any(
        "write_report" in text for text in sources
    )


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # Its kernel compiles as these tests do.
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    book = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(book, timeout=600, kernel_name="python3").execute()
    outputs = {c["id"]: c["outputs"] for c in book.cells if c["cell_type"] == "code"}
    shown = json.dumps(list(outputs.values()))
    assert "'finished'" in shown and "image/png" in shown and "Estimate(value=" in shown
    assert list(tmp_path.glob("*/report.html"))
