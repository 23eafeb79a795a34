"""What changed in a run's settings since its checkpoint, by dotted name."""

import pytest
from run_helpers import probe_config, probe_envs  # noqa: F401

from homing.runs.record import changed_settings, plain_settings
from homing.runs.strict_json import flat

pytestmark = pytest.mark.usefixtures("probe_envs")


def test_settings_are_flattened_to_dotted_names():
    nested = {"agent": "crl", "train": {"num_envs": 8, "nets": {"width": 4}}, "env_options": {}, "seeds": [0]}
    assert flat(nested) == {"agent": "crl", "train.num_envs": 8, "train.nets.width": 4, "seeds": [0]}


def test_an_option_that_was_added_or_removed_is_one_change():
    without, with_option = probe_config(), probe_config(env_options={"task.within": 0.3})
    added = changed_settings(plain_settings(without), with_option)
    removed = changed_settings(plain_settings(with_option), without)
    assert [tuple(change) for change in added] == [("env_options.task.within", None, 0.3)]
    assert [tuple(change) for change in removed] == [("env_options.task.within", 0.3, None)]
    assert changed_settings(plain_settings(without), without) == []
