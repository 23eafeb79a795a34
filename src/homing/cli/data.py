"""Commands on datasets: `homing data export`, `import`, `info`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from homing.cli import paths
from homing.cli.arguments import Flag, Json
from homing.errors import ConfigError

data_app = tyro.extras.SubcommandApp()


@data_app.command(name="export")
def export(
    policy: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLICY")],
    episodes: int,
    format: Literal["ogbench", "minari"] = "ogbench",
    out: str | None = None,
    noise: float = 0.0,
    random_actions: float = 0.0,
    explore: Flag = False,
    seed: int = 0,
    val_fraction: float = 0.1,
    env: str | None = None,
    episode_length: int | None = None,
    policy_seed: int | None = None,
    which: Literal["last", "best"] = "last",
    cpu: Flag = False,
    quiet: Flag = False,
) -> None:
    """Roll a policy out in its environment and write the episodes as a dataset.

    Args:
        policy: folder of a run, a policy file, or the name of a shipped policy
        episodes: episodes in all, those for validation included
        format: an npz in OGBench's layout, or a Minari dataset
        out: file to write, data/ENV-AGENT.npz by default; for minari an id, homing/ENV/AGENT-v0 by default
        noise: standard deviation of Gaussian noise on every action
        random_actions: fraction of steps with a uniformly random action instead of the policy's
        explore: sample the policy's actions as in training instead of acting greedily
        seed: random seed of starts, goals and noise
        val_fraction: fraction of the episodes that go to a second file, NAME-val.npz
        env: another environment, with states and goals of the same size
        episode_length: time limit of an episode, instead of the policy's
        policy_seed: which of the policy's seeds; the first by default
        which: the last policies of a run or those of its best evaluation
        cpu: compute on the CPU, even if there is a GPU
        quiet: print only the names of what was written
    """
    from homing.config.plan import human_bytes
    from homing.policies.rollouts import plan_export
    from homing.training.device import choose_device

    if out is not None and format == "ogbench":
        paths.check_file("--out", Path(out))
    choose_device(cpu)
    planned = plan_export(
        policy,
        episodes=episodes,
        format=format,
        out=out,
        env=env,
        episode_length=episode_length,
        which=which,
        policy_seed=policy_seed,
        explore=explore,
        noise=noise,
        random_actions=random_actions,
        seed=seed,
        val_fraction=val_fraction,
    )
    for file in planned.files:
        paths.check_file("--out", file)
    if not quiet:
        length = planned.env.episode_length
        print(
            f"{episodes:,} episodes of {planned.env.spec.id}, of at most {length:,} steps: "
            f"up to {human_bytes(planned.most_bytes)} in {planned.out}"
        )
    with _bar(episodes, quiet) as advance:
        dataset = planned.collected(advance)
    for name in planned.write(dataset):
        print(name if quiet else f"wrote {name}")
    if not quiet:
        _print_facts(dataset)
        if format == "ogbench":
            file = shlex.quote(planned.out)
            print(f"train on it: homing train gcbc {planned.env.spec.id} --data {file} --preset quickstart")


@data_app.command(name="import")
def import_(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    out: Path,
    quiet: Flag = False,
) -> None:
    """Check a dataset and write it as an npz that `homing train --data` reads.

    Args:
        source: id of a local Minari dataset, or an npz file in OGBench's layout
        out: file to write; its name ends in .npz
        quiet: print only the name of the file
    """
    from homing.datasets import npz, write_dataset

    npz.check_name(paths.check_file("--out", out))
    if out.exists():
        raise ConfigError(f"{out} exists already and is not overwritten; choose another --out")
    dataset = _read(source)
    write_dataset(out, dataset)
    print(out if quiet else f"wrote {out}")
    if not quiet:
        _print_facts(dataset)


@data_app.command(name="info")
def info(
    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")],
    json_: Json = False,
) -> None:
    """Check a dataset and describe it.

    Args:
        source: an npz file in OGBench's layout, or the id of a local Minari dataset
        json_: print JSON instead of text
    """
    dataset = _read(source)
    if json_:
        print(json.dumps(facts(dataset), indent=1))
        return
    _print_facts(dataset)
    if fitting := fitting_envs(dataset):
        print(f"fits:         {', '.join(fitting)}")


def _read(source: str) -> Any:
    """A dataset from a file, or from Minari where there is no such file and the name may be an id."""
    from homing.datasets import read_dataset
    from homing.datasets.minari_files import read_minari

    if "." in source or source.startswith(("/", "~")) or Path(source).exists():  # no id of Minari has a dot
        return read_dataset(source)
    return read_minari(source)


def facts(dataset: Any) -> dict[str, Any]:
    """What a dataset holds, plain values."""
    lengths = dataset.lengths
    return {
        "episodes": dataset.episodes,
        "transitions": dataset.transitions,
        "state_dim": dataset.state_dim,
        "action_dim": dataset.action_dim,
        "goal_dim": None if dataset.goals is None else dataset.goals.shape[1],
        "episode_lengths": [int(lengths.min()), float(np.median(lengths)), int(lengths.max())],
        "terminated": int(dataset.terminated.sum()),
        "sha256": dataset.sha256,
        "notes": dict(dataset.notes),
    }


def _print_facts(dataset: Any) -> None:
    found, notes = facts(dataset), dataset.notes
    low, median, high = found["episode_lengths"]
    goals = f", commanded goals of {found['goal_dim']}" if found["goal_dim"] else ", no commanded goals"
    lines = {
        "episodes": f"{found['episodes']:,} of {low:,} to {high:,} steps (median {median:,.0f}), "
        f"{found['terminated']:,} of them ended by a fall",
        "transitions": f"{found['transitions']:,}",
        "sizes": f"states of {found['state_dim']}, actions of {found['action_dim']}{goals}",
    }
    if "env" in notes:
        lines["environment"] = notes["env"]
    if "policy" in notes:
        policy = notes["policy"]
        lines["policy"] = (
            f"{policy.get('name', '?')} ({policy.get('agent', '?')}), noise {notes.get('noise', 0):g}, "
        )
        lines["policy"] += (
            f"{notes.get('random_actions', 0):.0%} random actions, seed {notes.get('seed', '?')}"
        )
    for name, text in lines.items():
        print(f"{name + ':':13s} {text}")


def fitting_envs(dataset: Any) -> list[str]:
    """Environments whose states and actions have the dataset's sizes; that of its notes alone if it is known."""
    from homing.envs import env_ids, make

    known = dataset.notes.get("env")
    ids = [known] if known in env_ids() else list(env_ids())
    specs = [make(id).spec for id in ids]
    sizes = (dataset.state_dim, dataset.action_dim)
    return [spec.id for spec in specs if (spec.state_dim, spec.action_dim) == sizes]


class _bar:
    """A progress bar on a terminal; nothing elsewhere."""

    def __init__(self, total: int, quiet: bool):
        columns = (TextColumn("collecting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, disable=quiet, transient=True)
        self._task = self._progress.add_task("", total=total)

    def __enter__(self) -> Any:
        self._progress.start()
        return lambda done: self._progress.update(self._task, completed=done)

    def __exit__(self, *error: Any) -> None:
        self._progress.stop()
