"""Runs that start with given parameters."""

import dataclasses

import numpy as np
import pytest
from run_helpers import (  # noqa: F401
    TRAIN,
    Watch,
    assert_same_results,
    no_key_check,
    on_probes,
    probe_config,
    probe_envs,
    run,
    shared_programs,
)
from safetensors.numpy import load_file

from homing.errors import HomingError
from homing.networks import Fit, parameters, with_parameters
from homing.policies.initial import initial_learner
from homing.runs.folder import RunFolder
from homing.training import runner
from homing.training.build import build

pytestmark = pytest.mark.usefixtures("probe_envs", "shared_programs")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run to start from."""
    path = tmp_path_factory.mktemp("runs") / "source"
    with on_probes():
        run(path)
    return path


def started(source, path, show=None, **changes):
    config = probe_config(init_from=str(source), **changes)
    parts = build(config)
    return runner.start(config, path, show or Watch(), parts._replace(initial=initial_learner(config, parts)))


def test_parameters_are_taken_and_optimisers_are_new():
    fit = lambda x: Fit(params={"w": x}, opt_state={"mean": -x})
    learner, other = {"actor": fit(1.0), "target": 2.0}, {"actor": fit(3.0), "target": 4.0}
    taken = with_parameters(learner, parameters(other))
    assert taken == {"actor": Fit(params={"w": 3.0}, opt_state={"mean": -1.0}), "target": 4.0}


def test_curves_begin_with_the_policies_it_starts_with(source, tmp_path):
    """The same episodes: those of a seed's first evaluation."""
    train = dataclasses.replace(TRAIN, evaluations=1)
    last = RunFolder(run(tmp_path / "other", train=train)[0].path).rows()[-2:]
    rows = RunFolder(started(tmp_path / "other", tmp_path / "run").path).rows()
    assert [row["iteration"] for row in rows[:3]] == [0, 0, 7]
    of_policy = lambda row: {name: x for name, x in row.items() if name.startswith("eval/")}
    assert [of_policy(row) for row in rows[:2]] == [of_policy(row) for row in last]


def test_a_run_has_its_own_copy_of_what_it_started_with(source, tmp_path):
    path = started(source, tmp_path / "run").path
    theirs, ours = (
        load_file(run / "policies" / f"{name}.safetensors")
        for run, name in ((source, "last"), (path, "initial"))
    )
    assert theirs.keys() == ours.keys()
    for name in theirs:
        np.testing.assert_array_equal(theirs[name], ours[name])


class Killed(Exception):
    pass


def kill(iteration):
    raise Killed


def test_before_the_first_checkpoint_a_run_begins_again_with_the_same(source, tmp_path):
    whole = started(source, tmp_path / "whole").path
    with pytest.raises(Killed):
        started(source, tmp_path / "run", Watch(kill))
    assert runner.resume(tmp_path / "run", Watch()).status == "finished"
    assert_same_results(whole, tmp_path / "run")


def test_a_lost_copy_is_named(source, tmp_path):
    with pytest.raises(Killed):
        started(source, tmp_path / "run", Watch(kill))
    (tmp_path / "run" / "policies" / "initial.safetensors").unlink()
    with pytest.raises(HomingError, match=r"initial\.safetensors is missing.*copy"):
        runner.resume(tmp_path / "run", Watch())


def test_an_averaged_policy_starts_there_too(source, tmp_path):
    train = dataclasses.replace(TRAIN, policy_ema=0.999999)
    path = started(source, tmp_path / "run", train=train).path
    first, last = (load_file(path / "policies" / f"{name}.safetensors") for name in ("initial", "last"))
    moved = [name for name in first if not np.allclose(first[name], last[name], rtol=1e-2, atol=1e-3)]
    assert not [name for name in moved if first[name].ndim > 1]
