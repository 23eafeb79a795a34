"""Measure how many goals a policy reaches that are clicked on the page of `homing play`, and write it on its card.

python tools/measure_page.py src/homing/policies/ant.safetensors --seconds 60
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from homing.play.chains import click_chains
from homing.play.session import Session
from homing.play.sources import Choice
from homing.policies.card import on_page, with_page
from homing.policies.export import change_card
from homing.policies.store import read_card
from homing.training.device import choose_device

FIRST_SEED = 50_000  # of the places on a card; tests click at others


def measure(file: Path, chains: int, length: int, seconds: float, first: int = FIRST_SEED) -> None:
    """Click chains of goals on the page of the first policy in a file, and change its card."""
    session = Session(Choice(str(file)), (), seed=first)
    seeds = range(first, first + chains)
    found = click_chains(session, seeds, length, seconds)
    results = {
        "by": f"clicks at random places with seeds {seeds[0]} to {seeds[-1]}",
        "env": session.sim.env.spec.id,
        "chains": chains,
        "length": length,
        "seconds": seconds,
        "scores": [{"seed": session.sim.actor.seed, **found.summary()}],
    }
    change_card(file, lambda card: with_page(card, results))


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="policy file")
    parser.add_argument("--chains", type=int, default=20, help="chains of goals, each from a fresh start")
    parser.add_argument("--length", type=int, default=5, help="goals of a chain")
    parser.add_argument("--seconds", type=float, required=True, help="after which a goal counts as missed")
    options = parser.parse_args(arguments)
    choose_device(cpu=True)
    measure(options.file, options.chains, options.length, options.seconds)
    rate, what = on_page(read_card(options.file)) or (0.0, "")
    print(f"{options.file.stem}: {rate:.1%} {what}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
