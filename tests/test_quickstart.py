"""The first thing a newcomer runs does what it promises."""

import json
import os
import re
import shlex
import subprocess
import sys
import types
from pathlib import Path

import pytest
from cli_helpers import command

from homing import quickstart
from homing.config.run import parse_seeds, run_config
from homing.runs.folder import RunFolder
from homing.runs.record import plain_settings

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_quickstart_reaches_its_goals_and_leaves_a_film(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-m", "homing", "quickstart"],
        cwd=tmp_path,
        env=env | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=800,
        check=True,
    )
    shares = [int(share) for share in re.findall(r"(\d+)% at the end", done.stdout)]
    assert len(shares) == 2
    assert min(shares) >= 80
    for name in ("reacher.gif", "reacher.png", "run/metrics.jsonl"):
        assert (tmp_path / "quickstart" / name).stat().st_size > 0


OWN = {"agent": "crl", "env": "reacher", "preset": "quickstart", "seeds": [0, 1], "episode_length": 200}


def earlier(folder, config=OWN):
    """A folder with a run by these settings and a file of the user's."""
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "config.json").write_text(json.dumps(config))
    (folder / "notes.txt").write_text("mine")
    return folder


def test_quickstart_replaces_its_own_results_and_nothing_else(tmp_path):
    own = earlier(tmp_path / "quickstart")
    quickstart.clear(own)
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


def test_the_run_that_quickstart_starts_is_its_own(tmp_path, monkeypatch):
    calls = []
    stopped = types.SimpleNamespace(status="stopped")
    monkeypatch.setattr(
        quickstart.api, "train", lambda *args, **given: calls.append((args, given)) or stopped
    )
    quickstart.quickstart(tmp_path / "quickstart", cpu=True)
    ((agent, env), given) = calls[0]
    config = run_config(
        agent,
        env,
        preset_name=given["preset"],
        seeds=parse_seeds(given["seeds"]),
        episode_length=given["episode_length"],
    )
    own = earlier(tmp_path / "again", plain_settings(config))
    quickstart.clear(own)
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    "config",
    [
        OWN | {"agent": "sac"},
        OWN | {"env": "ant"},
        OWN | {"preset": "paper"},
        OWN | {"seeds": [0, 1, 2]},
        OWN | {"episode_length": 1000},
        {},
        [],
    ],
)
def test_quickstart_keeps_a_run_that_is_not_its_own(config, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quickstart.api, "train", lambda *_, **__: pytest.fail("it must not train"))
    run = earlier(tmp_path / "work", config) / "run"
    code, _, err = command(capsys, "quickstart", "--out", tmp_path / "work")
    assert code == 2 and "is not a run of quickstart" in err and "--out" in err
    assert [path.name for path in run.iterdir()] == ["config.json"]


def test_quickstart_keeps_a_run_in_progress(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quickstart.api, "train", lambda *_, **__: pytest.fail("it must not train"))
    run = earlier(tmp_path / "work") / "run"
    with RunFolder(run).held():
        code, _, err = command(capsys, "quickstart", "--out", tmp_path / "work")
    assert code == 2 and "is in use by process" in err
    assert (run / "config.json").is_file()


def test_quickstart_refuses_a_folder_that_is_not_its_own(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(quickstart.api, "train", lambda *_, **__: pytest.fail("it must not train"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.tex").write_text("x")
    code, _, err = command(capsys, "quickstart", "--out", tmp_path / "work")
    assert code == 2 and "--out" in err and (tmp_path / "work" / "thesis.tex").is_file()
    code, _, err = command(capsys, "quickstart", "--out", tmp_path / "work" / "thesis.tex")
    assert code == 2 and "is a file" in err


def test_example_command_and_make_run_the_same_code():
    makefile = (ROOT / "Makefile").read_text()
    assert "homing quickstart" in makefile.partition("\nquickstart:")[2].split("\n\n")[0]
    assert "from homing.quickstart import" in (ROOT / "examples" / "quickstart.py").read_text()


def test_the_commands_it_suggests_exist(capsys):
    lines = quickstart.next_commands(Path("quickstart")).splitlines()
    for name in {line.split()[1] for line in lines}:
        code, out, _ = command(capsys, name, "--help")
        assert code == 0 and f"homing {name}" in out


def test_the_commands_it_suggests_can_be_pasted():
    lines = quickstart.next_commands(Path("my quickstart")).splitlines()
    assert shlex.split(lines[1].partition("(")[0]) == ["homing", "play", "my quickstart/run"]
    assert len({line.index("(") for line in lines if "(" in line}) == 1, "notes stand in one column"
