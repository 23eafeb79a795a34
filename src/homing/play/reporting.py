"""Errors of `homing play`: one line in the log, and a notice in the browser that caused them."""

from __future__ import annotations

import logging

import viser

LOG = logging.getLogger("homing.play")
LONGEST = 200  # characters of an error that are shown
NOTICE_SECONDS = 6.0


def one_line(error: BaseException | str) -> str:
    """An error as one printable line: it may quote what a stranger sent."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    shown = "".join(c if c.isprintable() else " " for c in text[: 2 * LONGEST])
    return " ".join(shown.split())[:LONGEST]


def notify(client: viser.ClientHandle | None, text: str) -> None:
    """Show a notice in one browser; nothing happens if it is gone."""
    if client is not None:
        client.add_notification(
            "Not possible", one_line(text), color="red", auto_close_seconds=NOTICE_SECONDS
        )


def report(error: Exception, client: viser.ClientHandle | None) -> None:
    """Log a handler's failure and tell the browser whose message it handled."""
    LOG.warning("homing play: %s", one_line(error))
    notify(client, str(error))
