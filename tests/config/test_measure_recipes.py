"""tools/measure_recipes.py: what is trained, what is recorded, and when."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[2] / "results"
ENV, FILE = "ant_u4_maze", "learn_srl_ant_u4_maze_far_h200.jsonl"


@pytest.fixture(scope="module")
def tool():
    import measure_recipes

    return measure_recipes


@pytest.fixture
def commands(tool, monkeypatch, tmp_path):
    """What would be executed; nothing of the repository is written."""
    done, tables = [], []
    monkeypatch.setattr(tool, "homing", lambda *arguments, **options: done.append((arguments, options)))
    monkeypatch.setattr(tool, "RESULTS", tmp_path)
    monkeypatch.setattr(tool.make_recipes, "main", lambda: tables.append("recipes"))
    monkeypatch.setattr(tool.make_numbers, "main", lambda: tables.append("numbers"))
    monkeypatch.setattr(tool.signal, "signal", lambda *_: None)
    return done, tables


def stopped_run(folder: Path, status: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "summary.json").write_text(json.dumps({"status": status}))
    row = {"seed": 10, "finite": True, "eval/x": 0.123456789, "by_goal": {"x": [1.0, 2.00000004]}}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")


def test_a_run_is_started_then_resumed_then_left_alone(tool, commands, tmp_path):
    done, _ = commands
    run = tmp_path / "runs" / ENV
    tool.train(ENV, run, beside=1, device=("--cpu",))
    assert done[-1] == (("train", "best", ENV, "--seed-list", tool.SEEDS, "--out", str(run), "--cpu"), {})
    stopped_run(run, "stopped")
    tool.train(ENV, run, beside=2)
    assert done[-1][0] == ("resume", str(run))
    assert done[-1][1] == {"log": run.with_suffix(".log"), "memory": pytest.approx(0.45)}
    stopped_run(run, "finished")
    tool.train(ENV, run, beside=1)
    assert len(done) == 2


def test_a_finished_run_is_recorded_with_few_digits(tool, commands, tmp_path):
    _, tables = commands
    stopped_run(tmp_path / "runs" / ENV, "finished")
    tool.main([ENV, "--runs", str(tmp_path / "runs")])
    row = {"seed": 10, "finite": True, "eval/x": 0.12346, "by_goal": {"x": [1.0, 2.0]}}
    assert json.loads((tmp_path / FILE).read_text()) == row
    assert tables == ["recipes", "numbers"]


def test_a_run_that_was_stopped_is_recorded_where_asked(tool, commands, tmp_path):
    stopped_run(tmp_path / "runs" / ENV, "stopped")
    asked = [ENV, "--runs", str(tmp_path / "runs"), "--minutes", "60"]
    with pytest.raises(SystemExit, match=f"not finished: {ENV}; the same command goes on"):
        tool.main(asked)
    assert not (tmp_path / FILE).exists()
    with pytest.raises(SystemExit, match="not finished"):
        tool.main([*asked, "--unfinished"])
    assert (tmp_path / FILE).exists()


def test_every_recorded_recipe_can_be_measured(tool):
    assert len(tool.measured()) > 10
    assert all((RESULTS / str(one.result)).is_file() for one in tool.measured().values())
