"""Damaged and crafted files: whatever is in them, the answer is one message that names the file and a way out."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import threading
import warnings

import jax
import numpy as np
import pytest
from file_attacks import (
    JUNK,
    OBSTACLES,
    TEXTS,
    altered,
    crafted,
    damaged,
    joined,
    places,
    replace,
    split,
    without,
)
from probes import walk
from report_helpers import SESSION, rows_of, write_run
from run_helpers import probe_config

import homing
from homing.agents import make_agent
from homing.cli.main import main
from homing.config import run as run_settings
from homing.errors import HomingError
from homing.policies.card import check_card
from homing.policies.card_page import markdown
from homing.policies.store import Spaces, find_policies, read_policies
from homing.report.build import write_report
from homing.report.live import Live
from homing.report.reading import find_runs, read_runs
from homing.report.server import HOST, make_server
from homing.runs.folder import RunFolder
from homing.runs.policy_files import load_policy, named_arrays, save_policy
from homing.runs.strict_json import parse_json
from homing.runs.tensors import write_tensors
from homing.training import build as run_build


@pytest.fixture(scope="module", autouse=True)
def probe_everywhere():
    """Every environment is the walk; nothing is compiled but small networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_settings, "resolve", lambda id: id)
        patch.setattr(run_build, "make", lambda id, num_envs=1, **_: walk(num_envs))
        yield


@pytest.fixture(scope="module")
def agent(probe_everywhere):
    return make_agent(probe_config().settings, Spaces("walk", 2, 2, 2))


@pytest.fixture(scope="module")
def shapes(agent):
    return jax.eval_shape(agent.init, jax.random.key(0))


@pytest.fixture(scope="module")
def learner(agent):
    with jax.debug_key_reuse(False):
        return jax.vmap(agent.init)(jax.random.split(jax.random.key(0), 2))


@pytest.fixture(scope="module")
def made(tmp_path_factory, learner):
    """The folder of a run of two seeds, as training leaves it, and its export."""
    home = tmp_path_factory.mktemp("made")
    folder = RunFolder(home / "run")
    with folder.held():
        folder.write_config(probe_config())
        folder.add_session(SESSION)
        folder.append(rows_of((3, 4), points=1))
        folder.write_summary({"status": "finished", "step": 60_000})
    save_policy(folder.path / "policies" / "last.safetensors", learner, 24)
    return folder.path, homing.export(folder.path, home / "walk.safetensors", seed="all")


@pytest.fixture(scope="module")
def content(made):
    """What the exported file says of its arrays."""
    return json.loads(split(made[1].read_bytes())[0]["__metadata__"]["homing"])["content"]


def refused(read, path):
    """The one message of a refusal, which names the path."""
    with pytest.raises(HomingError) as caught:
        read(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message and len(message) < 1000, message
    assert ";" in message or ":" in message  # what is wrong, and the way out
    return message


def harmless(read, path):
    """Refused with one message, or read like a sound file."""
    try:
        return read(path)
    except HomingError:
        refused(read, path)
        return None


# Policy files.


def load_all(path):
    """A policy file, and its card as a page."""
    policies = read_policies(path)
    markdown("x", policies.card, 1)
    return policies


def test_damaged_policy_files_are_refused(made, tmp_path):
    sound, path = load_all(made[1]), tmp_path / "p.safetensors"
    for name, raw in damaged(made[1].read_bytes()):
        path.write_bytes(raw)
        found = harmless(load_all, path)
        if found is not None:  # a digit that no number depends on
            assert name.startswith("bit") and found.card == sound.card, name
            jax.tree.map(np.testing.assert_array_equal, found.learner, sound.learner)


def test_crafted_headers_are_refused(made, tmp_path):
    path = tmp_path / "p.safetensors"
    for name, raw in crafted(made[1].read_bytes()):
        path.write_bytes(raw)
        print(name, "->", refused(load_all, path))


def test_damaged_policies_of_a_run_are_refused(made, tmp_path, shapes):
    raw = (made[0] / "policies" / "last.safetensors").read_bytes()
    path = tmp_path / "last.safetensors"
    for name, bad in [*damaged(raw), *crafted(raw)]:
        path.write_bytes(bad)
        found = harmless(lambda p: load_policy(p, shapes, 2), path)
        assert found is None or (name.startswith("bit") and found[1] == 24), name


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_something_else_in_the_place_of_a_policy_is_refused(tmp_path, obstacle, shapes):
    path = tmp_path / "p.safetensors"
    OBSTACLES[obstacle](path)
    with pytest.raises(HomingError):  # quickly: it neither blocks nor fills the memory
        find_policies(path)
    with pytest.raises(HomingError):
        load_policy(path, shapes, 2)


def test_any_text_in_the_place_of_a_policy_is_refused(tmp_path, shapes):
    path = tmp_path / "p.safetensors"
    for raw in TEXTS.values():
        for bad in (raw, joined(raw, b"")):
            path.write_bytes(bad)
            refused(load_all, path)
            refused(lambda p: load_policy(p, shapes, 2), path)


NEEDED = ("agent", "settings", "spaces", "choice", "seeds", "iteration", "card")


@pytest.mark.parametrize("name", NEEDED)
def test_each_part_of_a_file_is_needed_and_checked(tmp_path, learner, content, name):
    arrays, path = named_arrays(learner.replace(opt_state=())), tmp_path / "p.safetensors"
    write_tensors(path, arrays, without(content, (name,)))
    assert name in refused(load_all, path)
    for junk in JUNK:
        write_tensors(path, arrays, altered(content, (name,), junk))
        found = harmless(load_all, path)
        assert found is None or (name, junk) == ("iteration", 10**15) or isinstance(junk, dict), junk


@pytest.mark.parametrize("part", ["settings", "spaces", "choice"])
def test_no_value_in_a_file_is_trusted(tmp_path, learner, content, part):
    """Every value of every part is replaced by something else; most are refused, none is a surprise."""
    arrays, path, count = named_arrays(learner.replace(opt_state=())), tmp_path / "p.safetensors", 0
    for place in places(content[part]):
        for junk in JUNK:
            write_tensors(path, arrays, altered(content, (part, *place), junk))
            harmless(load_all, path)
            count += 1
    assert count > 25


@pytest.mark.parametrize("junk", JUNK)
def test_no_value_of_a_card_is_trusted(content, junk):
    """Each is refused, or the card can still be shown."""
    for place in places(content["card"]):
        for card in (altered(content["card"], place, junk), without(content["card"], place)):
            with contextlib.suppress(HomingError):
                assert "## x" in markdown("x", check_card(card), 1)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("settings", "critic_net", "depth"), 10**9, "depth"),
        (("settings", "critic_net", "depth"), 200, "layers"),
        (("settings", "actor_net", "width"), 10**12, "width"),
        (("settings", "actor_net", "width"), 60_000, "parameters"),
        (("settings", "representation_dim"), 9, "is [2, "),
        (("settings", "chunk"), 3, "is [2, "),
        (("spaces", "state_dim"), 30, "is [2, "),
        (("spaces", "goal_dim"), 10**12, "parameters"),
        (("spaces", "action_dim"), 0, "parameters"),
        (("choice", "eval_envs"), 10**12, "eval_envs"),
        (("choice", "episode_length"), 0, "episode_length"),
        (("seeds",), [3, 3], "twice"),
        (("seeds",), [3], "not [1"),
        (("seeds",), [-3, 4], "seeds"),
        (("agent",), "crk", "crl"),
        (("agent",), "td3", "does not fit"),
        (("card", "scores"), [{"seed": 3, "success_any": "high"}], "scores"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, learner, content, place, value, words):
    path = tmp_path / "p.safetensors"
    write_tensors(path, named_arrays(learner.replace(opt_state=())), altered(content, place, value))
    assert words in refused(load_all, path)


def test_a_file_has_no_module_imported(tmp_path, learner, content, monkeypatch):
    """Nor those that registered its agent: the message says how a person can."""
    (tmp_path / "planted.py").write_text("raise SystemExit('executed')")
    monkeypatch.chdir(tmp_path)
    content = altered(content, ("card", "config", "imports"), ["planted"])
    path, arrays = tmp_path / "p.safetensors", named_arrays(learner.replace(opt_state=()))
    write_tensors(path, arrays, content)
    assert load_all(path).agent_name == "crl"
    write_tensors(path, arrays, {**content, "agent": "foreign"})
    assert "--import planted" in refused(load_all, path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(made, tmp_path, learner, content, value):
    broken = jax.tree.map(lambda x: x.at[:].set(value), learner.replace(opt_state=()))
    path = tmp_path / "p.safetensors"
    write_tensors(path, named_arrays(broken), content)
    assert "NaN or an infinity" in refused(load_all, path)


@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_a_run_whose_seeds_have_diverged_scores_the_others_or_says_so(made, tmp_path, learner, seeds, capsys):
    run = copied(made[0], tmp_path / "run")
    broken = jax.tree.map(lambda x: x.at[np.array(seeds)].set(np.nan), learner.replace(opt_state=()))
    save_policy(run / "policies" / "last.safetensors", broken, 24)
    with pytest.raises(HomingError, match=r"seed 3 of .* has diverged"):
        homing.load(run, seed=3)
    if seeds == [0]:
        with jax.debug_key_reuse(False):
            main(["eval", str(run), "--cpu", "--episodes", "2"])
        said = capsys.readouterr().out
        assert "diverged: seeds 3" in said and "success_any: fraction of episodes" in said
        return
    with pytest.raises(SystemExit) as end:
        main(["eval", str(run), "--cpu", "--episodes", "2"])
    assert end.value.code == 2 and "every seed" in capsys.readouterr().err


def copied(run, to):
    return shutil.copytree(run, to)


# A run's folder.

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
        run = copied(made[0], tmp_path / f"run{i}")
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
    run = copied(made[0], tmp_path / "run")
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
