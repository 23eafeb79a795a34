"""Imports point one way: every part of the package names the parts it may import, and none form a cycle."""

import ast
import functools
import graphlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "homing"
FILES = sorted(ROOT.rglob("*.py"))
SIMULATORS = {"brax", "mujoco"}
CORE = {"types", "errors", "version"}
BASE = CORE | {"bounds", "values"}  # the ranges of settings, checked wherever there are some
# What each part may import of the package, low to high; a part may always import itself.
ALLOWED = {
    "types": set(),
    "errors": set(),
    "version": set(),
    "values": CORE,
    "bounds": CORE | {"values"},
    "compile": BASE,
    "plugins": BASE | {"compile"},
    "physics": BASE | {"compile"},
    "envs": BASE | {"physics", "plugins"},
    "data": BASE | {"envs"},
    "networks": BASE | {"compile"},
    "losses": BASE,
    "agents": BASE | {"losses", "networks", "plugins"},
    "config": BASE | {"agents", "data", "envs", "networks", "plugins"},
    "system": BASE | {"compile", "physics"},
    "runs": BASE | {"config", "networks", "system"},
    "datasets": BASE | {"config", "data", "envs", "runs"},
    "training": BASE
    | {"agents", "compile", "config", "data", "datasets", "envs", "networks", "runs"}
    | {"system"},
    "policies": BASE
    | {"agents", "compile", "config", "datasets", "envs", "networks", "plugins", "runs", "training"},
    "viz": BASE | {"agents", "config", "data", "envs", "physics", "policies", "runs"},
    "play": BASE
    | {"agents", "compile", "config", "data", "envs", "physics", "policies", "runs", "training", "viz"},
    "adapters": BASE | {"compile", "datasets", "envs", "physics", "viz"},
    "share": BASE | {"compile", "data", "envs", "physics", "policies", "runs", "training", "viz"},
    "report": BASE | {"runs"},
    "bench": BASE
    | {"agents", "compile", "config", "data", "envs", "networks", "report", "system", "training"},
    "api": BASE | {"compile", "config", "plugins", "policies", "runs", "system", "training"},
    "__init__": BASE | {"api", "envs", "policies"},
    "quickstart": BASE | {"api", "envs", "runs", "viz"},
    "studies": BASE
    | {"agents", "api", "compile", "config", "envs", "networks", "plugins", "report", "runs", "system"}
    | {"training"},
    "cli": BASE
    | {"agents", "api", "bench", "compile", "config", "datasets", "envs", "play", "plugins", "policies"}
    | {"quickstart", "report", "runs", "share", "studies", "system", "training", "viz"},
    "__main__": {"cli"},
}


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Names of all modules that a file imports, also inside functions and for type checkers only."""
    return tuple(_imports(path))


def _imports(path: Path):
    package = ("homing", *path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def part_of(path: Path) -> str:
    """The folder or module directly under the package."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


PARTS = {part_of(path) for path in FILES}


def parts_used(path: Path) -> set[str]:
    """Other parts of the package that a file imports; what is no part is a name of the package itself."""
    names = {name.split(".")[1] if "." in name else "" for name in imports(path) if is_ours(name)}
    return {name if name in PARTS else "__init__" for name in names} - {part_of(path)}


def is_ours(name: str) -> bool:
    return name.split(".")[0] == "homing"


def cycle_in(graph: dict[str, set[str]]) -> list[str] | None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def test_every_part_says_what_it_may_import():
    assert not PARTS - set(ALLOWED), "add the part to ALLOWED"
    assert not set(ALLOWED) - PARTS, "ALLOWED has an entry for a part that is gone"
    assert set(ALLOWED) >= set().union(*ALLOWED.values()), "an entry names a part that has none"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_what_its_part_may(path):
    part = part_of(path)
    unknown = parts_used(path) - ALLOWED.get(part, set())
    assert not unknown, f"{part} must not import {', '.join(sorted(unknown))}"


def test_no_parts_import_each_other_in_a_cycle():
    graph = {part: set() for part in PARTS}
    for path in FILES:
        graph[part_of(path)] |= parts_used(path)
    assert graph["training"] >= {"agents", "data"}, "imports are found at all"
    for name, each in {"imports": graph, "ALLOWED": ALLOWED}.items():
        cycle = cycle_in(each)
        assert cycle is None, f"{name} form a cycle: {' <- '.join(cycle or [])}"


def test_a_cycle_is_found():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}}) is not None
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}}) is None


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_physics_imports_a_simulator(path):
    if part_of(path) != "physics":
        assert not {name.split(".")[0] for name in imports(path)} & SIMULATORS


def test_statistics_are_arithmetic_alone():
    assert not [name for name in imports(ROOT / "runs" / "stats.py") if is_ours(name)]


def test_no_file_imports_scipy():
    """Its statistics alone take longer to import than JAX does, at the start of every command."""
    users = [path for path in FILES if "scipy" in {name.split(".")[0] for name in imports(path)}]
    assert not users


def test_only_one_module_knows_the_seed_axis():
    """Everything else is written for one seed."""
    users = [p for p in FILES if "over_seeds(" in p.read_text() or ".seed_axes()" in p.read_text()]
    assert users == [ROOT / "training" / "seeds.py"]


def test_only_commands_know_studies():
    """A run does not know whether it belongs to a study."""
    users = {part_of(p) for p in FILES if any(name.startswith("homing.studies") for name in imports(p))}
    assert users <= {"studies", "cli"}
