"""What stands between the network and viser: who may connect, and which messages get through."""

from __future__ import annotations

import asyncio
import contextlib
import http
import logging
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import viser
import websockets.asyncio.server as websockets_server
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from homing.play.protocol import MAX_BYTES, Check, MalformedMessage, RefusedValue, validated
from homing.play.reporting import LOG, one_line

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_CLIENTS = 32
RATE, BURST = 200.0, 400.0  # messages a second and at once; a browser sends about 50 while it drags
NOTICE_PERIOD = 1.0  # seconds between two notices to one browser
OPEN_TIMEOUT, CLOSE_TIMEOUT = 5.0, 2.0  # seconds
POLICY_VIOLATION, INTERNAL_ERROR = 1008, 1011
PROTOCOL = f"viser-v{viser.__version__}"

Handler = Callable[[ServerConnection], Awaitable[None]]
Notify = Callable[[ServerConnection, str], None]
_patching = threading.Lock()
# A refused handshake is no event for the terminal, and websockets would print a traceback.
_silent = logging.getLogger("homing.play.websockets")
_silent.setLevel(logging.CRITICAL + 1)


def new_token() -> str:
    return secrets.token_urlsafe(24)


def host_name(header: str) -> str:
    """The name in a Host header, without its port and the brackets of IPv6."""
    name, colon, port = header.rpartition(":")
    if not colon or not port.isdecimal():
        name = header
    return name.strip("[]").lower()


@dataclass
class Guard:
    """Checks each HTTP request, each WebSocket upgrade and each message of a viser server."""

    host: str
    token: str
    pages: Callable[[str], bytes | None]
    """The page of a query; None if there is none."""
    checks: dict[str, Check] = field(default_factory=dict)
    """For each control on the page, by its uuid, which values it may take."""
    on_refused: Notify = lambda connection, reason: None
    serving: bool = False

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """The response to a request; None lets a WebSocket upgrade proceed."""
        reason = self.refusal(request)
        if reason is not None:
            return _respond(http.HTTPStatus.FORBIDDEN, f"{reason}\n".encode())
        if len(request.path.partition("?")[0].strip("/").split("/")) > 1:
            return _respond(http.HTTPStatus.NOT_FOUND, b"not found\n")
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return self._page(request.headers["Host"], request.path.partition("?")[2])
        if request.headers.get_all("Sec-WebSocket-Protocol") != [PROTOCOL]:
            return _respond(http.HTTPStatus.BAD_REQUEST, b"reload the page: it is of another version\n")
        if len(connection.server.connections) >= MAX_CLIENTS:
            return _respond(http.HTTPStatus.SERVICE_UNAVAILABLE, b"too many browsers are connected\n")
        return None

    def refusal(self, request: Request) -> str | None:
        """Why a request is refused, or None.

        The Host check stops DNS rebinding, the Origin check stops pages of other sites, and the token stops
        everyone who was not given the address.
        """
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or host_name(hosts[0]) not in {*LOOPBACK, self.host.lower()}:
            return "this server does not answer to this host name"
        own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if any(origin.lower() not in own for origin in request.headers.get_all("Origin")):
            return "requests from pages of other sites are refused"
        given = request.path.lstrip("/").partition("?")[0].partition("/")[0]
        if not secrets.compare_digest(given.encode(errors="surrogateescape"), self.token.encode()):
            return "open the whole address that `homing play` printed; it has a token"
        return None

    def _page(self, host: str, query: str) -> Response:
        page = self.pages(query)
        if page is None:
            return _respond(http.HTTPStatus.NOT_FOUND, b"not found\n")
        own = f"ws://{host} wss://{host}"
        policy = (
            "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; "
            f"connect-src 'self' {own} data: blob:; "
            "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return _respond(
            http.HTTPStatus.OK,
            page,
            {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy},
        )

    def serve(self, handler: Handler, host: str, port: int, **options: Any) -> websockets_server.serve:
        """`websockets.serve` with this guard in front of the handler."""
        self.serving = True
        asyncio.get_running_loop().set_exception_handler(_log_task_error)
        options |= {
            "process_request": self.answer,
            "create_connection": partial(GuardedConnection, self),
            "max_size": MAX_BYTES,
            "open_timeout": OPEN_TIMEOUT,
            "close_timeout": CLOSE_TIMEOUT,
            "server_header": None,
            "logger": _silent,
        }
        return _serve(_contained(handler), host, port, **options)


_serve = websockets_server.serve


@contextlib.contextmanager
def guarded(guard: Guard) -> Iterator[None]:
    """Inside, a viser server starts behind the guard.

    viser has no hook for this. It looks `serve` up when it starts, once, so it is replaced for that moment;
    that the guard was used is checked, and a viser that starts otherwise is not used.
    """
    with _patching:
        websockets_server.serve = guard.serve  # type: ignore[assignment, misc]
        try:
            yield
        finally:
            websockets_server.serve = _serve  # type: ignore[misc]


class GuardedConnection(ServerConnection):
    """A WebSocket connection that delivers valid messages only, at a limited rate."""

    def __init__(self, guard: Guard, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._guard, self._closing = guard, False
        self._allowance, self._counted, self._noticed = BURST, time.monotonic(), 0.0

    async def recv(self, decode: bool | None = None) -> Any:
        """The next valid message; a malformed one closes the connection, a refused value is dropped."""
        while True:
            raw = await super().recv(decode)
            await self._limit_rate()
            message = await self._validated(raw)
            if message is not None:
                return message

    async def _validated(self, raw: bytes | str) -> bytes | None:
        if self._closing:
            return None
        try:
            return validated(raw, self._guard.checks)
        except RefusedValue as error:
            self._refuse(str(error))
        except MalformedMessage as error:
            self._closing = True
            LOG.warning(
                "homing play: closed a connection that sent a malformed message (%s)", one_line(error)
            )
            await self.close(POLICY_VIOLATION, "malformed message")
        return None

    def _refuse(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._noticed >= NOTICE_PERIOD:
            self._noticed = now
            # Soon, not now: the message before, which may have announced this browser, is handled first.
            self.loop.call_soon(self._guard.on_refused, self, reason)

    async def _limit_rate(self) -> None:
        """Wait while the sender is above its rate, so that TCP makes it wait as well."""
        now = time.monotonic()
        self._allowance = min(BURST, self._allowance + RATE * (now - self._counted)) - 1.0
        self._counted = now
        if self._allowance < 0.0:
            await asyncio.sleep(-self._allowance / RATE)


def _contained(handler: Handler) -> Handler:
    """A failing connection ends alone, with one line in the log."""

    async def handle(connection: ServerConnection) -> None:
        try:
            await handler(connection)
        except Exception as error:
            LOG.warning("homing play: closed a connection (%s)", one_line(error))
            await connection.close(INTERNAL_ERROR, "internal error")

    return handle


def _log_task_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    LOG.warning("homing play: %s", one_line(context.get("exception") or context["message"]))


def _respond(status: http.HTTPStatus, body: bytes, headers: dict[str, str] | None = None) -> Response:
    common = {
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "Connection": "close",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return Response(status.value, status.phrase, Headers(common | (headers or {})), body)
