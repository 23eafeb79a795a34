"""brax is optional: nothing but its own two pipelines needs it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKED = """
import importlib.abc, importlib.util, pkgutil, sys

class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("brax", "jaxopt", "flask"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.split(".")[0])

sys.meta_path.insert(0, Blocked())
try:
    import brax
except ModuleNotFoundError:
    print("brax is blocked")
"""
IMPORTS = """
import homing
adapters = [f"homing.adapters.{name}" for name in ("gymnasium", "gymnax", "sb3", "stoa")]
for module in pkgutil.walk_packages(homing.__path__, "homing."):
    if module.name not in ("homing.physics.brax_pipelines", "homing.__main__", *adapters):
        importlib.import_module(module.name)
"""
ENVIRONMENTS = """
import jax, homing
from homing.errors import ConfigError
for name in ("ant", "pusher_hard", "reacher", "half_cheetah", "humanoid"):
    env = homing.make(name, num_envs=2)
    state = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, state, jax.ShapeDtypeStruct((2, env.spec.action_dim), "float32"))
    assert after.obs.state.shape == state.obs.state.shape
for name in ("spring_brax", "generalized_brax"):
    try:
        homing.make("reacher", physics=name)
    except ConfigError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Lines that a process without brax prints which imports all modules and traces environments."""
    code = BLOCKED + IMPORTS + ENVIRONMENTS
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


def test_modules_and_environments_need_no_brax(said):
    assert said[0] == "brax is blocked"


def test_its_pipelines_name_the_extra(said):
    for pipeline, line in zip(("spring", "generalized"), said[1:], strict=True):
        assert line == (
            f"the pipeline {pipeline}_brax is brax's own, and the package brax is not installed; "
            f"pip install 'homing[brax]', or use {pipeline}"
        )


def test_the_package_does_not_ask_for_brax():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not [need for need in project["dependencies"] if need.startswith(("brax", "flask", "jaxopt"))]
    extras = project["optional-dependencies"]
    assert any(need.startswith("brax") for need in extras["brax"])
    assert set(extras["brax"]) <= set(extras["dev"]), "tests compare with it"
