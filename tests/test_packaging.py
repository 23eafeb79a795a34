"""What is shipped and what continuous integration runs."""

import tomllib
from importlib.resources import files
from pathlib import Path

import yaml

import homing

ROOT = Path(__file__).parent.parent


def test_type_checkers_read_the_annotations():
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert (files("homing") / "py.typed").is_file() and "py.typed" in shipped["homing"]


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == homing.__version__
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_every_change_is_checked_and_tested():
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    assert lines.index("make check") < lines.index("make test") < lines.index("make test-ecosystem")


def pins_of(name: str) -> dict[str, set[str]]:
    """Lines of a constraints file by package."""
    pins: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith("#"):
            pins.setdefault(line.partition("==")[0], set()).add(line)
    return pins


def test_both_virtual_environments_have_the_same_versions():
    main, ecosystem = pins_of("constraints.txt"), pins_of("constraints-ecosystem.txt")
    assert {name for name in main if ecosystem.get(name) != main[name]} == {"pillow"}, (
        "moviepy asks for pillow<12"
    )


def test_every_adapter_has_an_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for path in (ROOT / "src" / "homing" / "adapters").glob("*.py"):
        if "raise missing(" in path.read_text():
            assert path.stem in extras


def test_pre_commit_runs_what_make_check_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck: ")[2].split("\n\n")[0]
    for hook in hooks:
        tool = hook["entry"].removeprefix(".venv/bin/")
        assert f"$(BIN)/{tool}" in recipe
    assert len(hooks) == recipe.count("$(BIN)/")
