"""The command line, as a person would use it."""

import json
import logging
import re

import pytest

from homing.cli import main
from homing.envs import env_ids
from homing.errors import HomingError
from homing.system import doctor, hardware


def run(capsys, *args):
    """Exit code, standard output and standard error of a command."""
    code = 0
    try:
        main.main(list(args))
    except SystemExit as stop:
        code = int(stop.code or 0)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_envs_as_a_table_and_as_json(capsys):
    code, out, _ = run(capsys, "envs")
    assert code == 0
    assert all(id in out for id in env_ids())
    code, out, _ = run(capsys, "envs", "--json")
    rows = {row["id"]: row for row in json.loads(out)}
    assert list(rows) == list(env_ids())
    assert rows["ant"]["state_dim"] == 29 and rows["ant"]["physics"] == "spring"
    assert rows["ant_soccer"]["aliases"] == ["ant_ball"]
    assert len(rows["humanoid"]["state_names"]) == 246


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("render", "antt", "--out", "x.png"), "did you mean 'ant'"),
        (("render", "ant", "--out", "x.bmp"), ".png, .gif, .mp4"),
        (("render", "ant", "--out", "x.png", "--steps", "0"), "steps must be at least 1"),
        (("render", "ant", "--out", "x.png", "--env-option", "task.within"), "NAME=VALUE"),
        (("render", "ant", "--out", "x.png", "--env-option", "task.wthin=1"), "'within'"),
        (("bench", "physics", "--env", "mars"), "unknown environment"),
        (("bench", "physics", "--num-envs", "0"), "num_envs must be at least 1"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(capsys, tmp_path, monkeypatch, args, part):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *args)
    assert code == 2
    assert part in err and len(err.strip().splitlines()) == 1 and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_bench_physics_tells_what_it_measured_with(capsys, tmp_path):
    file = tmp_path / "deep" / "physics.json"
    code, out, _ = run(
        capsys, "bench", "physics", "--env", "point_u_maze", "--num-envs", "4", "--steps", "4",
        "--repeats", "1", "--json", "--out", str(file),
    )  # fmt: skip
    assert code == 0
    (row,) = json.loads(out)
    assert row == json.loads(file.read_text())[0]
    assert row["steps_per_second"] > 0 and row["bytes_per_env"] > 0 and row["compile_seconds"] > 0
    assert row["platform"] == "cpu" and row["versions"]["jax"] and row["date"]


def test_doctor_finds_all_well_here(capsys):
    code, out, _ = run(capsys, "doctor", "--json")
    findings = {f["what"]: f for f in json.loads(out)}
    assert {"versions", "JAX devices", "GPU", "free memory"} <= set(findings)
    assert code == (0 if all(not f["fix"] for f in findings.values()) else 1)


FRACTIONS = {"XLA_CLIENT_MEM_FRACTION": "0.2", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.2"}


@pytest.mark.parametrize(
    ("variables", "plugin", "fix"),
    [
        ({}, False, "[cuda]"),
        ({}, True, "jax.devices('cuda')"),
        ({"JAX_PLATFORMS": "cpu"}, True, "JAX_PLATFORMS is cpu"),
        (FRACTIONS, True, "unset the latter"),
    ],
)
def test_doctor_names_the_fix_for_a_gpu_that_jax_does_not_see(monkeypatch, capsys, variables, plugin, fix):
    monkeypatch.setattr(hardware, "machine_gpus", lambda: ["GPU 0: NVIDIA H200 (UUID: x)"])
    monkeypatch.setattr(doctor, "PLUGINS", ("jax",) if plugin else ("no_such_plugin",))
    for name in ("JAX_PLATFORMS", *FRACTIONS):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, out, _ = run(capsys, "doctor")
    assert code == 1
    assert "does not see" in out and fix in out
    with pytest.raises(HomingError, match=re.escape(fix) + ".*--cpu"):
        doctor.require_seen_gpu()


def test_alone_it_says_what_to_do_first(capsys):
    code, out, _ = run(capsys)
    assert code == 0
    commands = re.findall(r"homing ([a-z]+) ", out)
    assert {"quickstart", "play", "train"} <= set(commands) <= set(main.app._subcommands)


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (("help",), "quickstart"),
        (("help", "report"), "--figures"),
        (("study",), "plan"),
        (("bench",), "physics"),
        (("data",), "export"),
    ],
)
def test_help_is_given_wherever_it_is_asked_for(capsys, args, part):
    code, out, _ = run(capsys, *args)
    assert code == 0 and out.startswith("usage: homing") and part in out


def test_version(capsys):
    assert run(capsys, "--version")[1].startswith("homing 0.")


def test_warnings_are_plain_lines_whatever_libraries_set_up(monkeypatch, capsys):
    log, root = logging.getLogger("homing"), logging.getLogger()
    monkeypatch.setattr(log, "handlers", [])
    monkeypatch.setattr(log, "propagate", True)
    noisy = logging.StreamHandler()
    noisy.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    monkeypatch.setattr(root, "handlers", [noisy])
    main.warn_plainly()
    logging.getLogger("homing.envs.goal_space").warning("moved")
    assert capsys.readouterr().err == "moved\n"
