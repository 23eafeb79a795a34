"""The controls beside the scene; each declares which values a browser may send for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import viser
from viser._messages import HotkeyKey

from homing.play.protocol import Check, clamped, is_bool, no_value, one_of
from homing.play.reporting import report

T = TypeVar("T", bool, float, str)
Control = viser.GuiInputHandle[Any]


class Controls:
    """Adds controls to a page; a failing callback is reported to the browser that caused it."""

    def __init__(self, gui: viser.GuiApi, checks: dict[str, Check]):
        self.gui, self._checks = gui, checks

    def checkbox(
        self, label: str, initial: bool, on_change: Callable[[bool], object] | None = None
    ) -> viser.GuiInputHandle[bool]:
        return self._added(self.gui.add_checkbox(label, initial), is_bool, on_change)

    def slider(
        self,
        label: str,
        limits: tuple[float, float],
        step: float,
        initial: float,
        on_change: Callable[[float], object] | None = None,
        hint: str | None = None,
    ) -> viser.GuiInputHandle[float]:
        handle = self.gui.add_slider(label, *limits, step, initial, hint=hint)
        return self._added(handle, clamped(*limits), on_change)

    def dropdown(
        self, label: str, options: Sequence[str], initial: str, on_change: Callable[[str], object]
    ) -> viser.GuiInputHandle[str]:
        handle = self.gui.add_dropdown(label, tuple(options), initial_value=initial)
        return self._added(handle, one_of(options), on_change)

    def button(self, label: str, on_click: Callable[[], object]) -> None:
        handle = self.gui.add_button(label)
        self._checks[handle._impl.uuid] = is_bool
        handle.on_click(_reported(lambda _: on_click()))

    def shortcut(self, key: HotkeyKey, label: str, on_press: Callable[[], object]) -> None:
        """A key that does something in the page; viser also lists it under Ctrl-K."""
        handle = self.gui.add_command(label, hotkey=key)
        self._checks[handle._impl.uuid] = no_value

        @handle.on_trigger
        def _(event: viser.CommandEvent) -> None:
            try:
                on_press()
            except Exception as error:
                report(error, event.client)

    def remove(self, handle: Control) -> None:
        self._checks.pop(handle._impl.uuid, None)
        handle.remove()

    def _added(
        self, handle: viser.GuiInputHandle[T], check: Check, on_change: Callable[[T], object] | None
    ) -> viser.GuiInputHandle[T]:
        self._checks[handle._impl.uuid] = check
        if on_change is not None:
            handle.on_update(_reported(lambda event: on_change(event.target.value)))
        return handle


def _reported(callback: Callable[[viser.GuiEvent[Any]], object]) -> Callable[[viser.GuiEvent[Any]], None]:
    def run(event: viser.GuiEvent[Any]) -> None:
        try:
            callback(event)
        except Exception as error:
            report(error, event.client)

    return run
