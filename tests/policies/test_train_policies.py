"""tools/train_policies.py: its table, and that every stage is done once."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from homing import api
from homing.cli import main
from homing.policies import shipped, shipped_names
from homing.policies.export import change_card
from homing.runs.strict_json import open_plain
from homing.runs.tensors import TensorFile

PATH = Path(__file__).parents[2] / "tools" / "train_policies.py"


@pytest.fixture(scope="module")
def tool():
    import train_policies

    return train_policies


@pytest.fixture
def job(tool, tmp_path):
    return tool.Job(tool.recipes()["point_u_maze"], tmp_path / "runs", tmp_path, cpu=True, quick=False)


@pytest.fixture
def commands(tool, monkeypatch):
    """What would be executed."""
    done = []
    monkeypatch.setattr(tool, "homing", lambda *arguments, **options: done.append(arguments) or "")
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
        assert "goals.renew" in seen[-1].env_options, "goals change inside of an episode"


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

    def homing(*arguments, **options):
        if arguments[0] == "eval":
            which = arguments[arguments.index("--which") + 1]
            assert arguments[arguments.index("--episodes") + 1] == str(tool.SELECTION_CHAINS)
            return json.dumps({"seeds": [{"seed": s, "reached": v} for s, v in rows[which]]})
        exported.append(arguments)
        job.file.write_bytes(b"x" * size)
        return ""

    monkeypatch.setattr(tool, "homing", homing)
    size = 10
    tool.export(job)
    assert exported[0][5:9] == ("--seed", "1", "--which", "best")
    assert "--chain" in exported[0] and exported[0][exported[0].index("--episodes") + 1] == str(tool.CHAINS)
    size = tool.LARGEST + 1
    with pytest.raises(SystemExit, match="smaller networks"):
        tool.export(job)
    assert not job.file.exists()


def test_the_docs_of_what_was_made_are_written_once_and_only_for_the_package(tool, tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(tool, "document", written.append)
    monkeypatch.setattr(tool, "make", lambda *_: None)
    monkeypatch.setattr(tool, "has_gpu", lambda: False)
    tool.main(["--only", "export,docs", "--out", str(tmp_path), "ant"])
    tool.main(["--only", "export", "ant"])
    assert written == []
    tool.main(["--only", "export,docs", "ant", "reacher"])
    assert written == [["ant", "reacher"]]


def test_the_page_is_measured_once_and_again_where_asked(tool, job, monkeypatch):
    shutil.copyfile(shipped("point_u_maze"), job.file)
    change_card(job.file, lambda card: {name: part for name, part in card.items() if name != "page"})
    asked = []
    monkeypatch.setattr(tool.PROCESSES, "run", lambda command, **_: asked.append(command[1:]))
    tool.make(job, ["page"])
    goals = ["--chains", str(tool.PAGE_CHAINS), "--length", str(tool.LENGTH)]
    assert asked == [
        [str(tool.MEASURE), str(job.file), *goals, "--seconds", str(float(job.recipe.page_seconds))]
    ]
    shutil.copyfile(shipped("point_u_maze"), job.file)
    tool.make(job, ["page"])
    assert len(asked) == 1, "its card has one"
    tool.make(job, ["page"], again=True)
    assert len(asked) == 2


def test_a_measurement_changes_nothing_in_a_file_but_its_card(tmp_path):
    """With little time for its goals."""
    import measure_page

    file = tmp_path / "point.safetensors"
    shutil.copyfile(shipped("point_u_maze"), file)
    arrays, content = parts(file)
    measure_page.measure(file, chains=1, length=2, seconds=0.25, first=9)
    after, changed = parts(file)
    assert after == arrays
    page = changed["card"].pop("page")
    assert (page["chains"], page["length"], page["seconds"]) == (1, 2, 0.25)
    assert page["env"] == "point_u_maze_anywhere" and "seeds 9 to 9" in page["by"]
    assert page["scores"] == [{"seed": 0, "reached": 0.0, "reached_without_fall": 0.0, "falls": 0}]
    content["card"].pop("page", None)
    assert changed == content


def parts(file):
    """The arrays in a policy file, and all else."""
    with open_plain(file) as opened:
        found = TensorFile(file, opened).verified()
        return {name: x.tobytes() for name, x in found.arrays().items()}, dict(found.content or {})


def test_a_file_that_is_there_stays(tool, job, commands):
    job.file.write_bytes(b"x")
    job.file.with_suffix(".png").write_bytes(b"x")
    tool.make(job, ["export", "picture", "record"])
    assert commands == []


def test_runs_side_by_side_share_the_gpu_and_write_their_output_to_files(tool, tmp_path, monkeypatch):
    seen = {}

    def homing(*arguments, **options):
        seen[Path(arguments[arguments.index("--out") + 1]).name] = options
        if "humanoid_anywhere" in arguments:
            raise subprocess.CalledProcessError(1, ["python", "-m", "homing", *arguments])

    monkeypatch.setattr(tool, "homing", homing)
    todo = [
        tool.Job(tool.recipes()[name], tmp_path, tmp_path, cpu=False, quick=False, beside=2)
        for name in ("ant", "humanoid")
    ]
    assert tool.make_all(todo, 2, ["train"]) == ["humanoid"]  # the other was trained all the same
    assert seen["ant"] == {"log": tmp_path / "ant.log", "memory": tool.GPU_MEMORY / 2}
    alone = tool.Job(tool.recipes()["ant"], tmp_path, tmp_path, cpu=False, quick=False)
    assert alone.place == {}  # all of the GPU, and its output on the terminal


def test_a_signal_reaches_every_command_once_and_no_other_is_started(tool):
    program = (
        "import signal, time\n"
        "signals = []\n"
        "signal.signal(signal.SIGTERM, lambda number, frame: signals.append(number))\n"
        "print('ready', flush=True)\n"
        "while not signals: time.sleep(0.01)\n"
        "time.sleep(0.2)\n"
        "print(len(signals))\n"
    )
    processes = tool.Processes()

    def stop_when_ready():
        while not processes.running:
            time.sleep(0.01)
        time.sleep(1)
        processes.stop(signal.SIGTERM)

    threading.Thread(target=stop_when_ready).start()
    found = processes.run([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert found.split() == ["ready", "1"]
    with pytest.raises(SystemExit):
        processes.run([sys.executable, "-c", "print(1)"])


def test_runs_that_were_trained_elsewhere_are_exported_without_a_gpu(tool, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tool, "has_gpu", lambda: False)
    asked = ["--runs", str(tmp_path), "--out", str(tmp_path), "ant", "ant_u4_maze"]
    assert tool.planned(tool.parsed(asked)) == []
    assert "ant needs a GPU" in capsys.readouterr().out
    (tmp_path / "ant").mkdir()
    (tmp_path / "ant" / "summary.json").write_text('{"status": "finished"}')
    assert [job.recipe.name for job in tool.planned(tool.parsed(asked))] == ["ant"]
    forced = tool.planned(tool.parsed([*asked, "--only", "export", "--chains", "64"]))
    assert [(job.recipe.name, job.cpu) for job in forced] == [("ant", True), ("ant_u4_maze", True)]
    assert forced[0].chain()[:2] == ("--episodes", "64")


def test_a_quick_try_never_replaces_what_is_shipped(tool, capsys):
    with pytest.raises(SystemExit):
        tool.parsed(["--quick", "reacher"])
    assert "give another --out" in capsys.readouterr().err
