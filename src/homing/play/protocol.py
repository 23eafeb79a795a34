"""Validation of what a browser sends: message schemas, number limits, and the values of controls."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

MAX_BYTES = 16_384  # the longest valid message is below 1 KiB
MAX_NUMBER = 1e6  # metres, radians or pixels
MAX_PIXELS = 16_384

Text = Annotated[str, msgspec.Meta(max_length=512)]
Pair = tuple[float, float]
Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]
Value = bool | int | float | Text
Check = Callable[[Value], Value]
"""Returns the value that a control takes, clamped if need be, or raises RefusedValue."""


class MalformedMessage(Exception):
    """Not a message that our page sends; the connection is closed."""


class RefusedValue(Exception):
    """A well-formed message with a value out of limits; the message is dropped, the connection stays."""


class Message(msgspec.Struct, tag_field="type", forbid_unknown_fields=True):
    """A message from the browser; the subclasses are the only ones that are accepted."""


class Camera(Message, tag="ViewerCameraMessage"):
    wxyz: Quaternion
    position: Vector
    fov: float
    near: float
    far: float
    image_height: int
    image_width: int
    look_at: Vector
    up_direction: Vector


class Click(Message, tag="ScenePointerMessage"):
    event_type: Literal["click"]
    ray_origin: Vector
    ray_direction: Vector
    screen_pos: tuple[Pair]
    modifier: Text | None


class Drag(Message, tag="SceneNodeDragMessage"):
    phase: Literal["start", "update", "end"]
    name: Text
    instance_index: int | None
    start_position: Vector
    start_screen_pos: Pair
    end_position: Vector
    end_screen_pos: Pair
    button: Literal["left", "middle", "right"]
    modifier: Text | None
    owner: Text = ""


class ControlUpdate(Message, tag="GuiUpdateMessage"):
    uuid: Text
    updates: dict[Literal["value"], Value]


class CommandTrigger(Message, tag="CommandTriggerMessage"):
    """A keyboard shortcut, or its entry in the list of commands."""

    uuid: Text


_decoder = msgspec.msgpack.Decoder(Camera | Click | Drag | ControlUpdate | CommandTrigger)
_encode = msgspec.msgpack.Encoder().encode


def validated(raw: bytes | str, checks: Mapping[str, Check]) -> bytes | None:
    """The message to handle, encoded again from its checked fields; None if its control is gone.

    `checks` has an entry for each control and each command that is on the page now, by its uuid.
    """
    message = _decoded(raw)
    if isinstance(message, ControlUpdate):
        return _with_checked_value(message, checks)
    if isinstance(message, CommandTrigger):
        return _encode(message) if checks.get(message.uuid) is no_value else None
    for number in _numbers([getattr(message, name) for name in message.__struct_fields__]):
        if not abs(number) <= MAX_NUMBER:  # also refuses NaN
            raise RefusedValue(f"{number:g} is out of range")
    if isinstance(message, Camera):
        # A minimised window has no pixels, and the view is fitted to the window by dividing by them.
        message.image_height = min(max(message.image_height, 1), MAX_PIXELS)
        message.image_width = min(max(message.image_width, 1), MAX_PIXELS)
    return _encode(message)


def _decoded(raw: bytes | str) -> Message:
    if isinstance(raw, str):
        raise MalformedMessage("a text frame")
    if len(raw) > MAX_BYTES:
        raise MalformedMessage(f"{len(raw)} bytes")
    try:
        return _decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise MalformedMessage(str(error)) from error


def _with_checked_value(message: ControlUpdate, checks: Mapping[str, Check]) -> bytes | None:
    check = checks.get(message.uuid)
    if check is None or not message.updates:
        return None
    return _encode(ControlUpdate(message.uuid, {"value": check(message.updates["value"])}))


def _numbers(value: object) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)


def no_value(value: Value) -> Value:
    """The check of a command, which is triggered and has no value."""
    raise RefusedValue("a command has no value")


def is_bool(value: Value) -> bool:
    if not isinstance(value, bool):
        raise RefusedValue("a checkbox is on or off")
    return value


def clamped(low: float, high: float) -> Check:
    """Any finite number, moved into [low, high]."""

    def check(value: Value) -> float:
        if isinstance(value, bool | str) or not math.isfinite(value):
            raise RefusedValue(f"a number from {low:g} to {high:g} is needed")
        return min(max(float(value), low), high)

    return check


def one_of(options: Sequence[str]) -> Check:
    def check(value: Value) -> str:
        if not isinstance(value, str) or value not in options:
            raise RefusedValue("this is not one of the choices")
        return value

    return check
