"""Imports point one way, and only the physics folder knows a simulator."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "homing"
FILES = sorted(ROOT.rglob("*.py"))
SIMULATORS = {"brax", "mujoco"}
# What each part may import of the package; a part may always import itself.
BASE = {"types", "errors", "version"}
ALLOWED = {
    "types": set(),
    "errors": set(),
    "version": set(),
    "physics": {"compiler", "errors"},
    "envs": BASE | {"physics"},
    "rollout": BASE | {"envs"},
    "nets": BASE,
    "objectives": BASE,
    "replay": BASE,
    "relabel": BASE | {"replay"},
    "schedule": {"errors"},
    "config": {"errors", "replay", "schedule"},
    "config_onpolicy": {"errors", "schedule"},
    "agents": BASE | {"nets", "objectives"},
    "places": BASE | {"envs"},
    "play": BASE | {"envs", "films", "maps", "physics", "places", "policies", "render", "settings"},
    "policies": BASE | {"agents", "checkpoints", "presets", "report", "runs", "settings", "training"},
    "policy": BASE | {"policies", "settings"},
    "report": BASE | {"runs"},
    "quantities": set(),
    "costs": set(),
    "compiled_text": set(),
    "profiles": set(),
    "compiler": set(),
    "ceilings": {"types"},
    "bench_figures": {"errors", "report"},
    "bench_learner": BASE
    | {
        "agents",
        "ceilings",
        "compiled_text",
        "compiler",
        "config",
        "config_onpolicy",
        "costs",
        "doctor",
        "hardware",
    }
    | {"nets", "profiles", "schedule", "settings", "training"},
    "bench_parts": BASE
    | {"bench_learner", "ceilings", "compiler", "config_onpolicy", "replay", "settings", "training"},
    "bench_scaling": BASE
    | {"bench", "bench_learner", "bench_train", "compilation", "doctor", "envs", "presets"}
    | {"schedule", "settings"},
    "bench_table": BASE | {"bench_learner", "bench_train", "compilation", "compiler", "envs", "settings"},
    "studies": BASE
    | {"agents", "api", "checkpoints", "compilation", "config", "doctor", "hardware", "nets", "presets"}
    | {"progress", "quantities", "report", "runs", "settings", "training"},
}


def imports(path: Path):
    """Names of all modules that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_physics_imports_a_simulator(path):
    if part_of(path) != "physics":
        assert not {name.split(".")[0] for name in imports(path)} & SIMULATORS


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    part = part_of(path)
    if part not in ALLOWED:
        return
    used = {name.split(".")[1] for name in imports(path) if name.startswith("homing.")} - {part}
    assert used <= ALLOWED[part]


def test_statistics_are_arithmetic_alone():
    assert not [name for name in imports(ROOT / "report" / "stats.py") if name.startswith("homing")]


def test_only_one_module_knows_the_seed_axis():
    """Everything else is written for one seed."""
    users = [p for p in FILES if "over_seeds(" in p.read_text() or ".seed_axes()" in p.read_text()]
    assert {p.name for p in users} <= {"seeds.py"}


def test_only_commands_know_studies():
    """A run does not know whether it belongs to a study."""
    users = {part_of(p) for p in FILES if any(name.startswith("homing.studies") for name in imports(p))}
    assert users <= {"studies", "cli_study"}
