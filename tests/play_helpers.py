"""`homing play` as a process of its own, and a client that speaks its WebSocket protocol."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import viser
import zstandard
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

SUBPROTOCOL = f"viser-v{viser.__version__}"
COMMAND = "from homing.cli.main import main; import sys; main(sys.argv[1:])"
START_SECONDS, PATIENCE = 300.0, 30.0
CAMERA: dict[str, Any] = {
    "type": "ViewerCameraMessage",
    "wxyz": [1.0, 0.0, 0.0, 0.0],
    "position": [0.0, -5.0, 5.0],
    "fov": 0.8,
    "near": 0.01,
    "far": 1000,
    "image_height": 800,
    "image_width": 1280,
    "look_at": [0.0, 0.0, 0.0],
    "up_direction": [0.0, 0.0, 1.0],
}
CLICK: dict[str, Any] = {
    "type": "ScenePointerMessage",
    "event_type": "click",
    "ray_origin": [4.0, 0.0, 10.0],
    "ray_direction": [0.0, 0.9, -1.0],
    "screen_pos": [[0.5, 0.5]],
    "modifier": None,
}
DRAG: dict[str, Any] = {
    "type": "SceneNodeDragMessage",
    "phase": "end",
    "name": "/goal/0",
    "instance_index": None,
    "start_position": [4.0, 4.0, 0.0],
    "start_screen_pos": [0.5, 0.5],
    "end_position": [4.0, 9.0, 0.0],
    "end_screen_pos": [0.6, 0.6],
    "button": "left",
    "modifier": None,
    "owner": "",
}


@dataclass
class PlayProcess:
    """A running `homing play`."""

    process: subprocess.Popen[bytes]
    port: int
    token: str
    output: Path

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def log(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def resident_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


@contextlib.contextmanager
def play_process(source: str, folder: Path):
    """Start `homing play SOURCE` on a free port and wait for its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    root = Path(__file__).parent.parent
    env = os.environ | {
        "PYTHONPATH": str(root / "src"),
        "JAX_COMPILATION_CACHE_DIR": str(root / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }
    output = folder / "play.log"
    with output.open("wb") as log:
        command = [sys.executable, "-c", COMMAND, "play", source, "--port", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env, cwd=folder)
    try:
        yield PlayProcess(process, port, _token(process, output, port), output)
    finally:
        process.terminate()
        process.wait(20)


def _token(process: subprocess.Popen[bytes], output: Path, port: int) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        said = output.read_text()
        found = re.search(rf"http://127\.0\.0\.1:{port}/([\w-]+)/", said)
        if found and "ready" in said:
            return found[1]
        time.sleep(0.1)
    raise AssertionError(f"homing play did not start:\n{output.read_text()}")


def decoded(raw: bytes) -> list[dict[str, Any]]:
    """The messages of one frame from the server; arrays are left out."""
    size = int.from_bytes(raw[8:16], "little")
    return msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(raw[16 : 16 + size]))["messages"]


@dataclass
class Client:
    """A browser's side of the protocol; a thread reads, so that the server never waits for it."""

    socket: ClientConnection
    seen: list[dict[str, Any]] = field(default_factory=list)
    controls: dict[str, str] = field(default_factory=dict)
    """uuids by label."""
    commands: dict[str, str] = field(default_factory=dict)
    """uuids of keyboard shortcuts by label."""

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                messages = decoded(self.socket.recv())
                self.controls |= {m["props"]["label"]: m["uuid"] for m in messages if _is_control(m)}
                registered = [m for m in messages if m["type"] == "RegisterCommandMessage"]
                self.commands |= {m["props"]["label"]: m["uuid"] for m in registered}
                self.seen += messages
                del self.seen[:-2000]

    def send(self, message: Any) -> bool:
        """Send a dict as msgpack, or bytes and text as they are; False if the connection is closed."""
        raw = message if isinstance(message, bytes | str) else msgspec.msgpack.encode(message)
        try:
            self.socket.send(raw)
        except ConnectionClosed:
            return False
        return True

    def close_code(self, seconds: float = PATIENCE) -> int | None:
        """The code with which the server closed this connection; None if it stays open."""
        self._reader.join(seconds)
        return None if self._reader.is_alive() else self.socket.close_code

    def control(self, label: str) -> str:
        assert until(lambda: label in self.controls), f"no {label}"
        return self.controls[label]

    def set_value(self, label: str, value: Any) -> bool:
        return self.send(
            {"type": "GuiUpdateMessage", "uuid": self.control(label), "updates": {"value": value}}
        )

    def trigger(self, label: str) -> bool:
        """Press the key of a shortcut."""
        assert until(lambda: label in self.commands), f"no {label}"
        return self.send({"type": "CommandTriggerMessage", "uuid": self.commands[label]})

    def is_served(self, seconds: float = PATIENCE) -> bool:
        """Whether a reset that is asked for from here is seen here: the robot is moved."""
        self.set_value("Pause", False)
        self.seen.clear()
        self.set_value("Reset", True)
        return until(lambda: any(m["type"] == "SetPositionMessage" for m in list(self.seen)), seconds)

    def notices(self) -> list[str]:
        return [m["props"]["body"] for m in list(self.seen) if m["type"] == "NotificationShowMessage"]


def _is_control(message: dict[str, Any]) -> bool:
    return message["type"].startswith("Gui") and "uuid" in message and "label" in message.get("props", {})


@contextlib.contextmanager
def client(play: PlayProcess, **options: Any):
    """A connection with the token, whose window has been announced."""
    url = f"ws://127.0.0.1:{play.port}/{play.token}"
    with connect(url, subprotocols=[SUBPROTOCOL], max_size=None, close_timeout=1, **options) as socket:
        made = Client(socket)
        made.send(CAMERA)
        yield made


def until(fact: Any, seconds: float = PATIENCE) -> bool:
    """Wait for a state, not for a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.02)
    return bool(fact())
