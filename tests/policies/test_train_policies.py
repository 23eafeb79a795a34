"""tools/train_policies.py: its table, and that every stage is done once."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from homing import api
from homing.cli import main
from homing.policies import shipped_names

PATH = Path(__file__).parents[2] / "tools" / "train_policies.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("train_policies", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def job(tool, tmp_path):
    return tool.Job(tool.recipes()["point_u_maze"], tmp_path / "runs", tmp_path, cpu=True, quick=False)


@pytest.fixture
def commands(tool, monkeypatch):
    """What would be executed."""
    done = []
    monkeypatch.setattr(tool, "homing", lambda *arguments, read=False: done.append(arguments) or "")
    return done


def test_every_shipped_policy_has_a_recipe(tool):
    assert set(shipped_names()) <= set(tool.recipes())
    assert all(recipe.device in ("cpu", "gpu") for recipe in tool.recipes().values())


def test_the_settings_of_every_recipe_are_those_of_a_run(tool, monkeypatch):
    seen = []
    monkeypatch.setattr(api, "prepared", lambda config, *_, **__: seen.append(config))
    for recipe in tool.recipes().values():
        main.main(["train", recipe.agent, recipe.env, *recipe.flags, "--dry-run", "--cpu"])
        assert seen[-1].env == recipe.env
        assert seen[-1].env_options["goals.renew"] == "reached"


def test_a_run_is_started_then_resumed_then_left_alone(tool, job, commands):
    tool.train(job)
    assert commands[0][:3] == ("train", "crl", "point_u_maze_anywhere")
    assert commands[0][-3:] == ("--out", str(job.run), "--cpu")
    job.run.mkdir(parents=True)
    (job.run / "config.json").write_text("{}")
    tool.train(job)
    assert commands[1] == ("resume", str(job.run), "--cpu")
    (job.run / "summary.json").write_text('{"status": "finished"}')
    tool.train(job)
    assert len(commands) == 2


def test_the_seed_and_checkpoint_with_most_goals_of_a_chain_are_exported(tool, job, monkeypatch):
    rows = {"last": [(0, 0.9), (1, 0.7)], "best": [(0, 0.8), (1, 0.97)]}
    exported = []

    def homing(*arguments, read=False):
        if arguments[0] == "eval":
            which = arguments[arguments.index("--which") + 1]
            return json.dumps({"seeds": [{"seed": s, "reached": v} for s, v in rows[which]]})
        exported.append(arguments)
        job.file.write_bytes(b"x" * size)
        return ""

    monkeypatch.setattr(tool, "homing", homing)
    size = 10
    tool.export(job)
    assert exported[0][5:9] == ("--seed", "1", "--which", "best")
    assert "--chain" in exported[0]
    size = tool.LARGEST + 1
    with pytest.raises(SystemExit, match="smaller networks"):
        tool.export(job)
    assert not job.file.exists()


def test_a_file_that_is_there_stays(tool, job, commands, monkeypatch):
    monkeypatch.setattr(tool, "train", lambda job: None)
    job.file.write_bytes(b"x")
    tool.make(job, again=False)
    assert commands == []


def test_a_quick_try_never_replaces_what_is_shipped(tool, capsys):
    with pytest.raises(SystemExit):
        tool.parsed(["--quick", "reacher"])
    assert "give another --out" in capsys.readouterr().err
