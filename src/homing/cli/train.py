"""Commands that train and continue runs: `train`, `resume`."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from homing import plugins
from homing.cli.arguments import (
    ABOUT_IMPORT,
    HELP,
    Flag,
    flags_of,
    hide_absent,
    numbers,
    parse_options,
    split,
    value_of,
    without,
)
from homing.cli.evaluate import Run, print_summary
from homing.cli.offline import check_collection, loop_settings
from homing.cli.paths import check_folder
from homing.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class TrainArguments:
    """Arguments of `homing train` that do not depend on the agent."""

    agent: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="AGENT")]
    """The agent, which decides the flags below: crl, srl, sac, td3, ppo, gcbc, a registered one, or best."""
    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
    """The environment: an id that `homing envs` lists."""
    seeds: int = 1
    """Number of seeds to train in parallel: 0, 1, and so on."""
    seed_list: str | None = None
    """The seeds themselves, instead of --seeds, for instance 3,4."""
    steps: int | None = None
    """Environment steps of each seed, for instance 50M; with --data, updates. Short for --total-steps."""
    preset: str = "paper"
    """Settings to start from; every flag below changes one of them."""
    data: Path | None = None
    """Learn from this dataset (.npz) instead of collecting; see homing data."""
    init_from: str | None = None
    """Start with the parameters of this run, policy file or shipped policy, with new optimisers."""
    out: Path | None = None
    """A new folder for the run; runs/ENV-AGENT-TIME by default."""
    eval_env: str | None = None
    """Evaluate in this environment instead of the one trained in."""
    episode_length: int = 1000
    """Time limit of an episode, in steps."""
    physics: str | None = None
    """Physics pipeline, instead of the environment's default."""
    reward: Literal["sparse", "dense"] = "sparse"
    """Reward: 1 within the threshold, or the body's dense reward. CRL, SRL and GCBC use neither."""
    env_option: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE")] = ()
    """Settings of body, task or arena, for instance task.within=0.3."""
    cpu: Flag = False
    """Compute on the CPU, even if there is a GPU."""
    devices: str | None = None
    """Shard seeds and environments over this many devices: a number, or all."""
    multi_host: Flag = False
    """This process is one of several, on one or more machines, that share the run."""
    fit: Flag = False
    """Where memory is short, use the largest settings that fit instead of refusing."""
    dry_run: Flag = False
    """Print the plan and the memory it needs, and stop."""
    quiet: Flag = False
    """Print only warnings, and the run's folder at the end."""


def train_arguments(agent: str, preset: str, env: str | None = None) -> type:
    """The flags of `homing train` for one agent, with the preset's values as defaults."""
    from homing.config.presets import DEFAULT, PRESETS
    from homing.config.presets import preset as get_preset
    from homing.config.run import SaveConfig

    chosen = get_preset(agent, preset, env)
    parts = {"train": chosen.train, "settings": chosen.agent, "save": SaveConfig()}
    fields = [
        (name, Annotated[type(part), tyro.conf.arg(name="")], dataclasses.field(default=part))
        for name, part in parts.items()
    ]
    about = f"Settings to start from: {', '.join(PRESETS[agent])}. Every flag below changes one of them."
    fields.append(("preset", Annotated[str, tyro.conf.arg(help=about)], dataclasses.field(default=DEFAULT)))
    return dataclasses.make_dataclass("Arguments", fields, bases=(TrainArguments,), frozen=True)


def arranged(args: Sequence[str]) -> tuple[list[str], tuple[str, str, str | None]]:
    """The arguments with agent and environment first; and agent, preset, environment, on which the flags depend."""
    from homing.agents import agent_names
    from homing.config.presets import DEFAULT
    from homing.config.recipes import BEST, OWN_PRESET, recipe_for

    names, rest = split(args, all_flags(), (*agent_names(), BEST))
    _check_names(names, (*agent_names(), BEST))
    if names[:1] == [BEST] and len(names) > 1:
        if value_of("--preset", rest) is not None:
            raise ConfigError(OWN_PRESET)
        recipe = recipe_for(names[1])
        given = {arg.partition("=")[0].lstrip("-").replace("-", "_") for arg in rest if arg.startswith("--")}
        given |= {"total_steps"} if "steps" in given else set()
        options, rest = without("--env-option", rest)
        names = [recipe.agent, recipe.train_env or names[1], *names[2:]]
        rest = [*recipe.flags(given), *rest, *recipe.option_flags(options)]
    agent = names[0] if names else "crl"
    env = names[1] if len(names) > 1 else None
    return [*names, *rest], (agent, value_of("--preset", rest) or DEFAULT, env)


def _best_of(args: list[str]) -> str | None:
    """The environment whose recipe is asked for, None for an agent of another name."""
    from homing.agents import agent_names
    from homing.config.recipes import BEST

    names, _ = split(args, all_flags(), (*agent_names(), BEST))
    return names[1] if names[:1] == [BEST] and len(names) > 1 else None


def _check_names(names: Sequence[str], agents: Sequence[str]) -> None:
    """Refuse `best` without an environment, and an environment in the agent's place."""
    from homing.config.recipes import BEST

    if list(names) == [BEST]:
        raise ConfigError(
            "name the environment: homing train best ENV, for instance ant (homing recipes lists those measured)"
        )
    if len(names) > 1 and names[0] not in agents and names[1] in agents:
        raise ConfigError(f"the agent comes first: homing train {names[1]} {names[0]}")


def all_flags() -> dict[str, int]:
    """The flags of `homing train` for any agent, and how many values each takes."""
    from homing.agents import AGENTS
    from homing.config.offpolicy import TrainConfig
    from homing.config.onpolicy import OnPolicyConfig
    from homing.config.run import SaveConfig

    kinds = [*(config for config, _ in AGENTS.values()), TrainConfig, OnPolicyConfig, SaveConfig]
    flags: dict[str, int] = {}
    for kind in (*kinds, TrainArguments):  # the last decide where names are the same
        flags |= flags_of(kind)
    return flags


def train(args: list[str]) -> None:
    """`homing train`: parse, check, train, print the result."""
    from homing.config.recipes import recipe_for

    best, (args, chosen) = _best_of(args), arranged(args)
    hide_absent(TrainArguments)
    kind = train_arguments(*chosen)
    about = f"Train an agent, many seeds in one program. {ABOUT_IMPORT}"
    with numbers:
        asked = tyro.cli(kind, prog="homing train", description=about, args=args, config=HELP)
    _check_doubles(args)
    check_collection(args)
    steps = value_of("--steps", args) or value_of("--total-steps", args)
    config = _config(asked, steps is not None)
    if asked.out is not None:
        check_folder("--out", asked.out)
    if best is not None and not asked.quiet:
        print(f"best    {recipe_for(best).summary}", flush=True)
    _train(asked, config)


def _check_doubles(args: Sequence[str]) -> None:
    """Refuse two flags that set the same thing."""
    for one, other in (("--steps", "--total-steps"), ("--seeds", "--seed-list")):
        if value_of(one, args) is not None and value_of(other, args) is not None:
            raise ConfigError(f"{one} and {other} set the same thing; give one of them")


def _config(asked: Any, steps_given: bool) -> Any:
    from homing.config.run import DataFile, RunConfig

    return RunConfig(
        agent=asked.agent,
        env=asked.env,
        train=loop_settings(asked, steps_given),
        settings=asked.settings,
        seeds=_seeds(asked),
        preset=asked.preset,
        eval_env=asked.eval_env,
        episode_length=asked.episode_length,
        physics=asked.physics,
        reward=asked.reward,
        env_options=parse_options(asked.env_option),
        imports=plugins.modules_for(asked.agent, (asked.env, asked.eval_env)),
        save=asked.save,
        data=None if asked.data is None else DataFile(str(asked.data.absolute())),
        init_from=asked.init_from,
    )


def _seeds(asked: Any) -> tuple[int, ...]:
    from homing.config.run import parse_seeds

    if asked.seed_list is None:
        return parse_seeds(asked.seeds)
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
    """Continue a run that was stopped or killed, from its last checkpoint.

    Args:
        run: folder of the run
        cpu: compute on the CPU, even if there is a GPU
        quiet: print only warnings
        devices: shard the run over this many devices, which may differ from before: a number, or all
        multi_host: this process is one of several that share the run
        accept_changes: continue with an edited config.json, or without files that are lost
    """
    from homing import api

    spread = _spread(devices, multi_host)
    _tell(api.resume(run, cpu=cpu, quiet=quiet, accept_changes=accept_changes, **spread), quiet)


def _tell(trained: Any, quiet: bool) -> None:
    """Print how a run ended; a run that was stopped ends with the signal's exit code."""
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
    print_summary(f"after {summary.get('step', 0):,} steps", summary.get("last", {}))
    path = shlex.quote(str(trained.path))
    print(f"run:    {path}")
    for what, command in (("play", "play {}"), ("curves", "report {}"), ("film", "render {} --out film.mp4")):
        print(f"{what + ':':8s}homing {command.format(path)}")
