"""`homing play` against strangers: who may connect, and what any message can do."""

import contextlib
import copy
import math
import random
import socket
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from play_helpers import CAMERA, CLICK, DRAG, SUBPROTOCOL, client, play_process, until
from policy_helpers import maze_policy  # noqa: F401
from viser import _messages
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from homing.play.guard import BURST, MAX_CLIENTS
from homing.play.protocol import MAX_BYTES, MalformedMessage, RefusedValue, validated

POLICY_VIOLATION, TOO_BIG = 1008, 1009
GROWTH_MIB = 120  # that a fuzzed server may grow by; one leak of 1 KiB a message is below, of 16 KiB above


@pytest.fixture(scope="module")
def play(maze_policy, tmp_path_factory):  # noqa: F811
    with play_process(maze_policy, tmp_path_factory.mktemp("play")) as play:
        yield play


@pytest.fixture(autouse=True)
def survives(play):
    """After each test the server runs, serves a new client, and has printed no traceback."""
    yield
    assert play.alive, play.log
    with client(play) as other:
        assert other.is_served(), play.log
    assert "Traceback" not in play.log
    assert all(len(line) < 400 for line in play.log.splitlines())


# Who may connect.


def request(play, path, *headers, host="127.0.0.1", method="GET"):
    """Status and text of the answer to a request that is sent as it stands."""
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}:{play.port}"] if host else []), *headers, "", ""]
    with socket.create_connection(("127.0.0.1", play.port), timeout=20) as connection:
        connection.sendall("\r\n".join(lines).encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else None), head.decode(), body


UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
    f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
)


@pytest.mark.parametrize("upgrade", [(), UPGRADE], ids=["http", "websocket"])
@pytest.mark.parametrize(
    ("path", "host", "headers"),
    [
        ("/", "127.0.0.1", ()),
        ("/index.html", "127.0.0.1", ()),
        ("/wrong-token/", "127.0.0.1", ()),
        ("/{token}x/", "127.0.0.1", ()),
        ("/?token={token}", "127.0.0.1", ()),
        ("/../{token}/", "127.0.0.1", ()),
        ("http://127.0.0.1/{token}/", "127.0.0.1", ()),
        ("/{token}/", "evil.example", ()),
        ("/{token}/", "127.0.0.1.evil.example", ()),
        ("/{token}/", None, ()),
        ("/{token}/", "127.0.0.1", ("Host: evil.example",)),
        ("/{token}/", "127.0.0.1", ("Origin: http://evil.example",)),
        ("/{token}/", "127.0.0.1", ("Origin: null",)),
        ("/{token}/", "127.0.0.1", ("Origin: http://127.0.0.1:1",)),
        ("/{token}/", "127.0.0.1", ("Origin: http://localhost:{port}",)),
        ("/{token}/", "127.0.0.1", ("Origin: http://127.0.0.1:{port}", "Origin: http://evil.example")),
    ],
)
def test_a_request_from_elsewhere_is_refused(play, path, host, headers, upgrade):
    fill = lambda text: text.format(token=play.token, port=play.port)
    status, head, body = request(play, fill(path), *map(fill, headers), *upgrade, host=host)
    assert status == 403, head
    assert len(body) < 200
    assert play.token not in head + body.decode()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_the_page_is_served_with_the_token(play, host, maze_policy):  # noqa: F811
    status, head, body = request(play, f"/{play.token}/?darkMode", host=host)
    assert status == 200
    assert f"<title>{Path(maze_policy).name} · Homing</title>" in body.decode()
    assert b"<title>Viser" not in body
    assert "frame-ancestors 'none'" in head
    assert "Access-Control" not in head
    own = request(play, f"/{play.token}/", f"Origin: http://{host}:{play.port}", host=host)
    assert own[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/{token}/../../etc/passwd",
        "/{token}/index.html",
        "/{token}/%2e%2e/x",
        "/{token}/?play=/etc/passwd",
        "/{token}/?play=..%2Freacher",
        "/{token}/?play=reacher.safetensors",
        "/{token}/?play=reacher&play=ant",
        "/{token}/?play=",
        "/{token}/?" + "a&" * 50,
    ],
)
def test_there_are_no_other_files(play, path):
    assert request(play, path.format(token=play.token))[0] == 404


def test_the_gallery_needs_the_token_and_opens_shipped_policies_only(play):
    status, head, body = request(play, f"/{play.token}/?gallery")
    assert status == 200
    assert "frame-ancestors 'none'" in head
    assert b'href="?play=reacher"' in body
    assert play.token not in body.decode()
    for path in ("/?gallery", "/wrong/?gallery", "/?play=reacher", "/wrong/?play=reacher"):
        assert request(play, path)[0] == 403
    assert "loading" not in play.log.partition("ready")[2], "nothing was opened"


def test_other_methods_and_broken_requests_are_no_answer(play):
    for method in ("POST", "PUT", "OPTIONS", "HEAD", "\x00"):
        assert request(play, f"/{play.token}/", method=method)[0] != 200
    with socket.create_connection(("127.0.0.1", play.port), timeout=20) as connection:
        connection.sendall(b"GET /" + b"a" * 100_000 + b"\r\n" * 4)
        assert b"200" not in connection.recv(100)


def test_a_websocket_needs_token_own_origin_and_version(play):
    url = f"ws://127.0.0.1:{play.port}/{play.token}"
    with connect(url, origin=f"http://127.0.0.1:{play.port}", subprotocols=[SUBPROTOCOL]) as socket:
        assert socket.recv(timeout=20)
    for options in ({}, {"subprotocols": ["viser-v0.0"]}):
        with pytest.raises(InvalidStatus, match="400"):
            connect(url, **options)


def test_the_number_of_browsers_is_limited(play):
    url = f"ws://127.0.0.1:{play.port}/{play.token}"
    with contextlib.ExitStack() as stack:
        open_one = lambda: connect(url, subprotocols=[SUBPROTOCOL], max_size=None, close_timeout=1)
        assert until(lambda: not has_connections(play)), "those of the test before are gone"
        for _ in range(MAX_CLIENTS):
            stack.enter_context(open_one())
        with pytest.raises(InvalidStatus, match="503"):
            open_one()
    assert until(lambda: not has_connections(play))


def has_connections(play) -> bool:
    """Whether the server holds connections that are established, by the kernel's table."""
    local = f"0100007F:{play.port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1] == local and row[3] == "01" for row in rows)


# What messages can do.


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xc1",
        b"\x81\xa4type",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 5000,
        "text",
        msgspec.msgpack.encode([1, 2]),
        {"type": "NoSuchMessage"},
        {"type": ["ViewerCameraMessage"]},
        {"type": "ShareUrlRequest"},
        {"type": "CommandTriggerMessage"},
        {"type": "CommandTriggerMessage", "uuid": 1},
        {"type": "CommandTriggerMessage", "uuid": "x", "label": "Reset"},
        {"type": "RunJavascriptMessage", "source": "alert(1)"},
        {"type": "GuiFormDirtyMessage", "uuid": "x" * 1000},
        {"type": "FileTransferStartUpload"},
        {"type": "GuiUpdateMessage", "uuid": "{speed}", "updates": {"update_cb": []}},
        {"type": "GuiUpdateMessage", "uuid": "{speed}", "updates": {"value": [1.0]}},
        CAMERA | {"extra": 1},
        CAMERA | {"position": [0.0, 0.0]},
        CLICK | {"ray_origin": None},
        CLICK | {"event_type": "rect-select"},
        DRAG | {"phase": "never"},
    ],
    ids=lambda message: str(message)[:40],
)
def test_a_malformed_message_closes_its_own_connection_only(play, message):
    with client(play) as other, client(play) as one:
        if isinstance(message, dict) and message.get("uuid") == "{speed}":
            message = message | {"uuid": one.control("Speed")}
        one.send(message)
        assert one.close_code() == POLICY_VIOLATION
        assert other.is_served()


@pytest.mark.parametrize("size", [MAX_BYTES + 1, 8 << 20])
def test_a_huge_message_closes_its_own_connection_only(play, size):
    with client(play) as other, client(play) as one:
        one.send(b"\x00" * size)
        assert one.close_code() == TOO_BIG
        assert other.is_served()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "fast", True])
def test_a_speed_that_is_no_number_is_refused_and_told(play, value):
    with client(play) as one:
        one.set_value("Speed", value)
        assert until(lambda: one.notices() == ["a number from 0.1 to 2 is needed"]), one.notices()
        assert one.is_served()


def test_a_speed_out_of_range_is_clamped(play):
    with client(play) as other, client(play) as one:
        speed = one.control("Speed")
        updates = lambda: [
            m["updates"] for m in list(other.seen) if m.get("uuid") == speed and "updates" in m
        ]
        for sent, taken in ((1e12, 2.0), (-5, 0.1), (1, 1.0)):
            one.set_value("Speed", sent)
            assert until(lambda taken=taken: updates()[-1:] == [{"value": taken}]), updates()


def test_a_key_does_what_its_button_does_and_an_unknown_one_nothing(play):
    with client(play) as one:
        one.set_value("Pause", False)
        one.trigger("Pause")
        pause = one.control("Pause")
        values = lambda: [m.get("updates") for m in list(one.seen) if m.get("uuid") == pause]
        assert until(lambda: {"value": True} in values()), "the checkbox follows the key"
        one.send({"type": "CommandTriggerMessage", "uuid": "none"})
        one.send({"type": "CommandTriggerMessage", "uuid": one.control("Reset")})
        assert one.close_code(0.5) is None
        one.send({"type": "GuiUpdateMessage", "uuid": one.commands["Reset"], "updates": {"value": True}})
        assert until(lambda: one.notices() == ["a command has no value"]), one.notices()
        assert one.is_served()


def test_a_path_is_no_choice_of_policy_and_files_stay_unknown(play, tmp_path):
    here = tmp_path / "here.homing"
    here.write_bytes(b"\x80\x04crafted")
    with client(play) as one:
        for path in (here, tmp_path / "missing.homing", "/etc/passwd", "../..", ""):
            one.seen.clear()
            assert until(lambda path=path: one.set_value("Policy", str(path)) and one.notices(), 10)
            assert set(one.notices()) == {"this is not one of the choices"}
        assert one.is_served()


def test_clicks_and_drags_that_are_not_finite_do_nothing(play):
    with client(play) as one:
        for bad in (math.nan, math.inf, 1e308, 1e7):
            for message, name in ((CLICK, "ray_origin"), (CLICK, "ray_direction"), (DRAG, "end_position")):
                one.send(message | {name: [bad, 1.0, -1.0]})
            one.send(CAMERA | {"fov": bad})
        one.send(CAMERA | {"image_height": 0, "image_width": -5})
        assert one.is_served()
        status = [m["updates"] for m in one.seen if "distance" in str(m.get("updates", {}).get("_markdown"))]
        assert "nan" not in str(status)


def test_a_flood_is_slowed_down_and_others_are_served(play):
    with client(play) as other, client(play) as one:
        raw = msgspec.msgpack.encode(CLICK)
        for _ in range(round(2.0 * BURST)):
            one.send(raw)
        assert other.is_served(5.0)
        assert one.close_code(0.0) is None, "a fast sender waits, and is not thrown out"


# Random messages.

KINDS = sorted(_messages.Message.get_subclasses(), key=lambda kind: kind.__name__)
ODD = (
    None,
    True,
    -1,
    0,
    2**63,
    1e308,
    math.nan,
    math.inf,
    "",
    "a" * 600,
    "/etc/passwd",
    b"\xff",
    [],
    {},
    [[]],
)


def odd_value(draw: random.Random, depth: int = 3):
    if depth == 0 or draw.random() < 0.6:
        return draw.choice(ODD)
    values = [odd_value(draw, depth - 1) for _ in range(draw.randrange(5))]
    return values if draw.random() < 0.5 else {str(k): value for k, value in enumerate(values)}


def mutated(draw: random.Random, message: dict):
    message = copy.deepcopy(message)
    for _ in range(draw.randrange(3)):
        name = draw.choice(list(message))
        if isinstance(message[name], list) and message[name] and draw.random() < 0.7:
            message[name][draw.randrange(len(message[name]))] = draw.choice((*ODD, 1e3, -7.5))
        else:
            message[name] = odd_value(draw)
    if draw.random() < 0.1:
        message.pop(draw.choice(list(message)))
    return message


def fuzzed(draw: random.Random, uuids: list[str]):
    """One message: valid, nearly valid, of any type that viser knows, or bytes."""
    roll = draw.random()
    if roll < 0.5:
        message = mutated(draw, draw.choice((CAMERA, CLICK, DRAG)))
        if message.get("type") == "SceneNodeDragMessage" and isinstance(message.get("name"), str):
            message["name"] = draw.choice(("/goal/0", "/robot/0/1", "/", "", "/none"))
        return message
    if roll < 0.8:
        prop = "value" if draw.random() < 0.9 else draw.choice(("uuid", "sync_cb", "__class__", "removed"))
        value = draw.choice((odd_value(draw), draw.uniform(-20, 20), draw.random() < 0.5, True))
        return {"type": "GuiUpdateMessage", "uuid": draw.choice(uuids), "updates": {prop: value}}
    if roll < 0.83:
        return {"type": "CommandTriggerMessage", "uuid": draw.choice(uuids)}
    if roll < 0.88:
        kind = draw.choice(KINDS)
        fields = {name: odd_value(draw) for name in kind.__dataclass_fields__ if draw.random() < 0.9}
        return {"type": kind.__name__} | fields
    if roll < 0.92:
        return draw.choice(("text", msgspec.msgpack.encode(odd_value(draw)), b"\x00" * (MAX_BYTES + 1)))
    raw = bytearray(msgspec.msgpack.encode(draw.choice((CAMERA, CLICK, DRAG))))
    for _ in range(draw.randrange(1, 8)):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw[: draw.randrange(len(raw) + 1)] if draw.random() < 0.3 else raw)


def attack(play, draw: random.Random, count: int) -> Counter:
    """Send messages, each seen by the server; a malformed one must close the connection, others must not."""
    done = Counter()
    while done.total() < count:
        with client(play) as one:
            one.control("Policy")
            uuids = [*one.controls.values(), *one.commands.values(), "none"]
            while done.total() < count:
                message = fuzzed(draw, uuids)
                assert one.send(message), f"closed before {message}"
                bad = is_malformed(message)
                done["malformed" if bad else "taken"] += 1
                if bad:
                    assert one.close_code() in (POLICY_VIOLATION, TOO_BIG), message
                    break
    return done


def is_malformed(message) -> bool:
    raw = message if isinstance(message, bytes | str) else msgspec.msgpack.encode(message)
    try:
        validated(raw, {})
    except MalformedMessage:
        return True
    except RefusedValue:
        pass
    return False


@pytest.mark.parametrize(
    "count", [600, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_random_messages_neither_end_nor_swell_the_server(play, count):
    draw = random.Random(count)
    with client(play) as witness:
        attack(play, draw, 100)  # what a first connection loads is no leak
        before = play.resident_mib
        done = attack(play, draw, count - 100)
        assert min(done["malformed"], done["taken"]) > count / 5, done
        assert play.alive, play.log
        assert witness.close_code(0.0) is None
        assert witness.is_served()
        assert play.resident_mib - before < GROWTH_MIB
