"""The HTML that browsers get: viser's client with our title and icon."""

from __future__ import annotations

import functools
import html
import re
from pathlib import Path
from urllib.parse import quote

import viser

INDEX = Path(viser.__file__).parent / "client" / "build" / "index.html"
ICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="13" \
fill="none" stroke="#246e5a" stroke-width="4"/><circle cx="16" cy="16" r="6" fill="#e07b39"/></svg>"""
# The client would add its WebSocket's address to the page's, which has the token already. A checkbox that was
# clicked would keep the keyboard, and no shortcut would work until the next click elsewhere.
SCRIPT = """<script>{
  const replace = history.replaceState.bind(history);
  history.replaceState = (state, title) => replace(state, title);
  addEventListener("change", event => event.target.type === "checkbox" && event.target.blur());
}</script>"""
ICON_ADDRESS = f"data:image/svg+xml,{quote(ICON)}"


@functools.lru_cache(maxsize=16)
def client_page(title: str) -> bytes:
    """The page that shows scene and controls, one file without further parts."""
    page = INDEX.read_text(encoding="utf-8")
    head, end, body = page.partition("</title>")
    if not end:
        return page.encode()
    head = re.sub(r"<title>.*", lambda _: f"<title>{html.escape(title)}", head, flags=re.DOTALL)
    icon = f'href="{ICON_ADDRESS}"'
    head = re.sub(r'(rel="icon"\s+)href="[^"]*"', lambda found: found[1] + icon, head)
    head = head.replace('content="Viser client"', 'content="Homing"')
    return (head + end + SCRIPT + body).encode()
