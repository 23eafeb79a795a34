"""Tables that never cut a name one has to type."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

PIPED_WIDTH = 160  # a file or a pipe has no width of its own


def console() -> Console:
    """A console as wide as the terminal; wide enough for every table where output is no terminal."""
    return Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)


def add_names(table: Table, heading: str, names: Iterable[str]) -> None:
    """Add a column of `names` that is shown in full however narrow the terminal is; others wrap instead."""
    width = max((len(name) for name in (heading, *names)), default=0)
    table.add_column(heading, no_wrap=True, min_width=width)
