"""Write the pages in docs/live/, in which shipped policies act, and the list of them in docs/share.md."""

from pathlib import Path

from homing.policies import shipped_names
from homing.share.page import write_page
from homing.share.scene import title
from homing.share.sources import make_actor

DOCS = Path(__file__).parent.parent / "docs"
BEGIN, END = "<!-- begin live pages -->", "<!-- end live pages -->"
# Environments with a page, as soon as a policy for them comes with Homing.
WANTED = ("point_u_maze", "ant", "ant_big_maze", "humanoid")


def links(names: list[str]) -> str:
    """The list in Markdown, below the first page itself."""
    frame = (
        f'<iframe src="live/{names[0]}.html" title="{title(names[0])}" loading="lazy" '
        'style="width: 100%; height: 480px; border: 0; border-radius: 12px"></iframe>'
    )
    entries = [f"- [{title(name)}](live/{name}.html)" for name in names]
    return "\n".join([frame, "", "On a page of their own:", "", *entries])


def main() -> None:
    names = [name for name in WANTED if name in shipped_names()]
    for name in names:
        written = write_page(make_actor(name), DOCS / "live" / f"{name}.html")
        print(f"{written.path} ({written.path.stat().st_size / 1e6:.2f} MB)", flush=True)
    page = DOCS / "share.md"
    before, rest = page.read_text().split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{links(names)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
