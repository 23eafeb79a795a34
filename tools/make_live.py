"""Write a page in docs/live/ for every shipped policy, and the lists of them in the docs.

A page computes its policy and physics; where a browser cannot, it replays recordings and is listed as such.

python tools/make_live.py             all pages; those of policies that are shipped no more are removed
python tools/make_live.py ant         some of them
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from homing.policies import shipped_names
from homing.share.page import write_page
from homing.share.sources import make_actor

FIRST = "ant"  # on the first page, where it is among them
DOCS = Path(__file__).parent.parent / "docs"
HOME = "index.md", "<!-- begin live -->", "<!-- end live -->"
SHARE = "share.md", "<!-- begin live pages -->", "<!-- end live pages -->"


def title(path: Path) -> str:
    """The title of a page without the name of the project, which all have."""
    with path.open() as page:  # it holds megabytes of data; the title comes first
        found = re.search(r"<title>(.*?)</title>", page.read(4096), re.S)
    return found[1].strip().removesuffix(" · Homing") if found else path.stem.replace("_", " ")


def is_recorded(path: Path) -> bool:
    """Whether a page replays recordings."""
    return '"kind":"recorded"' in path.read_text()


def entries(docs: Path = DOCS) -> list[str]:
    """A line of Markdown for each page that there is."""
    note = lambda path: " (recordings with a scrubber)" if is_recorded(path) else ""
    pages = sorted((docs / "live").glob("*.html"))
    return [f"- [{title(path)}](live/{path.name}){note(path)}" for path in pages]


def home(docs: Path = DOCS) -> str:
    """The section of the first page, with an agent in it; nothing where there are no pages."""
    if not (lines := entries(docs)):
        return ""
    about = "Agents that run in your browser: click a goal, and they go there."
    pages = (docs / "live").glob("*.html")
    shown = max(pages, key=lambda page: (page.stem == FIRST, -page.stat().st_size))
    return "\n".join(["## Live", "", about, "", framed(shown), "", *lines])


def framed(path: Path) -> str:
    """A page inside of another, loaded when it comes into view."""
    return f'<iframe class="live" src="live/{path.name}" title="{title(path)}" loading="lazy"></iframe>'


def frame(docs: Path = DOCS) -> str:
    """The smallest page that computes inside of this one, and a list of all."""
    if not (lines := entries(docs)):
        return ""
    path = min((docs / "live").glob("*.html"), key=lambda page: (is_recorded(page), page.stat().st_size))
    return "\n".join([framed(path), "", "On a page of their own:", "", *lines])


def write_lists(docs: Path = DOCS) -> None:
    """Write the lists again, from the pages that there are."""
    for (name, begin, end), text in ((HOME, home(docs)), (SHARE, frame(docs))):
        before, rest = (docs / name).read_text().split(begin)
        (docs / name).write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


def main(names: Sequence[str] = ()) -> None:
    for name in names or shipped_names():
        written = write_page(make_actor(name), DOCS / "live" / f"{name}.html")
        print(f"{written.path} ({written.path.stat().st_size / 1e6:.2f} MB)", flush=True)
    for path in (DOCS / "live").glob("*.html"):
        if path.stem not in shipped_names():
            path.unlink()
    write_lists()


if __name__ == "__main__":
    main(sys.argv[1:])
