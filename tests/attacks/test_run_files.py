"""Damaged files, links and obstacles in a run's folder: named in one message, and no harm to other runs."""

import base64
import http.client
import json
import os
import shutil
import threading
import warnings

import pytest
from file_attacks import JUNK, OBSTACLES, TEXTS, altered, harmless, places, replace
from report_helpers import SESSION, rows_of, write_run

from homing.cli.main import main
from homing.errors import HomingError
from homing.policies.store import find_policies
from homing.report.build import write_report
from homing.report.live import Live
from homing.report.reading import find_runs, read_runs
from homing.report.server import HOST, make_server
from homing.runs.folder import RunFolder
from homing.runs.strict_json import parse_json

pytestmark = pytest.mark.usefixtures("probe_everywhere")

FILES = ("config.json", "sessions.json", "metrics.jsonl", "summary.json")
UNFINISHED = ("nothing", "half an object")  # of metrics: a line without an end is no row yet
ROW = rows_of((0,), points=1)[0]
CONTENT = {
    "sessions.json": [
        {},
        [1],
        [[]],
        [None],
        *([{**SESSION, name: junk}] for name in SESSION for junk in (None, [], {"a": None}, -1, 1.5)),
        [{**SESSION, "git": {"homing": None}}],
        [{**SESSION, "git": {"homing": {"commit": 7}}}],
        [{**SESSION, "versions": {"jax": None}}],
    ],
    "config.json": [
        [],
        {},
        {"env": "ant"},
        {"agent": "crl"},
        *({"agent": junk, "env": "ant"} for junk in (None, [], {}, 3, "", "x" * 10_000)),
        *({"agent": "crl", "env": junk} for junk in (None, [], {}, 3, "")),
        *({"agent": "crl", "env": "ant", "train": {"total_steps": junk}} for junk in ("x", None, -1, 1.5)),
    ],
    "metrics.jsonl": [
        [],
        {},
        {"seed": 0},
        {"step": 10},
        *(
            {**ROW, name: junk}
            for name in ("seed", "step", "iteration", "updates")
            for junk in JUNK
            if junk != 10**15
        ),
        *({**ROW, "finite": junk} for junk in (None, 1, "yes", [])),
        *({**ROW, "eval/success_any": junk} for junk in (None, "high", [], {}, True, 1e300)),
        *({**ROW, "by_goal": junk} for junk in (None, [], "x", {"success_any": "x"}, {"success_any": ["x"]})),
        {**ROW, "time/elapsed": None},
        {**ROW, "speed/env_steps_per_second": "fast"},
    ],
    "summary.json": [[], [{}], {"last": []}, {"step": None}, {"seconds": "x"}],
}


def bad_folders(home):
    """Folders of runs, each with one bad file; yields folder, file and kind of damage."""
    cases = [(name, f"{kind}", raw) for name in FILES for kind, raw in (TEXTS | OBSTACLES).items()]
    for name, values in CONTENT.items():
        cases += [(name, f"content {i}", json.dumps(v).encode() + b"\n") for i, v in enumerate(values)]
    for i, (name, kind, bad) in enumerate(cases):
        run = write_run(home / f"bad{i:03d}", seeds=(0,), points=1)
        replace(run / name, bad)
        yield run, name, kind


def test_no_run_takes_the_report_on_the_others_down(tmp_path):
    """Some hundred bad folders beside a good one: each is read, named or shown, and the page has the good one."""
    write_run(tmp_path / "runs" / "good", agent="sac", seeds=(7,))
    bad = {run.name: (file, kind) for run, file, kind in bad_folders(tmp_path / "runs")}
    assert len(bad) > 150
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = write_report([tmp_path / "runs"], tmp_path / "report.html", csv=tmp_path / "all.csv")
    problems = {name: " ".join(p.what for p in written.problems if p.where == name) for name in bad}
    for name, (file, kind) in bad.items():
        if file == "summary.json":  # it only says that the run is over
            continue
        if file == "config.json" and kind in ("a folder", "a link to a folder"):
            continue  # no run at all
        if kind == "a link in a circle":
            continue  # no such file
        if file == "metrics.jsonl" and kind in UNFINISHED:
            continue
        words = "hardware is not shown" if file == "sessions.json" else "left out"
        assert words in problems[name] and file in problems[name], (file, kind, problems[name])
    page = (tmp_path / "report.html").read_text()
    assert '"sac"' in page and "unreadable" in page


@pytest.mark.parametrize("file", FILES)
def test_each_bad_file_alone_beside_a_good_run(tmp_path, file):
    good = write_run(tmp_path / "good", agent="sac", seeds=(7,), points=1)
    for run, name, kind in bad_folders(tmp_path / "runs"):
        if name == file:
            paths = [good, run]
            records, _ = read_runs(paths)
            assert good in [record.path for record in records], kind


def test_commands_on_a_bad_run_say_one_thing(made, tmp_path, capsys):
    """`eval` and `export` read config, metrics and sessions; each bad one is one line and exit code 2."""
    kinds = dict(list(TEXTS.items())[:12]) | OBSTACLES
    for i, (name, kind) in enumerate((name, kind) for name in FILES[:3] for kind in kinds):
        run = shutil.copytree(made[0], tmp_path / f"run{i}")
        replace(run / name, kinds[kind])
        if name == "sessions.json" and kind == "a link in a circle":
            continue  # no such file
        empty = name == "metrics.jsonl" and kind in (*UNFINISHED, "a link in a circle")
        for command in (
            ["eval", str(run), "--cpu"],
            ["export", str(run), "--out", str(tmp_path / "x.safetensors")],
        ):
            if empty and command[0] == "eval":
                continue
            with pytest.raises(SystemExit) as end:
                main(command)
            err = capsys.readouterr().err
            assert end.value.code == 2 and err.count("\n") == 1 and str(run) in err, (name, kind, err)
            assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize("junk", JUNK)
def test_no_setting_of_a_run_is_trusted(made, tmp_path, junk):
    config = json.loads((made[0] / "config.json").read_text())
    run = shutil.copytree(made[0], tmp_path / "run")
    for place in places(config):
        (run / "config.json").write_text(json.dumps(altered(config, place, junk)))
        harmless(lambda path: RunFolder(path).config(), run)


def test_names_that_are_no_utf8_are_shown_all_the_same(tmp_path):
    runs = tmp_path / "runs"
    write_run(runs / "good", agent="sac")
    os.rename(write_run(tmp_path / "x"), os.fsencode(runs) + b"/bad\xff\x1b")
    os.rename(write_run(tmp_path / "y"), os.fsencode(runs) + b"/worse\xff")
    (runs / os.fsdecode(b"worse\xff") / "config.json").write_text("[")
    (runs / "good" / os.fsdecode(b"f\xff.png")).write_bytes(b"film")
    written = write_report([runs], tmp_path / "report.html")
    assert written.runs == 2
    json.dumps(Live([runs]).page(), allow_nan=False).encode()


def test_a_path_that_cannot_be_one_is_refused():
    for path in ("a" * 5000, "a/" * 3000):
        with pytest.raises(HomingError):
            find_runs([path])
        with pytest.raises(HomingError):
            find_policies(path)


def test_json_is_bounded_and_finite():
    assert parse_json('{"a": [1, 2.5, Infinity, "é\\u00e9\\ud83d\\ude00"]}')["a"][0] == 1
    for raw in (t for name, t in TEXTS.items() if name not in ("a text", "a number", "null")):
        with pytest.raises(ValueError, match=r"\w"):
            parse_json(raw)


# Links and other files in a run's folder.


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret.png"
    path.write_bytes(b"TOP-SECRET")
    return path


def plant(run, secret):
    """Ways to have a file outside of a run shown as its film; one sound film."""
    (run / "link.png").symlink_to(secret)
    (run / "passwd.png").symlink_to("/etc/passwd")
    (run / "folder.png").mkdir()
    os.mkfifo(run / "pipe.mp4")
    (run / "films").symlink_to(secret.parent)
    (run / "film.gif").write_bytes(b"film")
    (run / "notes.txt").write_bytes(b"TOP-SECRET")
    with open(run / "large.mp4", "wb") as file:
        file.truncate(2**31)


def test_links_are_neither_embedded_nor_served(tmp_path, secret):
    run = write_run(tmp_path / "runs" / "a", seeds=(0,), points=1)
    plant(run, secret)
    write_report([run], tmp_path / "report.html")
    (film,) = [r for r in read_runs([run])[0][0].films]
    assert film.name == "film.gif"
    text = (tmp_path / "report.html").read_text()
    assert base64.b64encode(b"TOP-SECRET").decode()[:10] not in text and "ZmlsbQ==" in text
    server = make_server(Live([run]), 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def ask(path, **headers):
        connection = http.client.HTTPConnection(HOST, server.server_address[1], timeout=10)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    try:
        assert len(json.loads(ask("/data.json")[1])["films"]) == 1
        assert ask("/film/0") == (200, b"film")
        (run / "film.gif").unlink()
        (run / "film.gif").symlink_to(secret)  # after it was found
        assert ask("/film/0")[0] == 404
        for path in (
            "/film/1",
            "/film/" + "9" * 5000,
            "/film/%C2%B2",
            "/film/%30",
            "/link.png",
            "/../../etc/passwd",
        ):
            assert ask(path)[0] in (400, 404), path
        (run / "film.gif").unlink()
        (run / "film.gif").write_bytes(b"0123")
        assert ask("/film/0", Range="bytes=" + "9" * 5000 + "-") == (200, b"0123")
        assert ask("/film/0", Range="bytes=1-2") == (206, b"12")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
