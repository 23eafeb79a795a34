"""Serving the page, to this machine only unless another host name is given."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Callable, Iterator

import viser
from websockets.asyncio.server import ServerConnection

from homing.errors import ConfigError, HomingError
from homing.play.client_page import client_page
from homing.play.guard import LOOPBACK, Guard, guarded, new_token
from homing.play.memory import Housekeeping
from homing.play.page import Page
from homing.play.reporting import LOG, notify, one_line
from homing.play.session import Session

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

    def __init__(self, session: Session, port: int, label: str, host: str = HOST):
        self.session, self.host = session, host
        self.guard = Guard(host, new_token(), client_page(label), on_refused=self._refused)
        self.server = self._started(port, label)
        self.page = Page(self.server, session, self.guard.checks)
        self._stop = threading.Event()
        self._last_error = ""
        self._housekeeping = Housekeeping()

    def _started(self, port: int, label: str) -> viser.ViserServer:
        # viser prints addresses of its own, which lack the token.
        with guarded(self.guard), contextlib.redirect_stdout(io.StringIO()):
            server = viser.ViserServer(host=self.host, port=port, label=label, verbose=False)
        if not self.guard.serving:
            server.stop()
            raise HomingError(f"viser {viser.__version__} cannot be guarded: pip install 'viser>=1.1,<1.2'")
        if server.get_port() != port:
            server.stop()
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

    def run(self) -> None:
        """Advance the session in real time and show it."""
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
        with contextlib.redirect_stdout(io.StringIO()):
            self.server.stop()


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
