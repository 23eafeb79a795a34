"""The first thing to run: train a small agent on this machine, print its curves and record a video."""

from __future__ import annotations

import shlex
import shutil
import time
from pathlib import Path

from homing import api
from homing.errors import ConfigError, HomingError
from homing.runs.folder import CONFIG, RunFolder
from homing.runs.progress import sparkline
from homing.runs.strict_json import read_json

OUT = Path("quickstart")
AGENT = "crl"
ENV = "reacher"
PRESET = "quickstart"
SEEDS = 2
EPISODE_LENGTH = 200


def quickstart(out: Path = OUT, *, cpu: bool = False) -> api.Trained:
    """Train two seeds of contrastive RL on an arm with two joints, in one compiled program, and show them.

    A minute or two on two CPU cores. The results of an earlier quickstart in `out` are replaced.
    """
    begin = time.perf_counter()
    clear(out)
    run = api.train(
        AGENT, ENV, seeds=SEEDS, preset=PRESET, episode_length=EPISODE_LENGTH, out=out / "run", cpu=cpu
    )
    if run.status != "finished":
        return run
    print(f"\nTrained in {time.perf_counter() - begin:.0f} s. Success rate during training:")
    for seed in range(SEEDS):
        curve = [value for _, value in run.curve(seed)]
        print(f"  seed {seed}  {sparkline(curve)}  {curve[-1]:.0%} at the end")
    _act(run)
    _film(run, out)
    print(f"the metrics are in {out / 'run' / 'metrics.jsonl'}. What to try next:\n{next_commands(out)}")
    return run


def clear(out: Path) -> None:
    """Make room for the results: remove those of an earlier quickstart, and nothing else."""
    run = out / "run"
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder with --out")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (run / CONFIG).is_file():
        raise ConfigError(f"{out} holds something else than a quickstart; name another folder with --out")
    _check_own(run)
    with RunFolder(run).held():  # a run in progress is refused
        shutil.rmtree(run, ignore_errors=True)


def _check_own(run: Path) -> None:
    """Refuse a run with other settings than those of `quickstart`."""
    own = {
        "agent": AGENT,
        "env": ENV,
        "preset": PRESET,
        "seeds": list(range(SEEDS)),
        "episode_length": EPISODE_LENGTH,
    }
    try:
        config = read_json(run / CONFIG)
    except HomingError:
        config = None
    if not isinstance(config, dict) or any(config.get(name) != value for name, value in own.items()):
        raise ConfigError(
            f"{run} is not a run of quickstart and is not replaced; name another folder with --out"
        )


def _act(run: api.Trained) -> None:
    """A policy is a function of state and goal."""
    from homing.envs import make

    policy, spec = run.policy(seed=0), make(ENV).spec
    print(f"\nThe policy maps a state of {spec.state_dim} and a goal of {spec.goal_dim} numbers")
    print(f"to an action: {policy([0.0] * spec.state_dim, [0.1, 0.1, 0.01])}")


def _film(run: api.Trained, out: Path) -> None:
    from homing.viz.render import film_run

    film, picture = out / f"{ENV}.gif", out / f"{ENV}.png"
    film_run(run.path, film, picture=picture, steps=300, width=320, height=240)
    print(f"\nA video is in {film}, an image of a reached goal in {picture},")


def next_commands(out: Path) -> str:
    """Commands that go on from here, one on a line."""
    run, page = (shlex.quote(str(out / name)) for name in ("run", "report.html"))
    notes = {
        "homing play reacher": "(click a goal: a trained agent moves there)",
        f"homing play {run}": "(the same with the agent trained here)",
        f"homing report {run} --out {page}": "",
        f"homing eval {run} --episodes 1000": "",
        "homing train crl point_u_maze --preset quickstart --steps 1M --seeds 4": "",
        "homing train best ant --seeds 5": "(on a GPU)",
    }
    width = max(len(command) for command, note in notes.items() if note)
    return "\n".join(f"  {command:{width}s}  {note}".rstrip() for command, note in notes.items())
