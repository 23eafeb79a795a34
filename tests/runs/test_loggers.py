"""TensorBoard and W&B get what the metrics file gets; missing packages are named before a run."""

import shutil
import sys
import types

import pytest
from run_helpers import SAVE, probe_config, probe_envs  # noqa: F401

from homing.config.run import SaveConfig
from homing.errors import ConfigError, HomingError
from homing.runs import loggers

pytestmark = pytest.mark.usefixtures("probe_envs")

ROWS = [
    {"seed": 3, "iteration": 7, "step": 560, "updates": 2, "finite": True, "eval/success_any": 0.25},
    {"seed": 4, "iteration": 7, "step": 560, "updates": 2, "finite": False},
]
SUMMARY = {"eval/success_any": {"iqm": 0.25, "low": 0.25, "high": 0.25, "seeds": 1}}
VALUES = {"eval/success_any": 0.25, "eval/success_any/seed_3": 0.25}


def with_save(**changes):
    return probe_config(save=SaveConfig(**changes))


def test_each_seed_has_its_own_curve_beside_the_common_one():
    assert loggers.values(ROWS, SUMMARY) == VALUES


def test_tensorboard_events_are_written(tmp_path):
    pytest.importorskip("tensorboardX")
    (made,) = loggers.trackers(tmp_path, with_save(), 0)
    made.write(560, ROWS, SUMMARY)
    made.close()
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert b"eval/success_any/seed_3" in file.read_bytes()


@pytest.fixture
def wandb(monkeypatch):
    """What a stand-in for the package `wandb` was called with."""
    calls = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append(("log", values, step)), finish=lambda: calls.append("finish")
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **settings: calls.append(settings) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return calls


def started(folder):
    """W&B's tracker of a run's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (made,) = loggers.trackers(folder, with_save(tensorboard="off", wandb="offline"), 0)
    return made


def test_wandb_gets_config_and_values(tmp_path, wandb):
    loggers.check_installed(SaveConfig(wandb="offline"))
    made = started(tmp_path / "my-run")
    made.write(560, ROWS, SUMMARY)
    made.close()
    settings = wandb[0]
    assert (settings["mode"], settings["name"], settings["resume"]) == ("offline", "my-run", "allow")
    assert settings["config"]["train"]["num_envs"] == 8
    assert wandb[1:] == [("log", VALUES, 560), "finish"]


def test_runs_of_one_name_are_two_at_wandb_and_a_resumed_one_goes_on(tmp_path, wandb):
    for name in ("a", "b", "a"):
        started(tmp_path / name / "run")
    first, other, resumed = (settings["id"] for settings in wandb)
    assert first == resumed != other


def test_a_run_that_was_logged_under_another_id_keeps_it(tmp_path, wandb):
    for name in ("run-20260101_120000-old", "offline-run-20260102_120000-my-run", "latest-run", "debug.log"):
        (tmp_path / "my-run" / "wandb" / name).mkdir(parents=True)
    started(tmp_path / "my-run")
    shutil.rmtree(tmp_path / "my-run" / "wandb")
    started(tmp_path / "my-run")
    assert [settings["id"] for settings in wandb] == ["my-run", "my-run"]


@pytest.mark.parametrize("content", ["[]", "{}", '{"id": 3}', '{"id": ""}', "half"])
def test_a_damaged_id_is_one_message(content, tmp_path, wandb):
    (tmp_path / "wandb.json").write_text(content)
    with pytest.raises(HomingError, match=r"wandb\.json.*put it back"):
        started(tmp_path)
    assert not wandb


@pytest.mark.parametrize(
    ("changes", "extra"), [({"wandb": "online"}, "wandb"), ({"tensorboard": "on"}, "tensorboard")]
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, changes, extra):
    monkeypatch.setattr(loggers, "_installed", lambda module: False)
    with pytest.raises(ConfigError, match=rf"pip install \"homing\[{extra}\]\""):
        loggers.check_installed(SaveConfig(**changes))


def test_by_default_a_missing_package_is_no_matter(monkeypatch, tmp_path):
    monkeypatch.setattr(loggers, "_installed", lambda module: False)
    loggers.check_installed(SaveConfig())
    assert loggers.trackers(tmp_path, with_save(), 0) == []
    assert loggers.trackers(tmp_path, probe_config(save=SAVE), 0) == []
