"""Code from outside: `--import`, entry points, and runs that remember what they need."""

import importlib
import importlib.metadata
import json
import sys
import warnings

import pytest
from run_helpers import SAVE, TRAIN, no_key_check  # noqa: F401

import homing
from homing import plugins
from homing.agents import AGENTS, OffPolicyAgent, agent_names, agent_types
from homing.cli.main import main
from homing.compile import export_cache
from homing.config.presets import PRESETS, register_agent
from homing.config.run import from_json, run_config, to_json
from homing.envs.registry import ENVIRONMENTS
from homing.errors import ConfigError, HomingError
from homing.losses.contrastive import OBJECTIVES

MODULE = '''
import dataclasses

import homing
from homing.agents import CRL, CRLConfig
from homing.config.presets import register_agent
from homing.envs.bodies import Point
from homing.envs.goals import Ring
from homing.envs.tasks import Reach
from homing.losses.contrastive import infonce, register_objective


@dataclasses.dataclass(frozen=True)
class OwnConfig(CRLConfig):
    patience: int = 3
    """How long to wait."""


class Own(CRL):
    pass


homing.register("own_ring", Point(), Reach(("x", "y"), Ring(2.0)))
register_agent("own_agent", OwnConfig, Own)
register_objective("own_objective", infonce)
'''


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """Tables, the path and what was noted are as before a test when it ends."""
    tables = (ENVIRONMENTS, AGENTS, PRESETS, OBJECTIVES, plugins._owners, plugins._asked)
    before = [dict(table) for table in tables]
    plugins._owners.clear()
    plugins._asked.clear()
    modules = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(export_cache, "_foreign", False)
    yield
    for table, old in zip(tables, before, strict=True):
        table.clear()
        table.update(old)
    for name in set(sys.modules) - modules:
        if name.startswith("my_"):
            del sys.modules[name]


@pytest.fixture
def my_module(tmp_path, monkeypatch):
    """A module in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_module.py").write_text(MODULE)
    return tmp_path


def run(capsys, *args):
    code = 0
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_module_adds_an_environment_an_agent_and_an_objective(my_module, capsys):
    code, out, _ = run(capsys, "envs", "own", "--import", "my_module")
    assert code == 0 and "own_ring" in out
    code, out, _ = run(capsys, "train", "own_agent", "own_ring", "--help")
    assert code == 0 and "--patience" in out and "How long to wait." in out
    line = "--import my_module train own_agent own_ring --patience 4 --objective own_objective --dry-run"
    code, out, err = run(capsys, *line.split())
    assert code == 0, err
    assert "iterations" in out


def test_without_the_module_its_names_are_unknown(capsys):
    code, _, err = run(capsys, "train", "own_agent", "own_ring", "--dry-run")
    assert code == 2 and "unknown agent 'own_agent'" in err


def test_a_module_turns_the_cache_of_traces_off(my_module, monkeypatch):
    monkeypatch.setattr(export_cache, "_on", True)
    assert export_cache.store({"a": 1}) is not None
    plugins.import_modules(["my_module"])
    assert export_cache.store({"a": 1}) is None


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_package_anywhere", "fails on import: ModuleNotFoundError"),
        ("1 / 0", "fails on import: ZeroDivisionError: division by zero"),
        ("def (", "fails on import: SyntaxError"),
        ("import homing; homing.register('ant', None, None)", "already exists"),
    ],
)
def test_a_broken_module_is_one_message(tmp_path, monkeypatch, capsys, source, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_broken.py").write_text(source)
    code, _, err = run(capsys, "envs", "--import", "my_broken")
    assert code == 2
    assert words in err and "my_broken" in err and "Traceback" not in err


def test_a_run_remembers_the_modules_it_needs(my_module, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr("homing.cli.train._train", lambda asked, config: seen.append(config))
    code, _, err = run(capsys, "train", "crl", "own_ring", "--import", "my_module")
    assert code == 0, err
    assert seen[0].imports == ("my_module",)
    assert json.loads(json.dumps(to_json(seen[0])))["imports"] == ["my_module"]


def test_registered_names_bring_their_module_along(my_module, monkeypatch):
    monkeypatch.syspath_prepend(my_module)
    importlib.import_module("my_module")
    assert run_config("own_agent", "ant").imports == ("my_module",)
    assert run_config("crl", "ant", eval_env="own_ring").imports == ("my_module",)
    assert run_config("crl", "ant").imports == ()


def test_what_a_script_registers_cannot_be_imported_again(monkeypatch):
    namespace = {"__name__": "__main__"}
    exec(MODULE, namespace)
    assert run_config("own_agent", "own_ring").imports == ()


def test_reading_a_run_imports_its_modules_first(my_module):
    plugins.import_modules(["my_module"])
    content = json.loads(json.dumps(to_json(run_config("own_agent", "own_ring"))))
    _forget("own_agent", "own_ring")
    assert from_json(content).agent == "own_agent"
    assert homing.make("own_ring").spec.id == "own_ring"


def _forget(agent, env):
    """As in a new process."""
    del sys.modules["my_module"], AGENTS[agent], PRESETS[agent], ENVIRONMENTS[env]
    plugins._asked.clear()


@pytest.mark.parametrize(
    "command", ["eval RUN", "resume RUN", "render RUN --out x.png", "export RUN --out x.safetensors"]
)
def test_a_missing_module_is_one_message(my_module, tmp_path, monkeypatch, capsys, command):
    plugins.import_modules(["my_module"])
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    (run_folder / "config.json").write_text(json.dumps(to_json(run_config("own_agent", "own_ring"))))
    _forget("own_agent", "own_ring")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    code, _, err = run(capsys, *command.replace("RUN", str(run_folder)).split())
    assert code == 2
    assert (
        err
        == "homing: this run needs the module my_module: run from its folder, or install it, or pass --import\n"
    )


def test_another_module_may_stand_in_for_a_missing_one(my_module):
    plugins.import_modules(["my_module"])
    content = to_json(run_config("own_agent", "own_ring")) | {"imports": ["my_old_module"]}
    assert from_json(content).agent == "own_agent"
    plugins._asked.clear()
    with pytest.raises(HomingError, match="my_old_module"):
        from_json(content)


class Point:
    """An entry point of an installed package."""

    def __init__(self, name, load):
        self.name, self.load, self.value = name, load, f"{name}:register"
        self.dist = type("Package", (), {"name": f"package-of-{name}"})()


@pytest.fixture
def entry_points(monkeypatch):
    """Sets what installed packages announce."""
    found: dict[str, list[Point]] = {}
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: found.get(group, []))
    monkeypatch.setattr(plugins, "_loaded", set())
    return found


def test_entry_points_are_loaded_when_a_name_is_looked_up(entry_points):
    calls = []

    def register():
        calls.append(1)
        exec(MODULE, {"__name__": "my_package"})

    entry_points[plugins.AGENTS] = [Point("good", lambda: register)]
    assert not calls
    assert "own_agent" in agent_names()
    assert agent_types("own_agent")[0].__name__ == "OwnConfig"
    assert homing.make("own_ring").spec.id == "own_ring"
    assert calls == [1]
    assert export_cache._foreign


def test_a_broken_plugin_is_a_warning_that_names_its_package(entry_points):
    def fails():
        raise ImportError("no such library")

    entry_points[plugins.ENVS] = [Point("bad", fails)]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert "ant" in homing.env_ids()
        homing.make("reacher")
    (warning,) = [w for w in seen if "plugin" in str(w.message)]
    assert "package-of-bad" in str(warning.message) and "no such library" in str(warning.message)


class NoAgent:
    pass


def test_what_is_no_agent_cannot_be_registered():
    config = AGENTS["crl"][0]
    for name, kind, agent, train, words in [
        ("my agent", config, AGENTS["crl"][1], None, "letters"),
        ("crl", config, NoAgent, None, "already"),
        ("own", 3, AGENTS["crl"][1], None, "dataclass"),
        ("own", config, NoAgent, None, "OffPolicyAgent"),
        ("own", config, AGENTS["crl"][1], PRESETS["ppo"]["paper"].train, "TrainConfig"),
    ]:
        with pytest.raises(ConfigError, match=words):
            register_agent(name, kind, agent, train)
    assert issubclass(AGENTS["crl"][1], OffPolicyAgent)


def test_two_agents_do_not_share_a_config_class():
    """An agent is made from its config: the second would silently train the first."""
    config, agent = AGENTS["crl"]
    with pytest.raises(ConfigError, match="CRLConfig is the config of 'crl' already"):
        register_agent("other", config, type("Other", (agent,), {}))
    assert "other" not in AGENTS and "other" not in PRESETS


@pytest.mark.slow
def test_a_run_of_a_module_is_trained_evaluated_and_resumed(my_module, capsys):
    out = my_module / "run"
    small = (
        "--num-envs 8 --unroll-length 10 --batch-size 32 --replay-size 50 --prefill-steps 20 --evaluations 2"
    )
    small += " --eval-envs 8 --critic-net.width 8 --actor-net.width 8 --tensorboard off --episode-length 20"
    line = f"train --import my_module own_agent own_ring --steps 800 {small} --out {out}"
    code, said, err = run(capsys, *line.split())
    assert code == 0, err
    assert f"homing play {out}" in said and f"homing report {out}" in said
    _forget("own_agent", "own_ring")
    code, said, err = run(capsys, "eval", out, "--episodes", "4", "--json")
    assert code == 0, err
    assert json.loads(said)["env"] == "own_ring"
    assert TRAIN.num_envs == 8 and SAVE.tensorboard == "off"
