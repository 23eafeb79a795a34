"""Populations: runs that differ in values only, in one program, each as if it were alone."""

import dataclasses
import os
import signal

import jax
import numpy as np
import pytest
from run_helpers import Watch, no_key_check, patch_envs, probe_config, probe_envs, run  # noqa: F401
from safetensors.numpy import load_file

from homing.errors import HomingError
from homing.runs.folder import RunFolder, write_json
from homing.training import runner
from homing.training.build import build
from homing.training.population import can_vary, differing, shape_of

pytestmark = pytest.mark.usefixtures("probe_envs")

VALUES = [
    {"critic_lr": 1e-3, "entropy_target": -0.5, "logsumexp_weight": 0.1},
    {"critic_lr": 3e-3, "entropy_target": -1.0, "logsumexp_weight": 0.0},
]


def configs():
    base = probe_config()
    return [
        dataclasses.replace(base, settings=dataclasses.replace(base.settings, **values), seeds=seeds)
        for values, seeds in zip(VALUES, [(3, 4), (4,)], strict=True)
    ]


def population(home, hook=None):
    runs = []
    for i, config in enumerate(configs()):
        folder = RunFolder(home / f"run{i}")
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.write_config(config)
        write_json(folder.path / "together.json", {"go_on": "homing study run this"})
        runs.append((folder, config))
    show = Watch(hook)
    return runner.start_or_resume(runs, home, show, go_on="homing study run"), show


def numbers(rows, seed):
    return [
        {k: v for k, v in row.items() if not k.startswith(("time/", "speed/"))}
        for row in rows
        if row["seed"] == seed
    ]


@pytest.fixture(scope="module")
def together(tmp_path_factory):

    home = tmp_path_factory.mktemp("population")
    with pytest.MonkeyPatch.context() as patch:
        patch_envs(patch)
        outcome, _ = population(home)
    assert outcome.status == "finished"
    return home


def test_which_runs_can_share_a_program():
    one, two = configs()
    assert differing([one, two]) == ["logsumexp_weight", "critic_lr", "entropy_target"]
    assert shape_of(one) == shape_of(two)
    other = dataclasses.replace(one, settings=dataclasses.replace(one.settings, energy="dot"))
    assert shape_of(other) != shape_of(one)


@pytest.mark.slow
def test_each_member_of_a_population_learns_as_it_does_alone(tmp_path, together):
    config = configs()[1]
    outcome = runner.start(config, tmp_path / "alone", Watch())
    alone, member = RunFolder(outcome.path).rows(), RunFolder(together / "run1").rows()
    assert len(alone) == len(member) == 5  # with the untrained policy
    for a, b in zip(numbers(alone, 4), numbers(member, 4), strict=True):
        assert jax.tree.structure(a) == jax.tree.structure(b)  # rates of goals by distance are nested
        for (path, x), y in zip(jax.tree.leaves_with_path(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4, err_msg=jax.tree_util.keystr(path))


@pytest.mark.slow
def test_members_with_the_same_seed_and_other_values_differ(together):
    first, second = (RunFolder(together / f"run{i}").rows()[-1] for i in (0, 1))
    assert first["seed"] == second["seed"] == 4
    assert first["train/critic_loss"] != second["train/critic_loss"]
    assert {len(array) for array in load_file(together / "run0/policies/last.safetensors").values()} == {2}
    assert RunFolder(together / "run1").summary()["status"] == "finished"


@pytest.mark.slow
def test_a_population_that_was_stopped_goes_on_as_if_it_had_not(tmp_path, together):
    sent = []

    def stop(iteration):
        if iteration >= 10 and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGTERM))

    outcome, show = population(tmp_path, stop)
    assert outcome.status == "stopped"
    assert "homing study run" in show.warned[-1]
    with pytest.raises(HomingError, match="trained together"):
        runner.resume(tmp_path / "run0", Watch())
    assert population(tmp_path)[0].status == "finished"
    for name in ("run0", "run1"):
        ours, theirs = (RunFolder(home / name).rows() for home in (tmp_path, together))
        assert [numbers(ours, s) for s in (3, 4)] == [numbers(theirs, s) for s in (3, 4)]


def test_a_value_that_decides_how_a_program_is_built_is_not_shared():
    config = probe_config()
    parts = build(config)
    assert can_vary(config, parts, "critic_lr")
    assert not can_vary(config, parts, "representation_dim")
