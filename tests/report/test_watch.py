"""The live page: it grows with its runs, and only this machine reaches it."""

import http.client
import json
import os
import threading
import time

import pytest
from report_helpers import rows_of, write_run

from homing.cli import main
from homing.errors import ConfigError, HomingError
from homing.report.live import Live
from homing.report.server import HOST, byte_range, make_server
from homing.runs.folder import RunFolder


@pytest.fixture
def served(tmp_path):
    """A folder for runs, and a function that asks for a path on the page that watches it."""
    runs = tmp_path / "runs"
    runs.mkdir()
    server = make_server(Live([runs]), 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def ask(path, host=None, headers=None):
        connection = http.client.HTTPConnection(HOST, server.server_address[1], timeout=10)
        connection.request("GET", path, headers=(headers or {}) | ({"Host": host} if host else {}))
        answer = connection.getresponse()
        return answer.status, answer.read()

    yield runs, ask
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_page_grows_with_its_runs(served):
    runs, ask = served
    status, page = ask("/")
    assert status == 200 and b"Waiting for the first evaluation" in page
    run = write_run(runs / "a", seeds=(0,), finished=False)
    rows = [json.dumps(row) + "\n" for row in rows_of((0,))]
    (run / "metrics.jsonl").write_text("".join(rows[:2]))
    first = json.loads(ask("/data.json")[1])
    assert first["live"] and first["groups"][0]["steps"] == [20_000, 20_000]
    assert ask(f"/data.json?seen={first['stamp']}") == (204, b"")
    with open(run / "metrics.jsonl", "a") as file:
        file.writelines(rows[2:])
    status, body = ask(f"/data.json?seen={first['stamp']}")
    second = json.loads(body)
    assert status == 200 and second["groups"][0]["steps"] == [60_000, 60_000]
    write_run(runs / "b", seeds=(1,))
    assert json.loads(ask("/data.json")[1])["seeds"] == 2


def test_a_killed_run_is_no_longer_shown_as_running(tmp_path):
    run = write_run(tmp_path / "a", finished=False)
    live = Live([tmp_path])
    with RunFolder(run).held():
        running = live.page()
        assert running["problems"][0]["what"].startswith("running: ")
        assert live.page()["stamp"] == running["stamp"]
    stopped = live.page()
    assert stopped["stamp"] != running["stamp"]
    assert stopped["problems"][0]["what"].startswith("unfinished: ")


def test_the_age_of_an_unfinished_run_grows_on_the_page(tmp_path):
    runs = [write_run(tmp_path / name, finished=name == "b") for name in ("a", "b")]
    live = Live([tmp_path])
    first = live.page()
    assert first["problems"][0]["what"].endswith("last written just now")
    for run, minutes in zip(runs, (5, 7), strict=True):
        written = time.time() - 60 * minutes
        os.utime(run / "metrics.jsonl", (written, written))
    live.page()
    stamps = []
    for _ in range(2):
        later = time.time() + 180
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time", lambda later=later: later)
            page = live.page()
        stamps.append(page["stamp"])
        assert page["problems"][0]["what"].endswith("last written 8 minutes ago")
    assert stamps[0] == stamps[1]


def test_a_run_that_breaks_while_watched_is_named(served):
    runs, ask = served
    run = write_run(runs / "a")
    (run / "metrics.jsonl").write_text("no JSON\n")
    told = json.loads(ask("/data.json")[1])
    assert told["groups"] == [] and "line 1 of" in told["problems"][0]["what"]


def test_films_come_by_number_and_nothing_else_does(served):
    runs, ask = served
    (write_run(runs / "a") / "film.mp4").write_bytes(b"film")
    assert json.loads(ask("/data.json")[1])["films"][0]["src"] == "film/0"
    assert ask("/film/0") == (200, b"film")
    for path in ("/film/1", "/film/-1", "/film/../config.json", "/a/config.json", "/film/x"):
        assert ask(path)[0] == 404, path


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("bytes=2-4", range(2, 5)),
        ("bytes=2-", range(2, 10)),
        ("bytes=0-99", range(10)),
        ("bytes=10-", None),
        ("bytes=4-2", None),
        ("bytes=-3", None),
        ("pages=1-2", None),
        (None, None),
    ],
)
def test_a_player_may_jump_in_a_film(asked, wanted):
    assert byte_range(asked, 10) == wanted


def test_a_part_of_a_film_is_told_as_such(served):
    runs, ask = served
    (write_run(runs / "a") / "film.mp4").write_bytes(b"0123456789")
    ask("/data.json")
    assert ask("/film/0", headers={"Range": "bytes=3-5"}) == (206, b"345")


def test_only_this_machine_under_its_own_name_is_answered(served):
    _, ask = served
    assert HOST == "127.0.0.1"
    assert ask("/", "localhost:80")[0] == 200
    for own in ("127.0.0.1", "localhost"):  # on port 80 a browser names none
        assert ask("/", own)[0] == 200
    for other in (
        "127.0.0.1.evil.example",
        "localhost@evil.example:80",
        "localhost:80:80",
        "evil.example:8642",
    ):
        assert ask("/", other)[0] == 403, other
    assert ask("/", "evil.example:80")[0] == 403
    assert ask("/data.json", "evil.example")[0] == 403


def test_a_port_that_is_taken_is_told(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    with make_server(Live([tmp_path]), 0) as server:
        taken = server.server_address[1]
        with pytest.raises(HomingError, match=f"port {taken} is taken.*--port"):
            make_server(Live([tmp_path]), taken)
        with pytest.raises(SystemExit) as stop:
            main.main(["watch", str(tmp_path), "--port", str(taken), "--no-browser"])
    assert stop.value.code == 2 and "is taken" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="no port 70000"):
        make_server(Live([tmp_path]), 70_000)
    with pytest.raises(SystemExit):
        main.main(["watch", str(tmp_path / "nowhere"), "--no-browser"])
    assert "does not exist" in capsys.readouterr().err


def test_a_file_that_is_no_run_is_not_watched(tmp_path):
    from homing.errors import ConfigError
    from homing.report.server import watch_runs

    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no run"):
        watch_runs([tmp_path / "notes.txt"], port=0, browser=False)
