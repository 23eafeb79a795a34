"""Results of `homing bench` on their way out: as text while they arrive, or as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from homing.cli.paths import check_file
from homing.errors import ConfigError


class Rows:
    """Results as they arrive: to the terminal, or at the end as JSON; the file is rewritten after each."""

    def __init__(self, as_json: bool, out: Path | None):
        self.as_json, self.out, self.rows = as_json, out, []
        if out is not None:
            check_file("--out", out)

    def add(self, row: dict[str, Any], text: str) -> None:
        from homing.runs.folder import write_json

        self.rows.append(row)
        if not self.as_json:
            print(text, flush=True)
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.out, self.rows)

    def end(self) -> None:
        if self.as_json:
            print(json.dumps(self.rows, indent=1))


def say(text: str) -> None:
    """Print a message that is not part of the JSON, to standard error."""
    print(text, file=sys.stderr, flush=True)


def twin_of(compare: bool, compare_kernels: bool) -> Literal["plain", "without_kernels"] | None:
    """The program that each is compared with."""
    if compare and compare_kernels:
        raise ConfigError("--compare and --compare-kernels are two measurements; give one of them")
    return "plain" if compare else "without_kernels" if compare_kernels else None


def ratio(row: dict[str, Any]) -> str:
    said = {"times_plain": "the plain program", "times_without_kernels": "the same without our kernels"}
    return "".join(f"\n    {row[name]:.2f} times {what}" for name, what in said.items() if name in row)


def physics_line(row: dict[str, Any]) -> str:
    reset = f"auto-reset {row['reset_fraction']:6.1%}  " if "reset_fraction" in row else ""
    return (
        f"{row['env']:24s} {row['num_envs']:6d} envs  {row['steps_per_second']:12,.0f} steps/s  "
        f"{row['milliseconds_per_step']:8.3f} ms a step  {reset}"
        f"compiled in {row['compile_seconds']:5.1f} s  {row['bytes_per_env']:7.0f} B/env"
        f"{ratio(row)}"
    )
