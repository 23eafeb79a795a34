"""Commands that train, go on with and evaluate: `train`, `resume`, `eval`."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from homing.config.parsing import parse_count, parse_ratio
from homing.errors import ConfigError

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Json = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(name="json")]
numbers = ConstructorRegistry()


@numbers.primitive_rule
def _numbers(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    rules = {int: ("INT", parse_count), float: ("FLOAT", parse_ratio)}
    if info.type not in rules:
        return None
    metavar, parse = rules[info.type]
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: parse(args[0]),
        is_instance=lambda value: isinstance(value, info.type),
        str_from_instance=lambda value: [f"{value:g}" if isinstance(value, float) else str(value)],
    )


Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """What `homing train` takes, whatever the agent."""

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """What learns: crl, sac, td3 or ppo; the flags below are those of the agent named."""
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """Where: an id that `homing envs` lists."""
    seeds: int = 1
    """How many seeds to train side by side: 0, 1, and so on."""
    seed_list: str | None = None
    """The seeds themselves instead, for instance 3,4."""
    steps: int | None = None
    """Environment steps of each seed, for instance 50M; short for --total-steps."""
    preset: str = "paper"
    """Settings to start from; every flag below changes one of them."""
    out: Path | None = None
    """A new folder for the run; runs/ENV-AGENT-TIME if not given."""
    eval_env: str | None = None
    """Evaluate in this environment instead of the one trained in."""
    episode_length: int = 1000
    """Time limit of an episode, in steps."""
    physics: str | None = None
    """Another pipeline than the environment's own."""
    reward: Literal["sparse", "dense"] = "sparse"
    """What the environment pays: 1 within the threshold, or its body's dense reward. CRL uses neither."""
    env_option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of body, task or arena, for instance task.within=0.3."""
    cpu: Flag = False
    """Compute on the CPU, even if there is a GPU."""
    devices: str | None = None
    """Spread seeds and environments over so many devices: a number, or all."""
    multi_host: Flag = False
    """This process is one of several, on one machine or more, that share the run."""
    fit: Flag = False
    """If the memory is short, take the largest settings that fit instead of refusing."""
    dry_run: Flag = False
    """Print the plan and what it needs, and stop."""
    quiet: Flag = False
    """Print nothing but warnings, and the run's folder at the end."""


def train_arguments(agent: str, preset: str, env: str | None = None) -> type:
    """The flags of `homing train` for one agent, with the preset's values as defaults."""
    from homing.config.presets import preset as get_preset
    from homing.config.run import SaveConfig

    chosen = get_preset(agent, preset, env)
    parts = {"train": chosen.train, "settings": chosen.agent, "save": SaveConfig()}
    fields = [
        (name, Annotated[type(part), tyro.conf.arg(name="")], dataclasses.field(default=part))
        for name, part in parts.items()
    ]
    return dataclasses.make_dataclass("Arguments", fields, bases=(TrainArguments,), frozen=True)


def _chosen(args: list[str]) -> tuple[str, str, str | None]:
    """Agent, preset and environment, which decide what the other flags are."""
    preset = "paper"
    for i, arg in enumerate(args):
        if arg == "--preset" and i + 1 < len(args):
            preset = args[i + 1]
        elif arg.startswith("--preset="):
            preset = arg.partition("=")[2]
    named = list(itertools.takewhile(lambda arg: not arg.startswith("-"), args))
    return named[0] if named else "crl", preset, named[1] if len(named) > 1 else None


def train(args: list[str]) -> None:
    """`homing train`: parse, check, train, say how it went."""
    kind = train_arguments(*_chosen(args))
    with numbers:
        asked = tyro.cli(
            kind, prog="homing train", description="Train an agent, many seeds in one program.", args=args
        )
    config = _config(asked)
    _train(asked, config)


def _config(asked: Any) -> Any:
    from homing.cli.main import parse_options
    from homing.config.run import RunConfig

    steps = asked.train.total_steps if asked.steps is None else asked.steps
    return RunConfig(
        agent=asked.agent,
        env=asked.env,
        train=dataclasses.replace(asked.train, total_steps=steps),
        settings=asked.settings,
        seeds=_seeds(asked),
        preset=asked.preset,
        eval_env=asked.eval_env,
        episode_length=asked.episode_length,
        physics=asked.physics,
        reward=asked.reward,
        options=parse_options(asked.env_option),
        save=asked.save,
    )


def _seeds(asked: Any) -> tuple[int, ...]:
    if asked.seed_list is None:
        return tuple(range(asked.seeds))
    try:
        return tuple(int(seed) for seed in asked.seed_list.split(","))
    except ValueError:
        raise ConfigError(
            f"--seed-list takes numbers with commas, for instance 3,4, not {asked.seed_list!r}"
        ) from None


def _train(asked: Any, config: Any) -> None:
    from homing import api
    from homing.runs.progress import make_progress

    show = make_progress(asked.quiet)
    if asked.dry_run:
        api.prepared(config, show, cpu=asked.cpu, fit=asked.fit, **_spread(asked.devices, asked.multi_host))
        return
    spread = _spread(asked.devices, asked.multi_host)
    _tell(api.train_config(config, asked.out, show, cpu=asked.cpu, fit=asked.fit, **spread), asked.quiet)


def _spread(devices: str | None, multi_host: bool) -> dict[str, Any]:
    from homing.training.sharding import parse_devices

    chosen = "all" if multi_host and devices is None else devices
    return {"devices": parse_devices(chosen), "multi_host": multi_host}


def resume(
    run: Run,
    cpu: Flag = False,
    quiet: Flag = False,
    devices: str | None = None,
    multi_host: Flag = False,
    accept_changes: Flag = False,
) -> None:
    """Go on with a run that was stopped or killed, as if nothing had happened.

    Args:
        run: folder of the run
        cpu: compute on the CPU, even if there is a GPU
        quiet: print nothing but warnings
        devices: spread the run over so many devices, which need not be as many as before: a number, or all
        multi_host: this process is one of several that share the run
        accept_changes: go on with a config.json that was edited, or without files that are lost
    """
    from homing import api

    spread = _spread(devices, multi_host)
    _tell(api.resume(run, cpu=cpu, quiet=quiet, accept_changes=accept_changes, **spread), quiet)


def _tell(trained: Any, quiet: bool) -> None:
    """Say how a run ended; a run that was stopped ends with the signal's exit code."""
    from homing.training.sharding import is_first

    if trained.status == "stopped":
        raise SystemExit(128 + trained.signum)
    if not is_first():
        return
    if quiet:
        print(trained.path)
        return
    from homing.runs.folder import RunFolder

    summary = RunFolder(trained.path).summary() or {}
    _print_summary(f"after {summary.get('step', 0):,} steps", summary.get("last", {}))
    print(f"run: {trained.path}\nsee it: homing render {trained.path} --out film.mp4")


def _print_summary(title: str, stats: dict[str, dict[str, float]]) -> None:
    table = Table(title=title)
    for heading, justify in (("", "left"), ("IQM", "right"), ("95 % interval", "right"), ("seeds", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for name, s in stats.items():
        if not name.startswith(("train/", "time/", "speed/")):
            interval = f"{s['low']:.4g} … {s['high']:.4g}" if s["seeds"] > 1 else ""
            table.add_row(name.removeprefix("eval/"), f"{s['iqm']:.4g}", interval, str(s["seeds"]))
    Console().print(table)


def evaluate(
    run: Run,
    env: str | None = None,
    episodes: int | None = None,
    which: Literal["last", "best"] = "last",
    seed: int = 0,
    explore: Flag = False,
    cpu: Flag = False,
    json_: Json = False,
) -> None:
    """Evaluate trained policies on fresh starts and goals.

    Args:
        run: folder of a run, a policy file, or the name of a shipped policy
        env: another environment than the run's own
        episodes: of each seed; as many as in the run's evaluations if not given
        which: the last policies or the best
        seed: of starts and goals
        explore: act as in training, with its noise, instead of taking the action thought best
        cpu: compute on the CPU, even if there is a GPU
        json_: print JSON, with every seed, instead of a table
    """
    from homing import api
    from homing.policies.store import locate

    locate(run)
    api.choose_device(cpu)
    told = api.evaluate(run, env=env, episodes=episodes, which=which, seed=seed, explore=explore)
    if json_:
        print(json.dumps(told, indent=1))
        return
    _print_summary(f"{told['env']}, {told['episodes']} episodes of each seed", told["summary"])
