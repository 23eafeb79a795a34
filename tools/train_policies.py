"""Train, compare, export, measure and record the shipped policies, by the table in tools/policies.toml.

    python tools/train_policies.py                 all of them; those of a GPU are passed over where there is none
    python tools/train_policies.py reacher         one
    python tools/train_policies.py --quick --out /tmp/policies reacher     all stages with very little training
    python tools/train_policies.py --only train,export --jobs 5 ant humanoid ...     side by side on one GPU
    python tools/train_policies.py --only export,page,picture,record,docs --again ant     trained elsewhere

Seeds and checkpoints are compared on few chains of goals; the card of the chosen one has many others, and goals that
are reached on the page of `homing play`. Every stage is skipped when its result is there: a run that was stopped is
resumed, a finished one is exported, and `--again` exports what is there already. A run's folder without its
`checkpoints` is enough to export it elsewhere. The docs are written by the files that are shipped. Ctrl-C and SIGTERM
reach every run, which then saves itself.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import GPU_MEMORY, Processes, is_finished, start_or_resume

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).parent / "policies.toml"
SHIPPED = ROOT / "src" / "homing" / "policies"
RECORDS = ROOT / "tests" / "policies" / "shipped.json"
LARGEST = 2 * 10**6  # bytes of one file
CAPTION = 21  # pixels at the top and bottom of a film
LENGTH, CHAINS, QUICK_CHAINS = 5, 512, 8
SELECTION_CHAINS = 64  # to compare seeds and checkpoints; a card's are CHAINS
SELECTION_SEED = 11  # of the chains on which seeds are compared; the card's are others
PAGE_CHAINS, MEASURE = 60, Path(__file__).parent / "measure_page.py"
QUICK = ("--steps", "12k", "--num-envs", "32", "--batch-size", "32", "--updates-per-step", "0.005")
QUICK += ("--prefill-steps", "124", "--replay-size", "1240", "--evaluations", "1", "--eval-envs", "8")
STAGES = ("train", "export", "page", "picture", "record", "docs")


@dataclass(frozen=True)
class Recipe:
    """How one shipped policy is trained."""

    name: str
    agent: str
    env: str
    device: str
    chain_steps: int
    flags: tuple[str, ...]
    page_seconds: float


@dataclass(frozen=True)
class Job:
    """One recipe with its folders and how much is computed."""

    recipe: Recipe
    runs: Path
    out: Path
    cpu: bool
    quick: bool
    chains: int = CHAINS
    beside: int = 1  # policies made side by side

    @property
    def run(self) -> Path:
        return self.runs / (f"{self.recipe.name}-quick" if self.quick else self.recipe.name)

    @property
    def file(self) -> Path:
        return self.out / f"{self.recipe.name}.safetensors"

    @property
    def device(self) -> tuple[str, ...]:
        return ("--cpu",) if self.cpu else ()

    @property
    def place(self) -> dict[str, Any]:
        """Options of `homing`: beside others, a command has a part of the GPU, and its output goes to a file."""
        if self.beside == 1:
            return {}
        return {"log": self.run.with_suffix(".log"), "memory": None if self.cpu else GPU_MEMORY / self.beside}

    def chain(self, most: int = CHAINS) -> tuple[str, ...]:
        """Flags of an evaluation along chains of goals, of which there are at most so many."""
        episodes = QUICK_CHAINS if self.quick else min(self.chains, most)
        steps = self.recipe.chain_steps // (10 if self.quick else 1)
        return ("--episodes", str(episodes), "--chain", str(LENGTH), "--chain-steps", str(steps))


def recipes() -> dict[str, Recipe]:
    table = tomllib.loads(TABLE.read_text())
    own = lambda row: {"flags": tuple(row["flags"]), "page_seconds": table["page_seconds"][row["name"]]}
    return {row["name"]: Recipe(**row | own(row)) for row in table["policy"]}


PROCESSES = Processes()
homing = PROCESSES.homing


def train(job: Job) -> None:
    """Start the run, or resume it where it was stopped."""
    asked = job.recipe.agent, job.recipe.env, *job.recipe.flags, *(QUICK if job.quick else ())
    start_or_resume(homing, job.run, *asked, device=job.device, **job.place)


def best(job: Job) -> tuple[int, str]:
    """The seed and checkpoint that reach most goals along chains."""
    scores: dict[tuple[int, str], float] = {}
    for which in ("last", "best"):
        evaluate = ("eval", str(job.run), "--which", which, "--seed", str(SELECTION_SEED), "--json")
        found = json.loads(
            homing(*evaluate, *job.chain(SELECTION_CHAINS), *job.device, read=True, **job.place)
        )
        scores |= {(row["seed"], which): row.get("reached", -1.0) for row in found["seeds"]}
    print(job.recipe.name, {f"seed {seed}, {which}": round(v, 4) for (seed, which), v in scores.items()})
    return max(scores, key=lambda one: scores[one])


def export(job: Job) -> None:
    seed, which = best(job)
    chosen = ("--seed", str(seed), "--which", which)
    written = ("--out", str(job.file), "--float16", *chosen)
    homing("export", str(job.run), *written, *job.chain(), *job.device, **job.place)
    size = job.file.stat().st_size
    if size > LARGEST:
        job.file.unlink()
        raise SystemExit(f"{job.file.name} has {size:,} bytes, more than {LARGEST:,}: use smaller networks")


def page(job: Job, again: bool = False) -> None:
    """What clicks on the page reach, on the card; in a process of its own, on the CPU."""
    from homing.policies.store import read_card

    if again or not job.file.exists() or "page" not in read_card(job.file):
        chains, faster = (1, 10) if job.quick else (PAGE_CHAINS, 1)
        goals = ("--chains", str(chains), "--length", str(LENGTH))
        seconds = ("--seconds", str(job.recipe.page_seconds / faster))
        PROCESSES.run([sys.executable, str(MEASURE), str(job.file), *goals, *seconds])


def draw(job: Job) -> None:
    """The picture of the gallery: the last step of a short film."""
    from PIL import Image

    path = job.file.with_suffix(".png")
    homing("render", str(job.file), "--steps", "60", "--width", "400", "--height", "300", "--out", str(path))
    picture = Image.open(path).convert("RGB")
    width, height = picture.size
    picture = picture.crop((0, CAPTION, width, height - CAPTION)).quantize(64)
    picture.save(path, optimize=True)


def record(job: Job) -> None:
    """Hashes, actions and values, by which a test knows the shipped file."""
    import jax
    import numpy as np
    from safetensors.numpy import load_file

    from homing import load

    jax.config.update("jax_platforms", "cpu")  # the GPU is for the commands
    policy, rng = load(job.file), np.random.default_rng(7)
    state = rng.normal(size=(5, policy.spec.state_dim)).astype(np.float32)
    goal = rng.normal(size=(5, policy.spec.goal_dim)).astype(np.float32)
    arrays = load_file(job.file)
    entry: dict[str, Any] = {
        "weights": {key: hashlib.sha256(x.tobytes()).hexdigest()[:16] for key, x in arrays.items()},
        "action": np.asarray(policy(state, goal)).tolist(),
    }
    if policy.has_critic:
        entry["value"] = np.asarray(policy.value(state, goal)).tolist()
    known = json.loads(RECORDS.read_text())
    RECORDS.write_text(json.dumps(known | {job.recipe.name: entry}, indent=1) + "\n")


def document(names: Sequence[str]) -> None:
    """Cards, films and live pages of the docs, by the files that are shipped now."""
    import make_docs
    import make_env_pages
    import make_live
    import make_see

    make_see.cards()
    make_live.main(names)
    for name in names:
        make_docs.draw_film(name)
    make_env_pages.write_pages()


def make(job: Job, stages: Sequence[str] = STAGES, again: bool = False) -> None:
    """The stages of one policy."""
    if "train" in stages:
        train(job)
    if "export" in stages and (again or not job.file.exists()):
        export(job)
    if "page" in stages:
        page(job, again)
    if "picture" in stages and (again or not job.file.with_suffix(".png").exists()):
        draw(job)
    if "record" in stages and job.out == SHIPPED:
        record(job)


def make_all(
    todo: Sequence[Job], jobs: int, stages: Sequence[str] = STAGES, again: bool = False
) -> list[str]:
    """Make policies side by side; the names of those that failed or were stopped."""

    def made(job: Job) -> bool:
        try:
            make(job, stages, again)
        except subprocess.CalledProcessError as error:
            print(f"{job.recipe.name}: code {error.returncode} of {' '.join(error.cmd[1:4])}", flush=True)
            return False
        except SystemExit as error:
            print(f"{job.recipe.name}: {error}", flush=True)
            return False
        return True

    with ThreadPoolExecutor(jobs) as pool:
        return [job.recipe.name for job, ok in zip(todo, pool.map(made, todo), strict=True) if not ok]


def has_gpu() -> bool:
    """Asked in another process: this one would keep most of the GPU's memory."""
    ask = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    little = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    return (
        subprocess.run(ask, check=True, text=True, stdout=subprocess.PIPE, env=little).stdout.strip() != "cpu"
    )


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    as_it_is = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=as_it_is)
    parser.add_argument("names", nargs="*", choices=[[], *recipes()], help="which policies; all by default")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "shipped", help="folder of their runs")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="folder of the policy files")
    parser.add_argument(
        "--only", default=",".join(STAGES), help="stages, with a comma in between; all of them"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="make so many side by side")
    parser.add_argument(
        "--chains", type=int, default=CHAINS, metavar="N", help="chains of goals of an evaluation"
    )
    parser.add_argument("--again", action="store_true", help="export files that are there already")
    parser.add_argument("--quick", action="store_true", help="little training, to try it all; needs --out")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if not set(options.only) <= set(STAGES):
        parser.error(f"the stages of --only are {', '.join(STAGES)}")
    if options.quick and options.out == SHIPPED:
        parser.error("--quick would replace the shipped files; give another --out")
    return options


def planned(options: argparse.Namespace) -> list[Job]:
    """What is asked for, without what cannot be trained here."""
    gpu, names = has_gpu(), options.names or list(recipes())
    beside = min(options.jobs, len(names))
    todo = []
    for recipe in (recipes()[name] for name in names):
        cpu = recipe.device == "cpu" or not gpu
        job = Job(recipe, options.runs, options.out, cpu, options.quick, options.chains, beside)
        if (
            "train" in options.only
            and cpu
            and recipe.device == "gpu"
            and not (job.quick or is_finished(job.run))
        ):
            print(f"{recipe.name} needs a GPU and is passed over")
        else:
            todo.append(job)
    return todo


def main(arguments: Sequence[str]) -> None:
    options = parsed(arguments)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda number, frame: PROCESSES.stop(number))
    todo = planned(options)
    options.out.mkdir(parents=True, exist_ok=True)
    if failed := make_all(todo, options.jobs, options.only, options.again):
        raise SystemExit(f"not done: {', '.join(failed)}; the same command goes on with them")
    if "docs" in options.only and options.out == SHIPPED and todo:
        document([job.recipe.name for job in todo])


if __name__ == "__main__":
    main(sys.argv[1:])
