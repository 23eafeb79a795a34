"""Reports on one run, on 200, and on runs that are broken, unfinished or still going on."""

import csv
import fcntl
import json
import re
import shutil

import numpy as np
import pytest
from report_helpers import rows_of, write_run

from homing.cli import main
from homing.errors import ConfigError, HomingError
from homing.report import comparison
from homing.report.build import write_report
from homing.report.content import make_content
from homing.report.groups import make_groups
from homing.report.reading import find_runs, read_run, read_runs
from homing.report.tidy import tidy_columns, tidy_rows
from homing.runs import stats


def groups_of(*places, by="settings"):
    records, problems = read_runs(find_runs(places))
    groups, doubts = make_groups(records, by)
    return {(g.method, g.task): g for g in groups}, [*problems, *doubts]


def data_of(page):
    """What a page shows, read from the page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found is not None
    return json.loads(found.group(1))


# Reading.


def test_runs_are_found_by_folder_by_parent_and_by_pattern(tmp_path):
    a, b = write_run(tmp_path / "x" / "a"), write_run(tmp_path / "x" / "deep" / "b")
    (a / "checkpoints").mkdir()
    shutil.copy(a / "config.json", a / "checkpoints" / "config.json")  # nothing inside a run is a run
    assert find_runs([a]) == [a]
    assert find_runs([tmp_path]) == find_runs([tmp_path / "x", a]) == [a, b]
    assert find_runs([f"{tmp_path}/x/*"]) == [a, b]
    assert find_runs([a / "metrics.jsonl"]) == [a / "metrics.jsonl"]
    for place, part in ((tmp_path / "none", "does not exist"), (a / "checkpoints" / "..", None)):
        if part is None:
            assert len(find_runs([place])) == 1
        else:
            with pytest.raises(ConfigError, match=part):
                find_runs([place])
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="holds no run"):
        find_runs([tmp_path / "empty"])


def test_broken_and_unfinished_runs_are_named_and_the_rest_is_reported(tmp_path):
    good = write_run(tmp_path / "good")
    half = write_run(tmp_path / "half", seeds=(3,), finished=False)
    with open(half / "metrics.jsonl", "a") as file:
        file.write('{"seed": 3, "st')  # a process died here
    (write_run(tmp_path / "garbled") / "metrics.jsonl").write_text("[1\n{}\n")
    (write_run(tmp_path / "torn") / "config.json").write_text("{")
    (write_run(tmp_path / "foreign") / "config.json").write_text('{"name": "other"}')
    (write_run(tmp_path / "empty", finished=False) / "metrics.jsonl").unlink()
    (write_run(tmp_path / "nowhere", seeds=(7,)) / "sessions.json").write_text("?")
    records, problems = read_runs(find_runs([tmp_path]))
    assert {r.path.name for r in records} == {"good", "half", "nowhere"}
    told = {p.where: p.what for p in problems}
    assert set(told) == {"half", "garbled", "torn", "foreign", "empty", "nowhere"}
    assert "hardware is not shown" in told["nowhere"] and "sessions.json" in told["nowhere"]
    assert "unfinished: 60,000 of 60,000 steps" in told["half"]
    assert "line 1 of" in told["garbled"] and "cannot read" in told["torn"] and "config.json" in told["torn"]
    assert "not that of a run" in told["foreign"] and "no evaluation yet" in told["empty"]
    assert read_run(half).rows == rows_of((3,)) and read_run(good).status == "finished"


def test_a_run_is_running_while_its_lock_is_held(tmp_path):
    run = write_run(tmp_path / "run", finished=False)
    with open(run / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert read_run(run).status == "running"
    assert read_run(run).status == "unfinished"


# Groups.


def test_seeds_of_several_runs_make_one_line_unless_settings_differ(tmp_path):
    write_run(tmp_path / "a", seeds=(0, 1))
    write_run(tmp_path / "b", seeds=(2,), changes={"train.total_steps": 90_000, "save.tensorboard": "on"})
    write_run(tmp_path / "c", seeds=(0, 1), changes={"settings.energy": "dot"})
    write_run(tmp_path / "d", agent="sac", seeds=(0,), env="reacher")
    groups, problems = groups_of(tmp_path)
    assert not problems
    sizes = {key: len(g.curves) for key, g in groups.items()}
    assert sizes == {("crl energy=l2", "ant"): 3, ("crl energy=dot", "ant"): 2, ("sac", "reacher"): 1}
    assert set(groups_of(tmp_path, by="agent")[0]) == {("crl", "ant"), ("sac", "reacher")}
    assert set(groups_of(tmp_path, by="run")[0]) == {
        ("a", "ant"),
        ("b", "ant"),
        ("c", "ant"),
        ("d", "reacher"),
    }


def test_many_differences_get_a_number_and_ambiguous_names_their_place(tmp_path):
    changes = {"settings.energy": "dot", "train.batch_size": 64, "train.num_envs": 4}
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", changes=changes | {"settings.critic_net.width": 9})
    write_run(tmp_path / "c", env="reacher", changes={"eval_env": "reacher_hard"})
    write_run(
        tmp_path / "d", env="reacher", changes={"eval_env": "reacher_hard", "env_options": {"task.within": 1}}
    )
    groups, _ = groups_of(tmp_path)
    assert {m for m, _ in groups} == {"crl #1", "crl #2"}
    assert {t for _, t in groups if t != "ant"} == {
        "reacher → reacher_hard",
        "reacher → reacher_hard within=1",
    }


def test_the_same_seed_twice_counts_once_and_is_told(tmp_path):
    write_run(tmp_path / "long", seeds=(0, 1))
    write_run(tmp_path / "short", seeds=(1, 2), total=30_000)
    groups, problems = groups_of(tmp_path)
    (group,) = groups.values()
    assert [(c.seed, c.run) for c in group.curves] == [(0, "long"), (1, "long"), (2, "short")]
    assert len(problems) == 1 and "seed 1 of crl on ant is in long too" in problems[0].what


def test_diverged_seeds_count_until_then_and_not_at_the_end(tmp_path):
    run = write_run(tmp_path / "run", seeds=(0, 1, 2))
    rows = rows_of((0, 1, 2))
    for row in rows:
        if row["seed"] == 2 and row["iteration"] > 3:
            for name in [n for n in row if n.startswith(("eval/", "train/"))]:
                del row[name]
            row["finite"] = False
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    groups, problems = groups_of(run)
    (group,) = groups.values()
    assert "seed 2 diverged" in problems[0].what
    assert len(group.final("eval/success_any")) == 2
    x, band = group.band("eval/success_any", "step", 50, 100)
    assert band.count.tolist() == [3, 3, 3, 2, 2, 2] and x[-1] == 60_000


def test_lines_of_seeds_evaluated_at_different_steps_meet_on_one_grid(tmp_path):
    write_run(tmp_path / "a", seeds=(0,), noise=0)
    write_run(tmp_path / "b", seeds=(1,), points=9, noise=0)
    groups, _ = groups_of(tmp_path)
    (group,) = groups.values()
    x, band = group.band("eval/success_any", "step", 200, 100)
    assert set(group.curves[0].step) | set(group.curves[1].step) == set(x)
    here = list(x).index(40_000)  # both have it
    ours = [c.values["eval/success_any"][list(c.step).index(40_000)] for c in group.curves]
    assert band.value[here] == pytest.approx(np.mean(ours))


# Comparison.


def test_methods_are_compared_on_the_tasks_that_all_have(tmp_path):
    for env in ("ant", "reacher"):
        write_run(tmp_path / f"crl-{env}", "crl", env, range(5), top=0.9)
        write_run(tmp_path / f"sac-{env}", "sac", env, range(5), top=0.3)
    write_run(tmp_path / "sac-easy", "sac", "easy", range(5), top=1.0)
    groups = list(groups_of(tmp_path)[0].values())
    found = comparison.compare(groups)
    assert found is not None and found["score"] == "eval/success_any"
    assert comparison.ranked(groups) == ["crl", "sac"] and found["tasks"] == ["ant", "reacher"]
    finals = [g.final("eval/success_any") for g in groups if g.method == "sac" and g.task != "easy"]
    assert found["aggregates"]["sac"]["iqm"].value == pytest.approx(stats.iqm(np.concatenate(finals)))
    ((a, b, e),) = found["improvement"]
    assert (a, b, e.value, e.count) == ("crl", "sac", 1.0, 2)


# What is written.


@pytest.fixture(scope="module")
def two_hundred(tmp_path_factory):
    """Four agents, five environments, ten seeds each in a run of its own."""
    root = tmp_path_factory.mktemp("many")
    for e, env in enumerate(("ant", "reacher", "humanoid", "pusher_easy", "ant_u_maze")):
        for a, agent in enumerate(("crl", "sac", "td3", "ppo")):
            for seed in range(10):
                write_run(root / f"{env}-{agent}-{seed}", agent, env, (seed,), top=0.9 - 0.2 * a - 0.05 * e)
    return root


def test_a_report_on_two_hundred_runs_is_one_page_of_moderate_size(two_hundred, tmp_path):
    page = tmp_path / "out" / "report.html"
    written = write_report([two_hundred], page, csv=tmp_path / "all.csv")
    assert written.runs == 200 and not written.problems
    assert page.stat().st_size < 4 * 2**20
    told = data_of(page)
    assert told["methods"] == ["crl", "sac", "td3", "ppo"] and len(told["tasks"]) == 5
    assert [g["seeds"] for g in told["groups"]] == [10] * 20
    with open(tmp_path / "all.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 200 * 6
    assert float(rows[0]["eval/success_any"]) == rows_of((0,), top=0.9)[0]["eval/success_any"]
    one = next(
        g
        for g in told["groups"]
        if told["methods"][g["method"]] == "crl" and told["tasks"][g["task"]] == "ant"
    )
    finals = [rows_of((s,), top=0.9)[-1]["eval/success_any"] for s in range(10)]
    e = stats.estimate(finals)
    shown = one["final"]["eval/success_any"]
    assert shown["value"] == pytest.approx(e.value, rel=1e-4) and shown["low"] == pytest.approx(
        e.low, rel=1e-4
    )
    assert one["bands"]["eval/success_any"]["step"]["y"][-1] == pytest.approx(e.value, rel=1e-4)


def test_one_run_of_one_seed_has_no_interval_anywhere(tmp_path):
    run = write_run(tmp_path / "run", seeds=(4,))
    write_report([run], tmp_path / "report.html")
    told = data_of(tmp_path / "report.html")
    (group,) = told["groups"]
    assert "low" not in group["final"]["eval/success_any"]
    assert set(group["bands"]["eval/success_any"]["step"]["low"]) == {None}
    assert told["title"] == "crl on ant" and told["settings"]["differ"] == []
    assert told["machines"][0]["commit"] == "0123456789"


def test_a_page_asks_no_other_address_and_cannot_be_broken_by_names(tmp_path):
    evil = "</script><script>alert(1)</script>"
    run = write_run(tmp_path / "run", agent=evil)
    write_report([run], tmp_path / "report.html", title=evil)
    text = (tmp_path / "report.html").read_text()
    assert "alert(1)</script>" not in text and data_of(tmp_path / "report.html")["title"] == evil
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[^\s\"']*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place


def test_films_are_embedded_or_named(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    (run / "films").mkdir()
    (run / "films" / "a.mp4").write_bytes(b"film")
    (run / "b.gif").write_bytes(b"much larger film")
    monkeypatch.setattr("homing.report.page.FILM_BYTES", 8)
    write_report([run], tmp_path / "report.html")
    large, small = data_of(tmp_path / "report.html")["films"]
    assert small["src"] == "data:video/mp4;base64,ZmlsbQ==" and small["kind"] == "video"
    assert large["src"] is None and str(run / "b.gif") in large["why"]


def test_settings_that_differ_are_told_apart_from_those_that_all_share(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", seeds=(5,), changes={"train.batch_size": 64})
    records, problems = read_runs(find_runs([tmp_path]))
    told = make_content(records, problems).page["settings"]
    assert told["differ"] == ["train.batch_size", "seeds"]
    assert [row["values"] for row in told["rows"]] == [["32", "[0, 1, 2]"], ["64", "[5]"]]
    assert ("settings.energy", "l2") in told["shared"]


def test_metrics_files_are_of_no_environment_that_is_known(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text('{"seed": 0, "step": 10, "eval/return": 2.5}\n')
    one = make_content(*read_runs(find_runs([tmp_path / "a.jsonl"]))).page
    two = make_content(*read_runs(find_runs([tmp_path / "a.jsonl", tmp_path / "b.jsonl"]))).page
    assert (one["title"], one["problems"]) == ("a", [])
    assert two["title"] == "2 runs"
    assert [problem["where"] for problem in two["problems"]] == ["a.jsonl, b.jsonl"]


def test_tidy_columns_are_of_one_length_and_absent_is_none(tmp_path):
    write_run(tmp_path / "a", seeds=(0,))
    (tmp_path / "b.jsonl").write_text('{"seed": 0, "step": 10, "eval/return": 2.5}\n')
    records, _ = read_runs(find_runs([tmp_path / "a", tmp_path / "b.jsonl"]))
    columns = tidy_columns(tidy_rows(records))
    assert {len(values) for values in columns.values()} == {7}
    assert columns["eval/return"] == [None] * 6 + [2.5] and columns["agent"][-1] == "b"


def test_figures_are_pictures(two_hundred, tmp_path):
    written = write_report([f"{two_hundred}/ant-*-0", f"{two_hundred}/ant-*-1"], None, figures=tmp_path / "f")
    assert {p.suffix for p in written.files} == {".png", ".pdf"} and len(written.files) == 14
    names = {p.stem for p in written.files}
    assert names >= {"success_any_steps", "time_near_goal_time", "aggregates", "profile", "improvement"}
    for path in written.files:
        assert path.read_bytes().startswith((b"\x89PNG", b"%PDF"))


# The command.


def test_the_command_writes_what_is_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a")
    write_run(tmp_path / "runs" / "b", seeds=(9,), finished=False)
    main.main(["report", "--csv", "all.csv"])
    said = capsys.readouterr().out
    assert "wrote report.html" in said and "wrote all.csv" in said and "b: unfinished" in said
    assert data_of(tmp_path / "report.html")["runs"] == 2


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("nothing",), "does not exist"),
        (("runs", "--out", "report.txt"), "should end in .html"),
        (("runs", "--out", "folder.html"), "is a folder"),
        (("runs", "--csv", "x.txt"), "should end in .csv"),
        (("runs", "--figures", "file"), "--figures file is a file; name a folder"),
        (("empty",), "none of the runs has an evaluation"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, args, part):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs" / "a")
    (write_run(tmp_path / "empty" / "b") / "metrics.jsonl").unlink()
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit) as stop:
        main.main(["report", *args])
    err = capsys.readouterr().err
    assert stop.value.code == 2 and part in err and len(err.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_page_that_cannot_be_written_is_told(tmp_path):
    run = write_run(tmp_path / "run")
    (tmp_path / "file").touch()
    with pytest.raises(HomingError, match="cannot make the folder"):
        write_report([run], tmp_path / "file" / "report.html")
