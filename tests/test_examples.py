"""Examples run, and the generated parts of the docs are up to date."""

import runpy
import sys
from pathlib import Path

import pytest

from homing.envs.registry import ENVIRONMENTS

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["own_maze", "own_robot"])
def test_examples_of_own_environments_run(name, capsys):
    known = dict(ENVIRONMENTS)
    try:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    finally:
        ENVIRONMENTS.clear()
        ENVIRONMENTS.update(known)
    said = capsys.readouterr().out
    assert ("distance" in said) or ("share of carts at their place: 1.0" in said)


def test_examples_are_short():
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 75, path


def test_the_table_of_environments_is_up_to_date():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import make_docs
    finally:
        sys.path.pop(0)
    assert make_docs.table() in (ROOT / "docs" / "environments.md").read_text(), "run `make docs`"
