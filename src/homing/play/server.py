"""Serving the page, to this machine only unless another host name is given."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import viser
from websockets.asyncio.server import ServerConnection

from homing.errors import ConfigError, HomingError
from homing.play.guard import LOOPBACK, Guard, guarded, new_token
from homing.play.memory import Housekeeping
from homing.play.page import Page, set_theme
from homing.play.pages import Pages
from homing.play.reporting import LOG, notify, one_line
from homing.play.session import Session
from homing.play.sources import Choice
from homing.play.status import loading, plain
from homing.viz.video import Actor

HOST = "127.0.0.1"
PORT, TRIES = 8080, 20
PERIOD = 1.0 / 60.0  # seconds between two iterations of the loop


def check_host(host: str) -> None:
    """Refuse a host that this machine does not have, and one that stands for every name."""
    if host in ("", "0.0.0.0", "::"):
        raise ConfigError(
            f"--host {host or '(empty)'} would answer to any name; give the name or address of this machine "
            "that browsers will use, for instance --host 192.168.1.20"
        )
    try:
        with _socket(host) as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on --host {host}: {error.strerror or error}; give a name or address of this "
            f"machine, or leave it out for {HOST}"
        ) from error


def free_port(port: int | None, host: str = HOST) -> tuple[int, str | None]:
    """The port to use, and a message if it is not the default; a requested port is used or refused."""
    if port is not None:
        if not 1 <= port <= 65535:
            raise ConfigError(f"a port is a number from 1 to 65535, not {port}")
        if not _is_free(host, port):
            raise HomingError(f"port {port} is taken by another program; choose another with --port")
        return port, None
    for candidate in range(PORT, PORT + TRIES):
        if _is_free(host, candidate):
            message = f"port {PORT} is taken by another program; this page is on {candidate}"
            return candidate, message if candidate != PORT else None
    raise HomingError(f"ports {PORT} to {PORT + TRIES - 1} are all taken; choose one with --port")


def _is_free(host: str, port: int) -> bool:
    with _socket(host) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)


class Player:
    """A session, its page and the guarded server; `run` until stopped."""

    def __init__(
        self,
        session: Session | None,
        port: int,
        label: str,
        host: str = HOST,
        sources: Sequence[str] = (),
        has_gallery: bool = False,
        is_ending: Callable[[], bool] = lambda: False,
    ):
        """Without a session, one of the `sources` is loaded when it is opened, by `open` or in the gallery.

        is_ending: whether a signal is ending the process; an error may then be what a library made of it
        """
        self.host, self.sources = host, tuple(sources)
        self._session: Session | None = None
        self._next: tuple[Choice, Actor | None] | None = None
        self._pages = Pages(label, has_gallery, on_open=lambda name: self.open(Choice(name)))
        self.guard = Guard(host, new_token(), self._pages, on_refused=self._refused)
        self.server = self._started(port, label)
        set_theme(self.server.gui)
        self._waiting = self.server.gui.add_markdown("### Choose a policy in the gallery")
        self._stop, self._is_ending = threading.Event(), is_ending
        self._last_error = ""
        self._housekeeping = Housekeeping()
        if session is not None:
            self._attach(session)

    @property
    def session(self) -> Session:
        if self._session is None:
            raise HomingError("nothing is played yet")
        return self._session

    def open(self, choice: Choice, actor: Actor | None = None) -> None:
        """Play something, or something else; from any thread. `actor` is that of the choice, if it is made."""
        if self._session is None:
            self._next = (choice, actor)
            self._waiting.content = loading(choice)
        elif self._session.choice.source != choice.source:
            self.page.choose(choice)

    def _attach(self, session: Session) -> None:
        self._waiting.remove()
        self.page = Page(self.server, session, self.guard.checks)
        self._session = session

    def _load(self) -> None:
        """Wait for a choice and load it; one that fails leaves the gallery to choose another."""
        while self._session is None and not self._stop.is_set():
            if self._next is None:
                time.sleep(PERIOD)
                continue
            (choice, actor), self._next = self._next, None
            try:
                self._attach(Session(choice, self.sources, actor))
            except Exception as error:
                if not self._pages.has_gallery:
                    raise
                LOG.error("homing play: %s", one_line(error))
                self._waiting.content = f"⚠ {plain(one_line(error))}"
        if self._next is not None:  # opened in the meantime
            self.open(*self._next)

    def _started(self, port: int, label: str) -> viser.ViserServer:
        # viser prints addresses of its own, which lack the token.
        with guarded(self.guard), contextlib.redirect_stdout(io.StringIO()):
            server = viser.ViserServer(host=self.host, port=port, label=label, verbose=False)
        if not self.guard.serving:
            _stop(server)
            raise HomingError(f"viser {viser.__version__} cannot be guarded: pip install 'viser>=1.1,<1.2'")
        if server.get_port() != port:
            _stop(server)
            raise HomingError(f"port {port} was taken in the meantime; start again or choose one with --port")
        return server

    @property
    def origin(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.server.get_port()}"

    @property
    def address(self) -> str:
        """The page's address with its token; without the token nothing is served."""
        return f"{self.origin}/{self.guard.token}/"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOOPBACK

    def run(self, on_ready: Callable[[Session], None] = lambda session: None) -> None:
        """Load what was opened, then advance it in real time and show it."""
        self._load()
        if self._session is not None:
            on_ready(self._session)
        last = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            self._contained(lambda seconds=now - last: self.session.advance(seconds))
            self._contained(self.page.show)
            self._contained(lambda: self._housekeeping(self.session.version))
            last = now
            time.sleep(max(0.0, PERIOD - (time.monotonic() - now)))

    def _contained(self, action: Callable[[], object]) -> None:
        """An error is logged once, not at each iteration, and the page stays up."""
        try:
            action()
        except Exception as error:
            if self._is_ending():
                raise
            message = one_line(error)
            if message != self._last_error:
                LOG.error("homing play: %s", message)
            self._last_error = self.session.message = message

    def _refused(self, connection: ServerConnection, reason: str) -> None:
        live = self.server._websock_server._live_connections
        for id, client in self.server.get_clients().items():
            if live.get(id) is connection:
                notify(client, reason)

    def stop(self) -> None:
        self._stop.set()
        _stop(self.server)


def _stop(server: viser.ViserServer) -> None:
    """Stop a server, which would print a line of its own."""
    with contextlib.redirect_stdout(io.StringIO()):
        server.stop()


@contextlib.contextmanager
def running(player: Player) -> Iterator[Player]:
    """A player that runs in a thread of its own."""
    thread = threading.Thread(target=player.run, daemon=True)
    thread.start()
    try:
        yield player
    finally:
        player._stop.set()
        thread.join(10)
        player.stop()
