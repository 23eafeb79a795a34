"""TensorBoard and W&B get what the metrics file gets; missing packages are named before a run."""

import sys
import types

import pytest
from run_helpers import SAVE, probe_config, probe_envs  # noqa: F401

from homing.config.run import SaveConfig
from homing.errors import ConfigError
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


def test_wandb_gets_config_and_values(tmp_path, monkeypatch):
    calls = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append(("log", values, step)), finish=lambda: calls.append("finish")
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **settings: calls.append(settings) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    config = with_save(tensorboard="off", wandb="offline")
    loggers.check_installed(config.save)
    (made,) = loggers.trackers(tmp_path / "my-run", config, 0)
    made.write(560, ROWS, SUMMARY)
    made.close()
    settings = calls[0]
    assert (settings["mode"], settings["id"], settings["resume"]) == ("offline", "my-run", "allow")
    assert settings["config"]["train"]["num_envs"] == 8
    assert calls[1:] == [("log", VALUES, 560), "finish"]


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
