"""The command line: commands, no logic."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from homing.cli import interrupts
from homing.cli import policies as cli_policies
from homing.cli import report as cli_report
from homing.cli import show as cli_see
from homing.cli import train as cli_train
from homing.cli.bench import bench_app
from homing.compile import export_cache
from homing.errors import ConfigError, HomingError
from homing.version import __version__

app = tyro.extras.SubcommandApp()

Options = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE", help_behavior_hint="")]


def parse_options(settings: tuple[str, ...]) -> dict[str, Any]:
    """`("task.within=0.3",)` as a mapping; values are read as JSON where they are, else as text."""
    options = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"an option is written NAME=VALUE, for instance task.within=0.3, not {setting!r}"
            )
        try:
            options[name] = json.loads(text)
        except json.JSONDecodeError:
            options[name] = text
    return options


@app.command(name="envs")
def envs(json_: Annotated[bool, tyro.conf.arg(name="json")] = False) -> None:
    """List the environments.

    Args:
        json_: print JSON, with the names of all state entries, instead of a table
    """
    from homing.envs import ALIASES, env_ids, make

    infos = [make(id).spec for id in env_ids()]
    if json_:
        rows = [dataclasses.asdict(info) for info in infos]
        for row in rows:
            row["aliases"] = [alias for alias, own in ALIASES.items() if own == row["id"]]
        print(json.dumps(rows, indent=1))
        return
    table = Table(title=f"{len(infos)} environments")
    for heading in ("id", "body", "task", "arena", "physics", "dt"):
        table.add_column(heading)
    for heading in ("state", "goal", "action", "within", "length"):
        table.add_column(heading, justify="right")
    table.add_column("ends early")
    for i in infos:
        sizes = (i.state_dim, i.goal_dim, i.action_dim, f"{i.threshold:g}", i.episode_length)
        early = "yes" if i.ends_early else ""
        table.add_row(i.id, i.body, i.task, i.arena, i.physics, f"{i.dt:g}", *map(str, sizes), early)
    _console(wide=True).print(table)


@app.command(name="doctor")
def doctor(json_: Annotated[bool, tyro.conf.arg(name="json")] = False) -> None:
    """Check versions, devices, memory and drawing, and say what to do about what is wrong.

    Args:
        json_: print JSON instead of text
    """
    from homing.system.doctor import examine

    findings = examine()
    if json_:
        print(json.dumps([dataclasses.asdict(f) for f in findings], indent=1))
    else:
        for f in findings:
            mark = ("ok ", "green") if f.well else ("FIX", "red")
            _console().print(Text.assemble(mark, f" {f.what}: {f.found}"), soft_wrap=True)
            if not f.well:
                _console().print(Text(f"    {f.fix}"), soft_wrap=True)
    if not all(f.well for f in findings):
        raise SystemExit(1)


def _console(wide: bool = False) -> Console:
    """A table must not be cut where the output is no terminal."""
    return Console(width=160 if wide and not sys.stdout.isatty() else None)


def command() -> None:
    """The program `homing`: a process in which no code but the package's runs."""
    export_cache.turn_on()
    # Else JAX begins by taking three quarters of a GPU's memory, which takes seconds on a large one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    interrupts.guarded(main)


def main(argv: list[str] | None = None) -> None:
    """The command line, also for a script with parts of its own, such as an agent it registers."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args == ["--version"]:
        print(f"homing {__version__}")
        return
    try:
        if args[:1] == ["train"]:
            cli_train.train(args[1:])
        elif args[:1] == ["study"]:
            from homing.cli import study as cli_study

            cli_study.main(args[1:])
        elif args[:1] == ["bench"]:
            bench_app.cli(prog="homing bench", description="Measure speed on this machine.", args=args[1:])
        else:
            app.cli(prog="homing", description="Goal-conditioned reinforcement learning.", args=args)
    except HomingError as error:
        print(f"homing: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt as error:
        print("homing: interrupted", file=sys.stderr)
        raise SystemExit(interrupts.exit_code(error)) from None


@app.command(name="bench")
def _bench() -> None:
    """Measure speed on this machine: `homing bench train`, `learner`, `physics`, `scaling`."""


@app.command(name="study")
def _study() -> None:
    """Whole studies and their figures: `homing study list`, `plan`, `run`, `status`, `report`."""


@app.command(name="train")
def _train() -> None:
    """Train an agent, many seeds in one program."""


app.command(name="resume")(cli_train.resume)
app.command(name="eval")(cli_train.evaluate)
app.command(name="report")(cli_report.report)
app.command(name="watch")(cli_report.watch)
app.command(name="render")(cli_see.render)
app.command(name="play")(cli_see.play)
app.command(name="export")(cli_policies.export)
app.command(name="policies")(cli_policies.policies)


if __name__ == "__main__":
    command()
