"""Train the recipes of `homing train best` and record what they reached.

    python tools/measure_recipes.py                             all that have a file under results/, one by one
    python tools/measure_recipes.py --jobs 4 ant ant_u4_maze    some, side by side on one GPU
    python tools/measure_recipes.py --minutes 30                stop then; the same command goes on from there

A finished run is written to its file under results/, and what it reached to `homing recipes` and the README;
`--unfinished` writes runs that were stopped as well. Runs are under runs/recipes, with logs beside them. Their seeds
are others than those with which settings are chosen (0, 1, …).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import make_numbers
import make_recipes
from processes import GPU_MEMORY, Processes, is_finished, start_or_resume

from homing.config.recipes import Recipe, recipes

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
SEEDS = "10,11,12,13,14"
DIGITS = 5  # of the numbers in a recorded run

PROCESSES = Processes()
homing = PROCESSES.homing


def measured() -> dict[str, Recipe]:
    """Recipes with a recorded run, by environment."""
    return {recipe.env: recipe for recipe in recipes() if recipe.result is not None}


def train(env: str, run: Path, beside: int, device: Sequence[str] = ()) -> None:
    """Start the run, or resume it where it was stopped."""
    shared: dict[str, Any] = {"log": run.with_suffix(".log"), "memory": GPU_MEMORY / beside}
    place = shared if beside > 1 else {}
    start_or_resume(homing, run, "best", env, "--seed-list", SEEDS, device=device, **place)


def train_all(envs: Sequence[str], runs: Path, jobs: int, device: Sequence[str] = ()) -> None:
    """Train side by side; a run that fails or is stopped leaves the others alone."""

    def one(env: str) -> None:
        try:
            train(env, runs / env, min(jobs, len(envs)), device)
        except subprocess.CalledProcessError as error:
            if PROCESSES.stopped_by is None:
                print(f"{env}: homing {error.cmd[3]} ended with code {error.returncode}", flush=True)
        except SystemExit as error:
            print(f"{env}: {error}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, envs))


def record(run: Path, file: Path) -> None:
    """The metrics of a run as a file under results/."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    file.write_text("".join(json.dumps(_rounded(row)) + "\n" for row in rows))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    return [_rounded(entry) for entry in value] if isinstance(value, list) else value


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_is)
    parser.add_argument("envs", nargs="*", choices=[[], *measured()], help="environments; all by default")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="train so many side by side")
    parser.add_argument("--minutes", type=float, help="stop after so long, with a checkpoint of each run")
    parser.add_argument("--unfinished", action="store_true", help="record runs that were stopped as well")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "recipes", help="folder of the runs")
    parser.add_argument("--cpu", action="store_true", help="compute on the CPU, even if there is a GPU")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    return options


def main(arguments: Sequence[str]) -> None:
    options = parsed(arguments)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda number, frame: PROCESSES.stop(number))
    envs = options.envs or list(measured())
    end = (
        None
        if options.minutes is None
        else threading.Timer(60 * options.minutes, PROCESSES.stop, [signal.SIGINT])
    )
    if end is not None:
        end.daemon = True
        end.start()
    train_all(envs, options.runs, options.jobs, ("--cpu",) if options.cpu else ())
    if end is not None:
        end.cancel()
    left = [env for env in envs if not is_finished(options.runs / env)]
    for env in envs:
        run = options.runs / env
        if env not in left or (options.unfinished and (run / "metrics.jsonl").exists()):
            record(run, RESULTS / str(measured()[env].result))
    make_recipes.main()
    make_numbers.main()
    if left:
        raise SystemExit(f"not finished: {', '.join(left)}; the same command goes on with them")


if __name__ == "__main__":
    main(sys.argv[1:])
