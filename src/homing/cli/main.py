"""The command line: `main` dispatches, the other modules hold the commands."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.table import Table
from rich.text import Text

from homing import plugins
from homing.cli import completion as cli_completion
from homing.cli import evaluate as cli_evaluate
from homing.cli import interrupts
from homing.cli import policies as cli_policies
from homing.cli import quickstart as cli_quickstart
from homing.cli import recipes as cli_recipes
from homing.cli import report as cli_report
from homing.cli import share as cli_share
from homing.cli import show as cli_show
from homing.cli import train as cli_train
from homing.cli.arguments import (
    ABOUT_IMPORT,
    HELP,
    Json,
    hide_absent,
    matching_envs,
    numbers,
    take_imports,
)
from homing.cli.bench import bench_app
from homing.cli.guard import guarded
from homing.cli.tables import add_names, console
from homing.compile import export_cache
from homing.errors import unknown
from homing.version import __version__

WELCOME = f"""homing {__version__}: goal-conditioned reinforcement learning

  homing quickstart        train a small agent in a minute or two, on any machine
  homing play              watch trained policies reach the goals that you click
  homing train best ant    train the best recipe that is known for the ant, on a GPU
  homing envs              list the environments
  homing doctor            check this machine

  homing --help            all commands; homing COMMAND --help, one of them
"""
app = tyro.extras.SubcommandApp()


app.command(name="quickstart")(cli_quickstart.quickstart)


@app.command(name="envs")
def envs(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = "",
    json_: Json = False,
) -> None:
    """List the environments, all of them or those whose name contains NAME.

    Args:
        name: part of the ids or aliases to list, for instance maze; all by default
        json_: print JSON, with the names of all state entries, instead of a table
    """
    from homing.envs import ALIASES, make

    infos = [make(id).spec for id in matching_envs(name)]
    if json_:
        rows = [dataclasses.asdict(info) for info in infos]
        for row in rows:
            row["aliases"] = [alias for alias, own in ALIASES.items() if own == row["id"]]
        print(json.dumps(rows, indent=1))
        return
    table = Table(title="1 environment" if len(infos) == 1 else f"{len(infos)} environments")
    add_names(table, "id", (info.id for info in infos))
    for heading in ("body", "task", "arena", "physics", "dt"):
        table.add_column(heading)
    for heading in ("state", "goal", "action", "within", "length"):
        table.add_column(heading, justify="right")
    table.add_column("terminates")
    for i in infos:
        sizes = (i.state_dim, i.goal_dim, i.action_dim, f"{i.threshold:g}", i.episode_length)
        early = "yes" if i.ends_early else ""
        table.add_row(i.id, i.body, i.task, i.arena, i.physics, f"{i.dt:g}", *map(str, sizes), early)
    console().print(table)


@app.command(name="doctor")
def doctor(json_: Json = False) -> None:
    """Check versions, devices, memory and rendering, and name the fix for what is wrong.

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
            console().print(Text.assemble(mark, f" {f.what}: {f.found}"), soft_wrap=True)
            if not f.well:
                console().print(Text(f"    {f.fix}"), soft_wrap=True)
    if not all(f.well for f in findings):
        raise SystemExit(1)


def command() -> None:
    """The program `homing`: a process in which no code but the package's runs."""
    export_cache.turn_on()
    # Else JAX begins by taking three quarters of a GPU's memory, which takes seconds on a large one.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    warn_plainly()
    interrupts.guarded(main)


def warn_plainly() -> None:
    """Our warnings are lines for a person; where a library sets up logging, they would carry level and module."""
    log, handler = logging.getLogger("homing"), logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.addHandler(handler)
    log.propagate = False


def main(argv: list[str] | None = None) -> None:
    """The command line, also for a script with parts of its own, such as an agent it registers."""
    with guarded():
        _dispatch(list(sys.argv[1:] if argv is None else argv))


def _dispatch(args: list[str]) -> None:
    modules, args = take_imports(args)
    if args[:1] == ["help"]:
        args = [*args[1:], "--help"]
    if args in (["--version"], ["version"]):
        print(f"homing {__version__}")
        return
    if not args:
        print(WELCOME, end="")
        return
    plugins.import_modules(modules)
    _check_command("command", app, args)
    if args[:1] == ["train"]:
        cli_train.train(args[1:])
    elif args[:1] == ["study"]:
        from homing.cli.study import study_app

        _run_app("study", study_app, "Studies: grids of runs and the figures they make.", args[1:])
    elif args[:1] == ["data"]:
        from homing.cli.data import data_app

        _run_app("data", data_app, "Datasets: written from a policy, or read from other libraries.", args[1:])
    elif args[:1] == ["bench"]:
        _run_app("bench", bench_app, "Measure speed on this machine.", args[1:])
    else:
        about = (
            f"Goal-conditioned reinforcement learning. {ABOUT_IMPORT} `homing --version` prints the version."
        )
        _run("homing", app, about, args)


def _run_app(name: str, commands: tyro.extras.SubcommandApp, about: str, args: Sequence[str]) -> None:
    """A group of commands, such as `homing bench`; alone, it lists them."""
    _check_command(f"command of homing {name}", commands, args)
    _run(f"homing {name}", commands, about, args or ["--help"])


def _run(name: str, commands: tyro.extras.SubcommandApp, about: str, args: Sequence[str]) -> None:
    for command in commands._subcommands.values():
        hide_absent(command.target)
    with numbers:
        commands.cli(prog=name, description=about, args=args, config=HELP)


def _check_command(kind: str, commands: Any, args: Sequence[str]) -> None:
    """Answer a command that does not exist with those most like it."""
    known = list(commands._subcommands)
    if args and not args[0].startswith("-") and args[0] not in known:
        raise unknown(kind, args[0], known)


@app.command(name="bench")
def _bench() -> None:
    """Measure speed on this machine: `homing bench train`, `learner`, `physics`, `scaling`."""


@app.command(name="data")
def _data() -> None:
    """Write datasets of a policy's episodes and read those of others: `homing data export`, `import`, `info`."""


@app.command(name="study")
def _study() -> None:
    """Run studies (grids of runs) and draw figures: `homing study list`, `plan`, `run`, `work`, `status` and more."""


@app.command(name="train")
def _train() -> None:
    """Train an agent, many seeds in one program."""


app.command(name="resume")(cli_train.resume)
app.command(name="eval")(cli_evaluate.evaluate)
app.command(name="report")(cli_report.report)
app.command(name="watch")(cli_report.watch)
app.command(name="render")(cli_show.render)
app.command(name="play")(cli_show.play)
app.command(name="share")(cli_share.share)
app.command(name="export")(cli_policies.export)
app.command(name="policies")(cli_policies.policies)
app.command(name="recipes")(cli_recipes.recipes)
app.command(name="completion")(cli_completion.completion)


if __name__ == "__main__":
    command()
