"""Serving the page, on this machine only."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator

import viser

from homing.errors import ConfigError, HomingError
from homing.play.page import Page
from homing.play.session import Session

HOST = "127.0.0.1"  # never anything else: whoever reaches the page moves the robot
PORT, TRIES = 8080, 20
PERIOD = 1.0 / 60.0  # seconds between two looks at the clock


def free_port(port: int | None) -> tuple[int, str | None]:
    """The port to use, and what to say of it: a port that was asked for is taken or refused."""
    if port is not None:
        if not 1 <= port <= 65535:
            raise ConfigError(f"a port is a number from 1 to 65535, not {port}")
        if not _is_free(port):
            raise HomingError(f"port {port} is taken by another program; choose another with --port")
        return port, None
    for candidate in range(PORT, PORT + TRIES):
        if _is_free(candidate):
            said = f"port {PORT} is taken by another program; this page is on {candidate}"
            return candidate, said if candidate != PORT else None
    raise HomingError(f"ports {PORT} to {PORT + TRIES - 1} are all taken; choose one with --port")


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


class Player:
    """A session and its page; `run` until stopped."""

    def __init__(self, session: Session, port: int, label: str):
        self.session = session
        with contextlib.redirect_stdout(io.StringIO()):  # the address is told once, in our words
            self.server = viser.ViserServer(host=HOST, port=port, label=label, verbose=False)
        if self.server.get_port() != port:
            self.server.stop()
            raise HomingError(f"port {port} was taken in the meantime; start again or choose one with --port")
        self.page = Page(self.server, session)
        self._stop = threading.Event()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server.get_port()}"

    def run(self) -> None:
        """Follow the clock."""
        last = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            self.session.work(now - last)
            self.page.show()
            last = now
            time.sleep(max(0.0, PERIOD - (time.monotonic() - now)))

    def stop(self) -> None:
        self._stop.set()
        self.server.stop()


@contextlib.contextmanager
def running(player: Player) -> Iterator[Player]:
    """A player that runs beside the caller."""
    thread = threading.Thread(target=player.run, daemon=True)
    thread.start()
    try:
        yield player
    finally:
        player._stop.set()
        thread.join(10)
        player.server.stop()
