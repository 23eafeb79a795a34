"""Which requests and values pass, without a server."""

import math

import msgspec
import pytest
from play_helpers import CAMERA, CLICK
from websockets.datastructures import Headers
from websockets.http11 import Request

from homing.play.client_page import client_page
from homing.play.guard import Guard, host_name, new_token
from homing.play.pages import Pages
from homing.play.protocol import (
    MalformedMessage,
    RefusedValue,
    clamped,
    is_bool,
    no_value,
    one_of,
    validated,
)
from homing.play.reporting import LONGEST, one_line
from homing.policies import shipped_names

NO_PAGE = lambda query: None


def asked(guard, host, *origins, path=None):
    headers = Headers([("Host", host), *(("Origin", origin) for origin in origins)])
    return guard.refusal(Request(path or f"/{guard.token}/", headers))


def test_a_host_that_was_asked_for_is_answered_and_others_are_not():
    guard = Guard("robot.lan", new_token(), NO_PAGE)
    assert asked(guard, "robot.lan:8080") is None
    assert asked(guard, "Robot.LAN:8080", "http://robot.lan:8080") is None
    assert asked(guard, "localhost:9000", "http://localhost:9000") is None, "through a tunnel"
    assert "host name" in asked(guard, "evil.lan:8080")
    assert "host name" in asked(Guard("127.0.0.1", guard.token, NO_PAGE), "robot.lan:8080")
    assert "other sites" in asked(guard, "robot.lan:8080", "http://evil.lan:8080")
    assert "token" in asked(guard, "robot.lan:8080", path="/")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8080", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("evil:localhost", "evil:localhost"),
        ("localhost:8080; x", "localhost:8080; x"),
    ],
)
def test_the_name_in_a_host_header(header, name):
    assert host_name(header) == name


def test_tokens_are_long_and_differ():
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) == 32


def test_the_title_is_escaped():
    page = client_page("</title><script>alert(1)</script>").decode()
    assert "<script>alert(1)" not in page
    assert "&lt;/title&gt;" in page
    assert "%23246e5a" in page, "our icon"


def test_values_are_checked_before_use():
    check = clamped(0.1, 2.0)
    assert (check(1), check(1e12), check(-1.0)) == (1.0, 2.0, 0.1)
    for bad in (math.nan, math.inf, True, "1"):
        with pytest.raises(RefusedValue):
            check(bad)
    assert one_of(("a", "b"))("b") == "b"
    for bad in ("c", 1, True):
        with pytest.raises(RefusedValue):
            one_of(("a", "b"))(bad)
    assert is_bool(True) is True
    with pytest.raises(RefusedValue):
        is_bool(1)


def update(control, **updates):
    return msgspec.msgpack.encode({"type": "GuiUpdateMessage", "uuid": control, "updates": updates})


def test_a_message_is_rebuilt_from_its_checked_fields():
    checks = {"speed": clamped(0.1, 2.0)}
    sent = validated(update("speed", value=9), checks)
    assert msgspec.msgpack.decode(sent)["updates"] == {"value": 2.0}
    assert validated(update("gone", value=9), checks) is None, "a control that was just removed"
    with pytest.raises(MalformedMessage):
        validated(update("speed", uuid="other"), checks)
    with pytest.raises(RefusedValue):
        validated(msgspec.msgpack.encode(CLICK | {"ray_origin": [math.nan, 0, 0]}), checks)
    small = msgspec.msgpack.decode(validated(msgspec.msgpack.encode(CAMERA | {"image_height": 0}), checks))
    assert small["image_height"] == 1


def test_a_key_is_taken_only_where_the_page_has_it():
    press = lambda uuid: msgspec.msgpack.encode({"type": "CommandTriggerMessage", "uuid": uuid})
    checks = {"reset": no_value, "speed": clamped(0.1, 2.0)}
    assert msgspec.msgpack.decode(validated(press("reset"), checks))["uuid"] == "reset"
    assert validated(press("speed"), checks) is None, "a control is no command"
    assert validated(press("gone"), checks) is None
    with pytest.raises(RefusedValue):
        validated(update("reset", value=True), checks)


# Pages.


def test_without_a_name_the_gallery_comes_first_and_shows_what_is_shipped():
    page = Pages("Homing", has_gallery=True)("").decode()
    assert "<title>Homing</title>" in page
    assert "%23246e5a" in page, "our icon"
    for name in shipped_names():
        assert f'href="?play={name}"' in page
    assert "% of" not in page.replace(" %</b> of", ""), "numbers come from the cards"
    assert page.count("<b>") == len(shipped_names())
    assert page.count("data:image/png;base64,") == len(shipped_names())
    assert "on the page" in page and "where a fall ends a chain" in page
    assert Pages("reacher · Homing")("gallery").decode() == page, "it can be opened later, too"
    assert "<title>reacher · Homing</title>" in Pages("reacher · Homing")("darkMode").decode()


def test_a_card_opens_its_policy_and_nothing_else():
    opened = []
    pages = Pages("Homing", has_gallery=True, on_open=opened.append)
    assert "<title>reacher · Homing</title>" in pages("play=reacher").decode()
    assert opened == ["reacher"]
    for query in (
        "play=",
        "play=no",
        "play=reacher&play=ant",
        "play=%2Fetc%2Fpasswd",
        "play=runs/x",
        "a&" * 20,
    ):
        assert pages(query) is None
    assert opened == ["reacher"]


def test_an_error_is_one_short_printable_line():
    line = one_line(ValueError("a\r\nb\x1b]0;c\x07" + "x" * 10_000))
    assert line.isprintable()
    assert line.startswith("ValueError: a b ]0;c x")
    assert len(line) <= LONGEST
