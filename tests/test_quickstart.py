"""The first thing a newcomer runs does what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_helpers import command

from homing import quickstart

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


def test_quickstart_replaces_its_own_results_and_nothing_else(tmp_path):
    own = tmp_path / "quickstart"
    (own / "run").mkdir(parents=True)
    (own / "run" / "config.json").write_text("{}")
    (own / "notes.txt").write_text("mine")
    quickstart.clear(own)
    assert [path.name for path in own.iterdir()] == ["notes.txt"]


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
