"""Train, compare, export and record the shipped policies, by the table in tools/policies.toml.

    python tools/train_policies.py                 all of them; those of a GPU are passed over where there is none
    python tools/train_policies.py reacher         one
    python tools/train_policies.py --quick --out /tmp/policies reacher     all stages with very little training

Every stage is skipped when its result is there: a run that was stopped is resumed, a finished one is exported, and
`--again` exports what is there already. Then `python tools/make_see.py` writes docs/policies.md from the cards.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TABLE = Path(__file__).parent / "policies.toml"
SHIPPED = ROOT / "src" / "homing" / "policies"
RECORDS = ROOT / "tests" / "policies" / "shipped.json"
LARGEST = 2 * 2**20  # bytes of one file
CAPTION = 21  # pixels at the top and bottom of a film
LENGTH, CHAINS, QUICK_CHAINS = 5, 512, 8
SELECTION_SEED = 11  # of the chains on which seeds are compared; the card's are others
QUICK = ("--steps", "20k", "--evaluations", "1", "--eval-envs", "8", "--prefill-steps", "100")


@dataclass(frozen=True)
class Recipe:
    """How one shipped policy is trained."""

    name: str
    agent: str
    env: str
    device: str
    chain_steps: int
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One recipe with its folders and how much is computed."""

    recipe: Recipe
    runs: Path
    out: Path
    cpu: bool
    quick: bool

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
    def chain(self) -> tuple[str, ...]:
        episodes = QUICK_CHAINS if self.quick else CHAINS
        steps = self.recipe.chain_steps // (10 if self.quick else 1)
        return ("--episodes", str(episodes), "--chain", str(LENGTH), "--chain-steps", str(steps))


def recipes() -> dict[str, Recipe]:
    rows = tomllib.loads(TABLE.read_text())["policy"]
    return {row["name"]: Recipe(**row | {"flags": tuple(row["flags"])}) for row in rows}


def homing(*arguments: str, read: bool = False) -> str:
    """A command in a process of its own, so that each has the whole device."""
    print("$ homing", *arguments, flush=True)
    command = [sys.executable, "-m", "homing", *arguments]
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE if read else None)
    return done.stdout or ""


def train(job: Job) -> None:
    """Start the run, or resume it where it was stopped."""
    summary = job.run / "summary.json"
    if summary.exists() and json.loads(summary.read_text())["status"] == "finished":
        return
    if (job.run / "config.json").exists():
        homing("resume", str(job.run), *job.device)
        return
    flags = (*job.recipe.flags, *(QUICK if job.quick else ()))
    homing("train", job.recipe.agent, job.recipe.env, *flags, "--out", str(job.run), *job.device)


def best(job: Job) -> tuple[int, str]:
    """The seed and checkpoint that reach most goals along chains."""
    scores: dict[tuple[int, str], float] = {}
    for which in ("last", "best"):
        evaluate = ("eval", str(job.run), "--which", which, "--seed", str(SELECTION_SEED), "--json")
        found = json.loads(homing(*evaluate, *job.chain, *job.device, read=True))
        scores |= {(row["seed"], which): row.get("reached", -1.0) for row in found["seeds"]}
    print(job.recipe.name, {f"seed {seed}, {which}": round(v, 4) for (seed, which), v in scores.items()})
    return max(scores, key=lambda one: scores[one])


def export(job: Job) -> None:
    seed, which = best(job)
    chosen = ("--seed", str(seed), "--which", which)
    homing("export", str(job.run), "--out", str(job.file), "--float16", *chosen, *job.chain, *job.device)
    size = job.file.stat().st_size
    if size > LARGEST:
        job.file.unlink()
        raise SystemExit(
            f"{job.file.name} would have {size:,} bytes, more than {LARGEST:,}: use smaller networks"
        )


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

    import homing as library

    jax.config.update("jax_platforms", "cpu")  # the GPU is for the commands

    policy, rng = library.load(job.file), np.random.default_rng(7)
    state = rng.normal(size=(5, policy.spec.state_dim)).astype(np.float32)
    goal = rng.normal(size=(5, policy.spec.goal_dim)).astype(np.float32)
    arrays = load_file(job.file)
    entry: dict[str, Any] = {
        "weights": {key: hashlib.sha256(x.tobytes()).hexdigest()[:16] for key, x in arrays.items()},
        "action": np.asarray(policy(state, goal)).tolist(),
        "value": np.asarray(policy.value(state, goal)).tolist(),
    }
    known = json.loads(RECORDS.read_text())
    RECORDS.write_text(json.dumps(known | {job.recipe.name: entry}, indent=1) + "\n")


def make(job: Job, again: bool) -> None:
    """All stages of one policy."""
    train(job)
    if again or not job.file.exists():
        export(job)
        draw(job)
        if job.out == SHIPPED:
            record(job)
    print(f"{job.file} is there")


def has_gpu() -> bool:
    """Asked in another process: this one would keep most of the GPU's memory."""
    ask = [sys.executable, "-c", "import jax; print(jax.default_backend())"]
    return subprocess.run(ask, check=True, text=True, stdout=subprocess.PIPE).stdout.strip() != "cpu"


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=[[], *recipes()], help="which policies; all by default")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "shipped", help="folder of their runs")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="folder of the policy files")
    parser.add_argument("--again", action="store_true", help="export files that are there already")
    parser.add_argument(
        "--quick", action="store_true", help="little training, to try the stages; needs --out"
    )
    options = parser.parse_args(arguments)
    if options.quick and options.out == SHIPPED:
        parser.error("--quick would replace the shipped files; give another --out")
    return options


def main(arguments: Sequence[str]) -> None:
    options = parsed(arguments)
    gpu = has_gpu()
    for name in options.names or recipes():
        recipe = recipes()[name]
        if recipe.device == "gpu" and not gpu and not options.quick:
            print(f"{name} needs a GPU and is passed over")
            continue
        options.out.mkdir(parents=True, exist_ok=True)
        job = Job(
            recipe, options.runs, options.out, cpu=recipe.device == "cpu" or not gpu, quick=options.quick
        )
        make(job, options.again)


if __name__ == "__main__":
    main(sys.argv[1:])
