"""`homing eval`, and the table of evaluation metrics that it shares with `train` and `resume`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from homing.bounds import check_values
from homing.cli.arguments import Flag, Json
from homing.errors import ConfigError

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
NOT_EVALUATION = ("train/", "time/", "speed/")


def print_summary(title: str, stats: dict[str, dict[str, float]]) -> None:
    """A table of evaluation metrics, and a line on what each means."""
    from homing.report.names import by_importance, legend
    from homing.runs.stats import interval_caveat

    named = {
        name.removeprefix("eval/"): s for name, s in stats.items() if not name.startswith(NOT_EVALUATION)
    }
    shown = {name: named[name] for name in by_importance(named)}
    seeds = max((int(s["seeds"]) for s in shown.values()), default=0)
    table = Table(title=title, min_width=len(title))
    table.add_column("")
    for heading in ("IQM", "95 % interval", "seeds") if seeds > 1 else ("1 seed",):
        table.add_column(heading, justify="right")
    for name, s in shown.items():
        interval = f"{s['low']:.4g} … {s['high']:.4g}" if s["seeds"] > 1 else ""
        spread = (interval, str(s["seeds"])) if seeds > 1 else ()
        table.add_row(name, f"{s['iqm']:.4g}", *spread)
    Console().print(table)
    caveat = interval_caveat(seeds)
    print("\n".join([*legend(shown), *([caveat] if caveat else [])]))


def check_chain(chain: int | None, chain_steps: int | None) -> None:
    """Refuse a chain of goals that cannot be, and a time for each goal of none."""
    check_values(chain=chain, chain_steps=chain_steps)
    if chain_steps is not None and chain is None:
        raise ConfigError(
            "--chain-steps is the time for each goal of a chain; give --chain, the number of goals"
        )


def evaluate(
    run: Run,
    env: str | None = None,
    episodes: int | None = None,
    which: Literal["last", "best"] = "last",
    seed: int = 0,
    explore: Flag = False,
    chain: int | None = None,
    chain_steps: int | None = None,
    cpu: Flag = False,
    json_: Json = False,
) -> None:
    """Evaluate trained policies on fresh starts and goals.

    Args:
        run: folder of a run, a policy file, or the name of a shipped policy
        env: evaluate in this environment instead of the run's own
        episodes: episodes of each seed; as many as in the run's evaluations by default
        which: the last policies of the run or the best
        seed: random seed of starts and goals
        explore: sample actions as in training instead of acting greedily
        chain: this many goals one after the other in each episode, without a reset between them
        chain_steps: steps for each goal of a chain; the time limit of an episode by default
        cpu: compute on the CPU, even if there is a GPU
        json_: print JSON, with every seed, instead of a table
    """
    from homing import api
    from homing.policies.store import locate
    from homing.training.device import choose_device

    check_values(episodes=episodes, seed=seed)
    check_chain(chain, chain_steps)
    locate(run)
    choose_device(cpu)
    if sys.stderr.isatty():  # it may take a minute
        print(f"evaluating {run}", file=sys.stderr)
    result = api.evaluate(
        run,
        env=env,
        episodes=episodes,
        which=which,
        seed=seed,
        explore=explore,
        chain=chain,
        chain_steps=chain_steps,
    )
    if json_:
        print(json.dumps(result, indent=1))
        return
    what = "episodes" if chain is None else f"chains of {chain} goals"
    print_summary(f"{result['env']}, {result['episodes']} {what} of each seed", result["summary"])
    if result["diverged"]:
        print(f"left out, since they have diverged: seeds {', '.join(map(str, result['diverged']))}")
