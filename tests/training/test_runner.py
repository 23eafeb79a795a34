"""The run loop: pieces, rows, seeds that diverge, stopping and going on."""

import dataclasses
import math
import os
import signal
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from run_helpers import (  # noqa: F401
    NET,
    SAVE,
    TRAIN,
    Watch,
    assert_same_results,
    no_key_check,
    on_probes,
    probe_config,
    probe_envs,
    results,
    run,
    shared_programs,
)

import homing
from homing.agents.crl import CRL
from homing.compile.programs import Compiled
from homing.errors import HomingError
from homing.runs.folder import RunFolder, write_json
from homing.training import build as run_build
from homing.training import run as run_module
from homing.training import runner
from homing.training.members import members_of
from homing.training.offpolicy import OffPolicy
from homing.training.seeds import programs
from homing.training.tally import Tally, columns, pieces

pytestmark = pytest.mark.usefixtures("probe_envs", "shared_programs")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    with on_probes():
        outcome, show = run(path)
    assert outcome.status == "finished"
    return path, show


def test_pieces_cover_the_plan_once_and_do_not_depend_on_where_one_begins():
    plan = run_build.build(probe_config()).plan
    all_of_it = list(pieces(plan))
    assert [start for start, _, _ in all_of_it] == [0] + [stop for _, stop, _ in all_of_it[:-1]]
    assert all_of_it[-1][1] == plan.iterations
    ends = [stop for _, stop, ends in all_of_it if ends]
    assert ends == [plan.epoch_bounds(e)[1] for e in range(plan.epochs)]
    for i, (_, stop, _) in enumerate(all_of_it):
        assert list(pieces(plan, stop)) == all_of_it[i + 1 :]


def test_after_a_change_of_the_plan_no_iteration_is_run_again():
    plan = run_build.build(probe_config()).plan
    for after in range(plan.iterations):
        rest = list(pieces(plan, after))
        assert [start for start, _, _ in rest] == [after] + [stop for _, stop, _ in rest[:-1]]
        assert rest[-1][1] == plan.iterations


def test_a_tally_weighs_pieces_by_the_iterations_that_learned():
    tally = Tally([True, True])
    metrics = lambda a, b: {"loss": np.asarray([a, b]), "finite": np.asarray([True, b < 9])}
    tally.add(metrics(math.nan, math.nan), steps=5, learned=0, seconds=1.0)
    tally.add(metrics(1.0, 2.0), steps=5, learned=1, seconds=1.0)
    tally.add(metrics(4.0, 9.0), steps=5, learned=2, seconds=1.0)
    assert tally.means() == {"loss": [3.0, 20 / 3]}
    assert tally.finite == [True, False]
    again = Tally(**dataclasses.asdict(tally))
    assert again == tally


def test_a_run_writes_one_row_for_each_seed_and_evaluation(whole):
    path, _ = whole
    rows = RunFolder(path).rows()
    assert [(row["seed"], row["iteration"]) for row in rows] == [
        (seed, i) for i in (0, 7, 13, 18, 24) for seed in (3, 4)
    ]
    for row in rows[2:]:
        assert row["step"] == 80 * row["iteration"]
        assert row["updates"] == (row["iteration"] - 2) * 80 // 30
        assert row["finite"] is True
        assert {"train/critic_loss", "eval/success_any", "speed/env_steps_per_second"} <= row.keys()
    summary = RunFolder(path).summary()
    assert (summary["status"], summary["step"], summary["diverged"]) == ("finished", 1920, [])
    assert summary["last"]["eval/success_any"]["seeds"] == 2
    assert not (path / "tensorboard").exists()


def test_curves_begin_with_the_untrained_policy(whole):
    """Before the first step there are evaluations, and neither losses nor a speed."""
    path, _ = whole
    for row in RunFolder(path).rows()[:2]:
        assert (row["iteration"], row["step"], row["updates"], row["finite"]) == (0, 0, 0, True)
        assert {"eval/success_any", "eval/final_distance", "time/elapsed", "time/evaluation"} <= row.keys()
        assert not [name for name in row if name.startswith(("train/", "speed/"))]


def test_the_evaluation_at_the_start_changes_nothing_else(whole, tmp_path):
    path, _ = whole
    save = dataclasses.replace(SAVE, eval_at_start=False)
    outcome, _ = run(tmp_path / "run", save=save)
    (rows, policy), (others, other_policy) = results(path), results(outcome.path)
    assert rows[2:] == others
    for name in policy:
        np.testing.assert_array_equal(policy[name], other_policy[name])


def test_a_run_without_a_checkpoint_makes_the_evaluation_at_the_start_again(whole, tmp_path):
    path, _ = whole
    folder = RunFolder(tmp_path / "run")
    first = RunFolder(path).rows()[:2]
    folder.path.mkdir()
    folder.append(first)
    (member,) = members_of([(folder, probe_config())])
    warned: list[str] = []
    plan = run_build.build(probe_config()).plan
    assert member.begin(0, plan, None, warned.append) == [] and not folder.rows() and not warned
    folder.append([{**row, "iteration": 7} for row in first])
    member.begin(0, plan, None, warned.append)
    assert len(warned) == 1 and "starts again from step 0" in warned[0]


def test_a_run_records_what_it_ran_on(whole):
    path, _ = whole
    (session,) = RunFolder(path).sessions()
    assert session["versions"]["jax"] == jax.__version__
    assert RunFolder(path).config() == probe_config()


def test_a_run_traces_each_program_once(tmp_path, monkeypatch):
    monkeypatch.setattr(run_module, "programs", programs)  # its own
    traces, updates = Counter(), Counter()

    def counted(kind, name, counts):
        inner = getattr(kind, name)

        def count(*args):
            counts[name] += 1
            return inner(*args)

        monkeypatch.setattr(kind, name, count)

    for name in ("init", "epoch", "evaluate"):
        counted(OffPolicy, name, traces)
    counted(CRL, "update", updates)
    assert run(tmp_path / "run")[0].status == "finished"
    assert traces == {"init": 1, "epoch": 1, "evaluate": 1}
    # In the epoch of whole groups and of the remainder, in the evaluation to be measured.
    assert updates == {"update": 3}


class Stop:
    """Sends a signal to this process once, when the run has come to an iteration."""

    def __init__(self, iteration, signum=signal.SIGTERM):
        self.iteration, self.signum, self.sent = iteration, signum, False

    def __call__(self, iteration):
        if iteration >= self.iteration and not self.sent:
            self.sent = True
            os.kill(os.getpid(), self.signum)


def change_versions(path):
    sessions = RunFolder(path).sessions()
    sessions[-1]["versions"]["jax"] = "0.0.1"
    write_json(path / "sessions.json", sessions)


@pytest.mark.parametrize(("iteration", "signum"), [(10, signal.SIGTERM), (13, signal.SIGINT)])
def test_a_stopped_run_says_how_to_go_on_and_then_does_as_if_it_had_not_stopped(
    tmp_path, whole, iteration, signum
):
    """In the middle of an epoch, and at its end."""
    path = tmp_path / "run"
    outcome, show = run(path, Stop(iteration, signum))
    assert (outcome.status, outcome.signum) == ("stopped", signum)
    assert f"homing resume {path}" in show.warned[-1]
    if iteration == 13:
        change_versions(path)
    assert show.pieces[-1] == iteration
    assert RunFolder(path).summary() is None
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    outcome = runner.resume(path, again := Watch())
    assert outcome.status == "finished"
    assert again.pieces[0] > iteration
    assert ["not bit for bit the same" in text for text in again.warned] == [True] * (iteration == 13)
    assert [s["iteration"] for s in RunFolder(path).sessions()] == [0, iteration]
    assert_same_results(path, whole[0])


def test_a_finished_run_is_left_alone(whole):
    before = results(whole[0])[0]
    outcome = runner.resume(whole[0], show := Watch())
    assert outcome.status == "finished"
    assert "finished" in show.said[-1]
    assert results(whole[0])[0] == before


def test_a_damaged_checkpoint_costs_time_only(tmp_path, whole):
    path = tmp_path / "run"
    run(path, Stop(15))
    assert [entry.name for entry in sorted((path / "checkpoints").iterdir())] == ["13", "15"]
    for file in (path / "checkpoints" / "15").rglob("*"):
        if file.is_file() and file.stat().st_size > 1000:
            file.write_bytes(b"\0" * 1000)
    outcome = runner.resume(path, show := Watch())
    assert outcome.status == "finished"
    assert "15 is damaged" in show.warned[0]
    assert_same_results(path, whole[0])


def spoil(monkeypatch, *places):
    """Seeds at these places begin with a NaN in the critic."""
    init = Compiled.init

    def spoiled(self):
        train = init(self)
        for place in places:
            params = train.learner.params
            bad = jax.tree.map(lambda x: x.at[place, 0].set(jnp.nan), params["nets"])  # noqa: B023
            train = train.replace(learner=train.learner.replace(params=params | {"nets": bad}))
        return train

    monkeypatch.setattr(Compiled, "init", spoiled)


def test_a_seed_that_diverges_is_reported_marked_and_harmless(tmp_path, whole, monkeypatch):
    spoil(monkeypatch, 1)
    path = tmp_path / "run"
    outcome, show = run(path)
    assert outcome.status == "finished"
    assert [w for w in show.warned if "diverged" in w] == show.warned
    assert len(show.warned) == 1
    assert "seed 4" in show.warned[0]
    rows, healthy = results(path)[0], results(whole[0])[0]
    assert [row for row in rows if row["seed"] == 3] == [row for row in healthy if row["seed"] == 3]
    for row in rows:
        if row["seed"] == 4 and row["step"]:  # learning tells
            assert set(row) == {"seed", "iteration", "step", "updates", "finite"}
            assert row["finite"] is False
    summary = RunFolder(path).summary()
    assert summary["diverged"] == [4]
    assert summary["last"]["eval/success_any"]["seeds"] == 1
    told = homing.evaluate(path, episodes=16)
    assert told["diverged"] == [4]
    assert told["summary"]["success_any"]["seeds"] == 1


def test_a_run_whose_seeds_have_all_diverged_ends(tmp_path, monkeypatch):
    spoil(monkeypatch, 0, 1)
    with pytest.raises(HomingError, match="every seed has diverged"):
        run(tmp_path / "run")


def test_what_is_not_finite_is_absent():
    rows = [{"seed": 0, "finite": True, "eval/x": 1.0}, {"seed": 1, "finite": False, "speed/y": 2.0}]
    assert columns(rows) == {"eval/x": [1.0]}


def test_a_loaded_policy_acts_greedily_on_any_batch_shape(whole):
    policy = homing.load(whole[0], seed=4)
    action = policy(np.zeros(2), np.ones(2))
    assert action.shape == (2,)
    assert np.all(np.abs(action) <= 1)
    batch = policy(np.zeros((5, 2)), np.ones((5, 2)))
    np.testing.assert_allclose(batch, np.broadcast_to(action, (5, 2)), atol=1e-6)
    assert not np.allclose(action, homing.load(whole[0], seed=3)(np.zeros(2), np.ones(2)))
    with pytest.raises(HomingError, match="has 2 entries"):
        policy(np.zeros(3), np.ones(2))
    with pytest.raises(HomingError, match="no seed 7; it has 3, 4"):
        homing.load(whole[0], seed=7)
    assert homing.load(whole[0], which="best").iteration in (7, 13, 18, 24)


def test_evaluation_of_a_run_has_a_row_for_each_seed(whole):
    told = homing.evaluate(whole[0], episodes=16)
    assert [row["seed"] for row in told["seeds"]] == [3, 4]
    assert told["episodes"] == 16
    assert 0 <= told["summary"]["success_any"]["iqm"] <= 1
    assert told == homing.evaluate(whole[0], episodes=16)
    assert told["seeds"] != homing.evaluate(whole[0], episodes=16, seed=1)["seeds"]


def test_training_from_python_takes_settings_by_name(tmp_path):
    """Those of the runs above, so that their programs will do."""
    names = ("num_envs", "unroll_length", "batch_size", "updates_per_step", "replay_size", "prefill_steps")
    changes = {name: getattr(TRAIN, name) for name in (*names, "evaluations", "eval_envs")}
    trained = homing.train(
        "crl",
        "walk",
        seeds=[5, 6],
        steps=TRAIN.total_steps,
        preset="quickstart",
        out=tmp_path / "run",
        quiet=True,
        critic_net=NET,
        actor_net=NET,
        representation_dim=8,
        tensorboard="off",
        **changes,
    )
    assert [step for step, _ in trained.curve(5)] == [0, 560, 1040, 1440, 1920]
    assert trained.policy()(np.zeros(2), np.zeros(2)).shape == (2,)
    save = dataclasses.replace(SAVE, checkpoint_minutes=10)
    assert RunFolder(trained.path).config() == probe_config(seeds=(5, 6), save=save, preset="quickstart")
