"""Measure what recipes reached, from the runs recorded under results/, into the package's table of them."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path

from homing.config.recipes import measure

ROOT = Path(__file__).parent.parent
CONFIG = ROOT / "src" / "homing" / "config"


def reached() -> dict[str, dict[str, float]]:
    """What each recorded run of a recipe reached, by its file."""
    table = tomllib.loads((CONFIG / "recipes.toml").read_text())["recipe"]
    files = [row["result"] for row in table if "result" in row]
    read = lambda file: [json.loads(line) for line in (ROOT / "results" / file).read_text().splitlines()]
    return {file: dataclasses.asdict(measure(read(file))) for file in files}


def main() -> None:
    (CONFIG / "recipes.json").write_text(json.dumps(reached(), indent=1) + "\n")


if __name__ == "__main__":
    main()
