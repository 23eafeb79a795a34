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
CHROMIUM = Path("/usr/bin/chromium")
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


# Search, versions, live pages.


def test_search_needs_no_server_and_nothing_from_elsewhere(site):
    _, out = site
    assert (out / "search" / "search_index.js").read_text().startswith("var __index = {")
    assert "assets/iframe-worker.js" in Page((out / "index.html").read_text()).loads
    assert "../assets/iframe-worker.js" in Page((out / "howto" / "resume.html").read_text()).loads


@pytest.mark.slow
def test_search_works_on_pages_opened_from_the_disk(site):
    if not CHROMIUM.exists():
        pytest.skip("needs Chromium")
    from playwright.sync_api import sync_playwright

    _, out = site
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(CHROMIUM), args=flags)
        page, wrong = browser.new_page(), []
        page.set_default_timeout(120_000)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((out / "index.html").as_uri())
        page.focus("input.md-search__input")
        page.keyboard.type("heartbeat")
        page.wait_for_function("document.querySelectorAll('.md-search-result__item').length > 0")
        found = page.locator(".md-search-result__list").inner_text()
        browser.close()
    assert "Studies" in found and "heartbeat" in found and not wrong


def versions_of(out):
    config = re.search(r'id="__config"[^>]*>(.*?)</script>', (out / "index.html").read_text())[1]
    return json.loads(config).get("version")


def test_versions_are_asked_for_only_where_the_site_is_published(site, monkeypatch):
    from mkdocs.config import load_config

    _, out = site
    assert versions_of(out) is None
    monkeypatch.setenv("SITE_URL", "https://example.org/homing/")
    path = list(sys.path)
    published = load_config(str(ROOT / "mkdocs.yml"))
    published = published.plugins.on_config(published)
    sys.path[:] = path
    assert published["extra"]["version"]["provider"] == "mike"


@pytest.fixture
def make_live():
    import make_live

    return make_live


def test_live_pages_are_listed_where_there_are_some(make_live, tmp_path):
    for name, *marks in (make_live.HOME, make_live.SHARE):
        (tmp_path / name).write_text("\n".join(["before", *marks, "after", ""]))
    make_live.write_lists(tmp_path)
    assert "## Live" not in (tmp_path / "index.md").read_text()
    (tmp_path / "live").mkdir()
    (tmp_path / "live" / "ant.html").write_text("<html><head><title>An ant · Homing</title></head></html>")
    (tmp_path / "live" / "point_u_maze.html").write_text("<html></html>")
    film = '<html><head><title>An arm · Homing</title></head>{"kind":"recorded"}' + " " * 100
    (tmp_path / "live" / "arm.html").write_text(film)
    for _ in range(2):  # making it again changes nothing
        make_live.write_lists(tmp_path)
    text = (tmp_path / "index.md").read_text()
    assert text.startswith("before") and text.endswith("after\n") and text.count("## Live") == 1
    assert "[An ant](live/ant.html)" in text and "[point u maze](live/point_u_maze.html)" in text
    assert text.count("<iframe") == 1 and 'src="live/ant.html"' in text
    text = (tmp_path / "share.md").read_text()
    assert text.count("<iframe") == 1 and 'src="live/point_u_maze.html"' in text, "the smaller one"
    assert "[An arm](live/arm.html) (recordings" in text
    assert "[An ant](live/ant.html)" in text and "[point u maze](live/point_u_maze.html)" in text


def test_the_live_pages_are_listed_as_they_are(make_live):
    for (name, *_), text in ((make_live.HOME, make_live.home()), (make_live.SHARE, make_live.frame())):
        assert text in (ROOT / "docs" / name).read_text(), "run `python tools/make_live.py`"


def test_every_shipped_policy_has_a_page(make_live):
    from homing.policies import find_policies, shipped_names
    from homing.share.simulator import why_recorded

    pages = list((ROOT / "docs" / "live").glob("*.html"))
    assert {path.stem for path in pages} == set(shipped_names()), "run `python tools/make_live.py`"
    for path in pages:  # recordings only of what a browser cannot compute
        env = find_policies(path.stem).choice.make(1)
        assert make_live.is_recorded(path) == bool(why_recorded(env)), path.name
    assert max(path.stat().st_size for path in pages) < 3_000_000


# The notebook.


def notebook():
    return json.loads(NOTEBOOK.read_text())


def test_the_notebook_is_stored_with_its_output():
    cells = [cell for cell in notebook()["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        assert cell["id"]
        compile("".join(cell["source"]), cell["id"], "exec")
        assert cell["outputs"], "run `python tools/make_notebook.py`"
        assert not [output for output in cell["outputs"] if output["output_type"] == "error"]
    outputs = json.dumps([cell["outputs"] for cell in cells])
    assert "image/png" in outputs and "'finished'" in outputs and "Estimate(value=" in outputs
    assert not re.search(r"/(?:root|home|work)/", outputs), "places of the machine that it was run on"
    assert NOTEBOOK.stat().st_size < 500_000
    sources = ["".join(cell["source"]) for cell in cells]
    assert any("homing.train(" in text for text in sources) and any(
        "write_report" in text for text in sources
    )


def test_the_page_of_the_notebook_shows_the_output(site):
    _, out = site
    page = (out / "first_ten_minutes.html").read_text()
    assert "Estimate(value=" in page and "images/notebooks/first_ten_minutes-" in page


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


def test_long_commands_in_tables_are_broken_into_lines():
    import docs_hooks

    command = "homing bench train --env ant --seeds 1 10 --no-breakdown"
    html = f"<td><code>{command}</code> <code>ant_u_maze_single_eval</code></td>"
    made = docs_hooks.on_page_content(html)
    assert made == f'<td><code class="long">{command}</code> <code>ant_u_maze_single_eval</code></td>'
