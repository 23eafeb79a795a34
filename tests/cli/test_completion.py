"""Completion in a shell: bash itself says what it would offer."""

import inspect
import shlex
import shutil
import subprocess

import pytest
from cli_helpers import command

from homing.cli.completion import commands, script
from homing.cli.main import app
from homing.cli.train import all_flags
from homing.envs import env_ids


@pytest.fixture(scope="module")
def bash():
    return script("bash")


def offered(bash: str, line: str) -> set[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    given = f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}"
    ask = f'{given}; _homing; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{bash}\n{ask}"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("homing quick", {"quickstart"}),
        ("homing re", {"render", "report", "resume", "recipes"}),
        ("homing --v", {"--version"}),
        ("homing study r", {"run", "retry", "report"}),
        ("homing study run paper/obj", {"paper/objectives"}),
        ("homing study run x --exe", {"--executor"}),
        ("homing study run x --executor w", {"workers"}),
        ("homing study run x --no-w", {"--no-wait"}),
        ("homing train be", {"best"}),
        ("homing train crl ant_u4_maze_e", {"ant_u4_maze_eval"}),
        ("homing train crl ant --critic-net.wi", {"--critic-net.width"}),
        ("homing train crl ant --preset pap", {"paper"}),
        ("homing play reach", {"reacher"}),
        ("homing render ant --which ", {"last", "best"}),
        ("homing policies --js", {"--json"}),
        ("homing bench tr", {"train"}),
        ("homing data ", {"export", "import", "info"}),
        ("homing data export point_u", {"point_u_maze"}),
        ("homing data export reacher --random", {"--random-actions"}),
        ("homing data export reacher --format m", {"minari"}),
        ("homing data info --js", {"--json"}),
        ("homing completion z", {"zsh"}),
        ("homing report no-such", set()),
    ],
)
def test_bash_offers(bash, line, words):
    assert offered(bash, line) == words


def test_every_command_and_flag_is_known():
    known = commands()
    assert set(known[""].names) == set(app._subcommands) <= set(known)
    assert {f"--{name}" for name in all_flags()} - {"--agent", "--env"} <= set(known["train"].flags)
    assert set(env_ids()) <= set(known["train"].names)


def test_every_group_of_commands_is_known():
    """A command without parameters is a name for those below it; `train` reads its own flags."""
    known = commands()
    empty = [n for n, spec in app._subcommands.items() if not inspect.signature(spec.target).parameters]
    assert {name.split()[0] for name in known if " " in name} == set(empty) - {"train"}


@pytest.mark.parametrize(
    "name", ["render", "eval", "study run", "study work", "bench physics", "data export", "quickstart"]
)
def test_the_flags_are_those_of_the_help(name, capsys):
    code, out, _ = command(capsys, *name.split(), "--help")
    assert code == 0
    assert not [flag for flag in commands()[name].flags if flag not in out]


def test_the_command_prints_the_script(capsys, bash):
    code, out, _ = command(capsys, "completion", "bash")
    assert code == 0 and out == bash
    code, out, _ = command(capsys, "completion", "zsh")
    assert code == 0 and out.endswith(bash) and "bashcompinit" in out
    code, *_ = command(capsys, "completion", "powershell")
    assert code == 2


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_reads_the_script():
    done = subprocess.run(["zsh", "-f", "-c", script("zsh")], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
