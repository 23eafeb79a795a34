"""Serves a live page to this machine only."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
import webbrowser
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from homing.errors import ConfigError, HomingError
from homing.report.films import KINDS, film_size, read_film
from homing.report.groups import By
from homing.report.live import Live
from homing.report.page import page_html
from homing.report.reading import find_runs

HOST = "127.0.0.1"


class Handler(BaseHTTPRequestHandler):
    """`/` is the page, `/data.json` what it shows now, `/film/3` a film."""

    def __init__(self, live: Live, *args):
        self._live = live
        super().__init__(*args)

    def do_GET(self) -> None:
        # A page of another site must not reach this one through a name that it points here.
        if not is_own_host(self.headers.get("Host")):
            self.send_error(HTTPStatus.FORBIDDEN, "this page is for its own machine")
            return
        asked = urlsplit(self.path)
        if asked.path == "/":
            self._answer("text/html; charset=utf-8", page_html(self._live.page()).encode())
        elif asked.path == "/data.json":
            self._data(parse_qs(asked.query).get("seen", [""])[0])
        elif asked.path.startswith("/film/"):
            self._film(asked.path.removeprefix("/film/"))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _data(self, seen: str) -> None:
        page = self._live.page()
        if page["stamp"] == seen:
            self.send_response(HTTPStatus.NO_CONTENT)
            self.end_headers()
            return
        self._answer("application/json", json.dumps(page, allow_nan=False).encode())

    def _film(self, number: str) -> None:
        film = self._live.film(int(number)) if re.fullmatch("[0-9]{1,6}", number) else None
        size = film_size(film) if film is not None else None
        if film is None or size is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        part = byte_range(self.headers.get("Range"), size)
        body = read_film(film, part or range(size))
        if body is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content_range = f"bytes {part.start}-{part.stop - 1}/{size}" if part is not None else None
        self._answer(KINDS[film.suffix], body, content_range)

    def _answer(self, kind: str, body: bytes, part: str | None = None) -> None:
        self.send_response(HTTPStatus.OK if part is None else HTTPStatus.PARTIAL_CONTENT)
        if part is not None:
            self.send_header("Content-Range", part)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args) -> None:
        """Nothing: a page asks every few seconds."""


def is_own_host(host: str | None) -> bool:
    """Whether a Host header names this machine; browsers leave out port 80."""
    return re.fullmatch(r"(?:127\.0\.0\.1|localhost)(?::[0-9]{1,5})?", host or "") is not None


def byte_range(asked: str | None, size: int) -> range | None:
    """The bytes that a Range header asks for; None if it asks for all or cannot be served."""
    found = re.fullmatch(r"bytes=([0-9]{1,15})-([0-9]{0,15})", asked or "")
    if found is None:
        return None
    start, last = int(found[1]), int(found[2] or size - 1)
    return range(start, min(last + 1, size)) if start <= last and start < size else None


class Server(ThreadingHTTPServer):
    """One thread for each request."""

    daemon_threads = True

    def handle_error(self, request, client_address) -> None:
        """One line for an error; a browser that goes away in the middle of an answer is none."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            print(f"homing watch: a request failed ({type(error).__name__}: {error})", file=sys.stderr)


def make_server(live: Live, port: int) -> Server:
    """A server on this machine's own address; HomingError where the port is taken."""
    if not 0 <= port <= 65_535:
        raise ConfigError(
            f"there is no port {port}; choose one from 1024 to 65535, or 0 for any that is free"
        )
    try:
        return Server((HOST, port), partial(Handler, live))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise HomingError(
                f"port {port} is taken, perhaps by another `homing watch`; "
                "choose another with --port, or --port 0 for any that is free"
            ) from error
        raise HomingError(
            f"cannot listen on port {port}: {error.strerror}; choose another with --port"
        ) from error


def watch_runs(
    places: Sequence[str | Path],
    *,
    port: int,
    by: By = "settings",
    title: str | None = None,
    browser: bool = True,
) -> None:
    """Serve the page until Ctrl-C."""
    missing = [place for place in places if not Path(place).is_dir()]
    if missing:
        find_runs(missing)  # names what is wrong, unless they are patterns that fit
    with make_server(Live(places, by, title), port) as server:
        address = f"http://{HOST}:{server.server_address[1]}/"
        print(f"{address} shows {', '.join(map(str, places))} and follows it; only this machine can open it")
        print("Ctrl-C ends it", flush=True)
        if browser and _has_screen():
            webbrowser.open(address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            print()


def _has_screen() -> bool:
    """Whether there is a display; without one, a text browser would take over the terminal."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in screens)
