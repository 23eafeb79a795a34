"""The commands that train: what they accept, what they refuse, and in which words."""

import ast
import dataclasses
import inspect
import itertools
import json
import re
import shlex
import textwrap
import typing

import jax
import pytest
from cli_helpers import command
from run_helpers import no_key_check, probe_envs  # noqa: F401

from homing.agents import AGENTS
from homing.bench.cost import roofline
from homing.cli.train import train_arguments
from homing.config.offpolicy import TrainConfig
from homing.config.parsing import parse_count, parse_ratio
from homing.system import doctor, hardware
from homing.training.device import choose_device

SMALL = shlex.split(
    "--steps 400 --num-envs 8 --unroll-length 10 --batch-size 32 --replay-size 50 --prefill-steps 20 "
    "--evaluations 2 --eval-envs 8 --critic-net.width 8 --actor-net.width 8 --tensorboard off"
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("50M", 50_000_000),
        ("1e6", 1_000_000),
        ("200k", 200_000),
        ("12_000", 12_000),
        ("1.5B", 1_500_000_000),
        ("12,000", 12_000),
        ("1,500,000", 1_500_000),
        ("1,500k", 1_500_000),
        ("-1,500", -1_500),
    ],
)
def test_counts_are_written_as_people_do(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize("text", ["fifty", "1.5", "", "k", "nan", "inf", "1e400"])
def test_what_is_no_count_is_refused(text):
    with pytest.raises(ValueError, match="not a whole number"):
        parse_count(text)


@pytest.mark.parametrize(
    "text",
    ["1,5M", "1,5", "0,500M", "1,50,000", "1500,000", "1,5000", ",500", "500,", "1,,500", "1.5,000", ","],
)
def test_a_comma_stands_between_groups_of_three_digits(text):
    with pytest.raises(ValueError, match=r"not a whole number: a comma .* write 1\.5M"):
        parse_count(text)


def test_ratios_may_be_fractions():
    assert parse_ratio("1/16") == 0.0625
    assert parse_ratio("3e-4") == 3e-4
    with pytest.raises(ValueError, match="not a number"):
        parse_ratio("1/0")


def documented(kind):
    """Fields of a dataclass and the docstrings below them; a nested dataclass has its fields under its name."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    hints = typing.get_type_hints(kind)
    for field, text in itertools.zip_longest(tree.body, tree.body[1:]):
        if not isinstance(field, ast.AnnAssign):
            continue
        assert isinstance(text, ast.Expr), f"{kind.__name__}.{field.target.id} has no docstring"
        yield field.target.id, text.value.value
        if dataclasses.is_dataclass(hints[field.target.id]):
            for name, inner in documented(hints[field.target.id]):
                yield f"{field.target.id}.{name}", inner


@pytest.mark.parametrize("agent", AGENTS)
def test_every_setting_is_a_flag_with_help(capsys, monkeypatch, agent):
    monkeypatch.setenv("COLUMNS", "80")  # one column: a text is not torn by its neighbour
    code, out, _ = command(capsys, "train", agent, "--help")
    assert code == 0
    solid = lambda text: re.sub(r"[\s│]", "", text).lower()
    flags, shown = " ".join(out.split()), solid(out)
    fields = train_arguments(agent, "paper").__dataclass_fields__
    for part in ("train", "settings", "save"):
        for name, text in documented(type(fields[part].default)):
            flag = f"--{name.replace('_', '-')}"
            assert f"{flag} " in flags or f"{flag}," in flags or f"{flag}." in flags, name
            assert solid(text) in shown, name


def test_a_preset_gives_defaults_that_flags_change(capsys):
    code, out, _ = command(
        capsys, "train", "crl", "reacher", "--preset", "quickstart", "--num-envs", "32", "--dry-run"
    )
    assert code == 0
    assert "32 envs × 50 steps" in out
    assert "are free" in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("crl", "reachr"), "did you mean 'reacher'"),
        (("clr", "reacher"), "did you mean 'crl'"),
        (("crl", "reacher", "--preset", "papre"), "did you mean 'paper'"),
        (("crl", "reacher", "--energy", "l3"), "known: cosine, dot, l1, l2"),
        (("crl", "reacher", "--replay-size", "5"), "cannot hold one unroll"),
        (("crl", "reacher", "--eval-env", "ant"), "cannot act in ant"),
        (("crl", "reacher", "--seed-list", "3;4"), "for instance 3,4"),
        (("crl", "reacher", "--seeds", "0"), "at least one seed"),
        (("crl", "reacher", "--env-option", "task.withn=0.3"), "within"),
        (("crl", "reacher", "--seeds", "100k"), "it fits with"),
        (("crl", "reacher", "--steps", "many"), "not a whole number"),
        (("crl", "reacher", "--wandb", "online"), 'pip install "homing[wandb]"'),
    ],
)
def test_what_cannot_work_is_one_message_and_leaves_nothing(capsys, tmp_path, monkeypatch, args, words):
    monkeypatch.setattr("homing.runs.loggers._installed", lambda module: False)
    out = tmp_path / "run"
    code, _, err = command(capsys, "train", *args, "--out", out)
    assert code == 2
    assert words in " ".join(err.split())
    assert not out.exists()


def test_a_gpu_that_jax_does_not_see_is_an_error_unless_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(hardware, "machine_gpus", lambda: ["GPU 0: Big One (UUID: x)"])
    with jax.default_device(jax.devices("cpu")[0]):
        assert doctor.unseen_gpus()
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", None)
    try:
        code, _, err = command(capsys, "train", "crl", "reacher", "--dry-run")
        assert code == 2
        assert "Big One" in err
        assert "--cpu" in err
        choose_device(cpu=True)
    finally:
        jax.config.update("jax_platforms", before)


@pytest.mark.usefixtures("probe_envs")
def test_train_resume_and_eval_in_a_row(capsys, tmp_path):
    run = tmp_path / "run"
    preset = ("--preset", "quickstart", "--seed-list", "5,6")
    code, out, err = command(capsys, "train", "crl", "walk", *preset, *SMALL, "--out", run)
    assert code == 0, err
    assert "success_any" in out
    assert f"homing render {run}" in out.replace("\n", "")
    code, out, _ = command(capsys, "resume", run)
    assert code == 0
    assert "is finished" in out
    code, out, _ = command(capsys, "eval", run, "--episodes", "4", "--json")
    told = json.loads(out)
    assert [row["seed"] for row in told["seeds"]] == [5, 6]
    assert told["episodes"] == 4
    code, out, _ = command(capsys, "eval", run, "--episodes", "4", "--explore", "--json")
    noisy = json.loads(out)
    assert (noisy["explore"], told["explore"]) == (True, False)
    assert noisy["seeds"] != told["seeds"]
    code, out, _ = command(capsys, "eval", run)
    assert "8 episodes" in out
    code, out, _ = command(capsys, "eval", run, "--chain", "3", "--chain-steps", "5", "--json")
    told = json.loads(out)
    assert (told["chain"], told["chain_steps"]) == (3, 5)
    assert all({"reached", "reached_1", "reached_2", "reached_3"} <= set(row) for row in told["seeds"])
    code, out, _ = command(capsys, "eval", run, "--chain", "2")
    assert "8 chains of 2 goals" in out
    assert "reached_1: fraction of chains" in out
    code, _, err = command(capsys, "train", "crl", "walk", *preset, *SMALL, "--out", run)
    assert code == 2
    assert "homing resume" in err


@pytest.mark.parametrize("given", [("eval", "reacher"), ("export", "reacher", "--out", "x.safetensors")])
def test_a_time_for_each_goal_needs_a_chain(given, capsys):
    code, _, err = command(capsys, *given, "--chain-steps", "5")
    assert code == 2 and "give --chain" in err
    code, _, err = command(capsys, *given, "--chain", "0")
    assert code == 2 and "chain must be" in err


def test_commands_on_what_is_no_run(capsys, tmp_path):
    for name in ("resume", "eval"):
        code, _, err = command(capsys, name, tmp_path)
        assert code == 2
        assert "holds no run" in err
    code, _, err = command(capsys, "render", tmp_path, "--out", tmp_path / "a.png")
    assert code == 2
    assert "holds no run" in err


@pytest.mark.usefixtures("probe_envs")
def test_bench_train_measures_and_writes(capsys, tmp_path, monkeypatch):
    from homing.config import presets

    monkeypatch.setitem(roofline.SIZES, "cpu", (64, 2**16))
    agent = presets.preset("crl", "quickstart").agent
    config = TrainConfig(
        total_steps=400,
        num_envs=8,
        unroll_length=10,
        batch_size=32,
        replay_size=50,
        prefill_steps=20,
        evaluations=2,
        eval_envs=8,
    )
    monkeypatch.setitem(presets.PRESETS["crl"], "tiny", presets.Preset("", config, agent))
    code, out, err = command(
        capsys,
        *shlex.split("bench train --env walk --seeds 2 --preset tiny --seconds 0.2 --json"),
        "--out",
        tmp_path / "b" / "b.json",
    )
    assert code == 0, err
    (row,) = json.loads(out)
    assert json.loads((tmp_path / "b" / "b.json").read_text()) == [row]
    assert row["seeds"] == 2
    for name in ("env_steps_per_second", "updates_per_second", "seconds_per_evaluation", "peak_bytes"):
        assert row[name] > 0
    assert row["update_seconds"] == pytest.approx(row["seconds_per_iteration"] - row["collect_seconds"])
    assert row["first_step_seconds"] > row["set_up_seconds"]
    parts = row["breakdown_seconds"]
    assert list(parts) == ["collect", "sample", "update", "other"]
    assert sum(parts.values()) == pytest.approx(row["seconds_per_iteration"])
    assert parts["collect"] == row["collect_seconds"]
    assert parts["sample"] > 0 and parts["update"] > 0
    learner = row["learner"]
    assert parts["update"] == pytest.approx(
        1e-6 * learner["microseconds_per_update"] * row["updates_per_iteration"]
    )
    assert set(learner["roofline"]) >= {"float32_tflops_per_second", "bytes_per_second"}


def test_each_agent_has_its_own_flags(capsys):
    for agent, flag in (("sac", "--her-strategy"), ("td3", "--exploration-noise"), ("ppo", "--minibatches")):
        code, out, _ = command(capsys, "train", agent, "--help")
        assert code == 0
        assert flag in out
        assert "--normalise-observations" in out
    assert "--replay-size" not in out  # PPO keeps nothing


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("sca", "reacher"), "did you mean 'sac'"),
        (("ppo", "reacher", "--num-envs", "100"), "num_envs 96"),
        (("sac", "reacher", "--her", "--her-ratio", "2"), "her_ratio must be from 0 to 1, not 2"),
        (
            ("sac", "reacher", "--her", "--reward", "dense", "--replay-dtype", "float16"),
            "--replay-dtype float32",
        ),
        (("td3", "reacher", "--delay", "0"), "at least 1"),
        (("ppo", "reacher", "--her"), "--her"),
    ],
)
def test_what_a_baseline_cannot_do_is_one_message(capsys, tmp_path, args, words):
    out = tmp_path / "run"
    code, _, err = command(capsys, "train", *args, "--out", out)
    assert code == 2
    assert words in " ".join(err.split())
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("probe_envs")
@pytest.mark.parametrize("agent", ["sac", "td3", "ppo"])
def test_bench_train_measures_every_agent(capsys, monkeypatch, agent):
    from homing.config import presets

    chosen = presets.preset(agent, "quickstart")
    tiny = {"total_steps": 4000, "num_envs": 8, "unroll_length": 10, "evaluations": 2, "eval_envs": 8}
    if agent != "ppo":
        tiny |= {"batch_size": 32, "replay_size": 50, "prefill_steps": 20}
    config = dataclasses.replace(chosen.train, **tiny)
    monkeypatch.setitem(presets.PRESETS[agent], "tiny", presets.Preset("", config, chosen.agent))
    her = ["--her"] if agent != "ppo" else []
    less = ["--no-evaluation", "--no-breakdown"] if agent == "td3" else []
    flags = shlex.split(f"--agent {agent} --env walk --seeds 2 --preset tiny --seconds 0.2 --json")
    code, out, err = command(capsys, "bench", "train", *flags, *her, *less)
    assert code == 0, err
    (row,) = json.loads(out)
    assert row["agent"] == agent
    assert row.get("her", False) == bool(her)
    assert row["env_steps_per_second"] > 0
    assert ("collect_seconds" in row) == (agent != "ppo")
    assert set(row["compile_seconds"]) == {"init", "epoch"} | (set() if less else {"evaluate"})
    for name in ("seconds_per_evaluation", "breakdown_seconds"):
        assert (name in row) == (not less)
