"""Measurements: numbers that agree with each other, and what is refused before anything is measured."""

import dataclasses
import json
import shlex
from types import SimpleNamespace

import jax
import pytest
from cli_helpers import command
from run_helpers import NET, TRAIN, no_key_check, probe_envs  # noqa: F401

from homing.bench import breakdown as bench_parts
from homing.bench import case as bench_case
from homing.bench import learner as bench_learner
from homing.bench import physics as bench_physics
from homing.bench import train as bench_train
from homing.bench.cost import roofline
from homing.bench.random_data import random_inputs
from homing.compile import programs, xla
from homing.config import presets
from homing.envs.registry import ENVIRONMENTS
from homing.errors import ConfigError
from homing.types import UpdateContext

CEILINGS = {"float32_tflops_per_second": 2.0, "bfloat16_tflops_per_second": 4.0, "bytes_per_second": 1e10}


@pytest.fixture
def tiny(monkeypatch):
    """A preset of tiny networks and few rows, and ceilings that cost no time."""
    agent = dataclasses.replace(
        presets.preset("crl", "quickstart").agent, critic_net=NET, actor_net=NET, representation_dim=8
    )
    monkeypatch.setitem(presets.PRESETS["crl"], "tiny", presets.Preset("", TRAIN, agent))
    monkeypatch.setattr(roofline, "peaks", lambda: CEILINGS)


def test_ceilings_are_measured(monkeypatch):
    monkeypatch.setitem(roofline.SIZES, "cpu", (64, 2**16))
    roofline.peaks.cache_clear()
    try:
        found = roofline.peaks(0.01)
        assert set(found) == set(CEILINGS)
        assert all(value > 0 for value in found.values())
        assert roofline.peaks(0.01) is found
    finally:
        roofline.peaks.cache_clear()


@pytest.mark.parametrize(
    ("each", "calls"), [(0.02, [1, 1, 10, 10, 10, 10, 10]), (0.4, [1, 1, 1, 1]), (3.0, [1, 1])]
)
def test_a_measurement_keeps_to_its_time(monkeypatch, each, calls):
    now, counts = [0.0], []

    def run(count):
        counts.append(count)
        now[0] += each * count

    monkeypatch.setattr(roofline.time, "perf_counter", lambda: now[0])
    seconds, rounds = roofline.timed(run, 1.0)
    assert counts == calls
    assert [seconds, *rounds] == pytest.approx([each] * (1 + len(rounds)))


@pytest.mark.usefixtures("probe_envs", "tiny")
def test_on_a_cpu_one_seed_is_measured(capsys):
    code, out, err = command(
        capsys, *shlex.split("bench learner --env walk --preset tiny --seconds 0.1 --json")
    )
    assert code == 0, err
    assert [row["seeds"] for row in json.loads(out)] == [1]


@pytest.mark.usefixtures("probe_envs", "tiny")
def test_bench_learner_tells_numbers_that_agree(capsys, tmp_path):
    flags = "bench learner --env walk --seeds 2 --preset tiny --batch-size 16 --seconds 0.1 --json"
    code, out, err = command(capsys, *shlex.split(flags), "--out", tmp_path / "deep" / "b.json")
    assert code == 0, err
    (row,) = json.loads(out)
    assert json.loads((tmp_path / "deep" / "b.json").read_text()) == [row]
    assert row["seeds"] == 2 and row["batch_size"] == 16 and row["net_dtype"] == "float32"
    rate = row["updates_per_second"]
    assert rate == pytest.approx(2e6 / row["microseconds_per_update"])
    assert row["env_steps_per_second_at_most"] == pytest.approx(30 * rate, rel=1e-3)
    assert row["tflops_per_second"] == pytest.approx(1e-12 * rate * row["flops_per_update"])
    assert row["bytes_per_second"] == pytest.approx(rate * row["bytes_per_update"])
    assert row["flops_fraction"] == pytest.approx(row["tflops_per_second"] / 2.0)
    assert row["launches_per_update"] > 10
    # φ (4 → 16 → 16 → 8), ψ (2 → … → 8) and the policy (4 → … → 4), filled up alike, and α.
    layers = lambda inputs, outputs: 17 * 16 + (inputs + 1) * 16 + 17 * outputs
    assert row["parameters"] == 3 * layers(8, 8) + 1
    assert "updates/s" in bench_learner.line(row) and "GB/s" in bench_learner.line(row)


@pytest.mark.usefixtures("probe_envs")
@pytest.mark.parametrize("agent", ["crl", "srl", "sac", "td3", "ppo"])
def test_random_inputs_are_those_that_an_agent_learns_from(agent):
    """Only shapes are traced: the whole benchmark of every agent is a slow test."""
    case = bench_case.make_case("walk", 1, agent, "quickstart", num_envs=32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    learner, inputs = jax.eval_shape(lambda key: (case.agent.init(key), random_inputs(case, key)), key)
    if case.on_policy:
        after = jax.eval_shape(lambda *given: case.agent.learn(*given)[0], learner, *inputs)
    else:
        first = jax.eval_shape(lambda tree: jax.tree.map(lambda x: x[0], tree), inputs)
        after = jax.eval_shape(lambda *given: case.agent.update(*given, UpdateContext())[0], learner, *first)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(
        lambda x: (x.shape, x.dtype), learner
    )


@pytest.mark.slow
@pytest.mark.usefixtures("probe_envs")
@pytest.mark.parametrize("agent", ["srl", "sac", "td3", "ppo"])
def test_bench_learner_measures_every_agent(monkeypatch, agent):
    monkeypatch.setattr(roofline, "peaks", lambda: CEILINGS)
    small = {"num_envs": 8, "unroll_length": 10}
    if agent != "ppo":
        small |= {"batch_size": 16, "replay_size": 50, "prefill_steps": 20}
    case = bench_case.make_case("walk", 2, agent, "quickstart", {"dtype": "bfloat16"}, **small)
    row = bench_learner.bench(case, 0.1)
    assert row["net_dtype"] == "bfloat16"
    assert row["updates_per_second"] > 0 and row["parameters"] > 0 and row["flops_per_update"] > 0


@pytest.mark.usefixtures("probe_envs")
def test_one_command_measures_several_agents_beside_their_plain_programs(capsys, monkeypatch):
    monkeypatch.setattr(bench_learner, "compiled", lambda case: None)
    monkeypatch.setattr(bench_learner, "line", lambda row: row["agent"])

    def bench(case, *_, **__):
        rate = 20.0 if xla._plain.get() else 30.0
        return {"agent": case.config.agent, "updates_per_second": rate, "net_dtype": case.net_dtype}

    monkeypatch.setattr(bench_learner, "bench", bench)
    flags = "bench learner --env walk --seeds 1 --preset quickstart --compare --cpu --agent"
    code, out, err = command(capsys, *shlex.split(flags), "crl", "srl", "sac", "td3")
    assert code == 0, err
    assert out.splitlines()[::2] == ["crl", "srl", "sac", "td3"]
    assert set(out.splitlines()[1::2]) == {"    1.50 times the plain program"}


@pytest.mark.usefixtures("probe_envs")
def test_a_round_has_the_batches_that_training_prepares_at_once():
    case = bench_case.make_case("walk", 1, "srl", "quickstart", prefetch_bytes=2**20)
    few = case.plan.prefetch_updates
    assert 1 <= few < case.plan.updates_per_iteration
    assert few * case.plan.sizes.batch_bytes <= 2**20 < 4 * few * case.plan.sizes.batch_bytes


@pytest.mark.usefixtures("probe_envs", "tiny")
@pytest.mark.parametrize(
    ("what", "rate"), [("train", "env_steps_per_second"), ("learner", "updates_per_second")]
)
def test_comparing_measures_the_plain_program_in_float32_too(capsys, monkeypatch, what, rate):
    measured = []

    def bench(case, *_, **__):
        measured.append((xla._plain.get(), case.net_dtype))
        return {rate: 30.0 if len(measured) % 2 else 20.0, "net_dtype": "bfloat16"}

    def start(env, seeds, net=None, **_):
        return SimpleNamespace(net_dtype=(net or {}).get("dtype", "float32"))

    monkeypatch.setattr(bench_train, "start", start)
    monkeypatch.setattr(bench_learner, "compiled", lambda case: None)
    module = bench_train if what == "train" else bench_learner
    monkeypatch.setattr(module, "bench", bench)
    monkeypatch.setattr(module, "line", lambda row: "line")
    flags = f"bench {what} --env walk --seeds 2 --preset tiny --net-dtype bfloat16 --compare --cpu"
    code, out, err = command(capsys, *shlex.split(flags))
    assert code == 0, err
    assert out.splitlines() == ["line", "    1.50 times the plain program"]
    assert measured == [(False, "bfloat16"), (True, "float32")]
    assert not xla._plain.get()


@pytest.mark.usefixtures("probe_envs", "tiny")
def test_training_is_compared_to_itself_without_kernels(capsys, monkeypatch, tmp_path):
    measured = []

    def bench(case, *_, **__):
        measured.append((xla._plain.get(), xla._without_kernels.get(), case.net_dtype))
        return {"env_steps_per_second": 30.0 if len(measured) % 2 else 20.0, "net_dtype": "bfloat16"}

    monkeypatch.setattr(bench_train, "start", lambda *_, net, **__: SimpleNamespace(net_dtype=net["dtype"]))
    monkeypatch.setattr(bench_train, "bench", bench)
    monkeypatch.setattr(bench_train, "line", lambda row: "line")
    flags = (
        f"bench train --env walk --seeds 2 --preset tiny --net-dtype bfloat16 --cpu --out {tmp_path / 't'}"
    )
    code, out, err = command(capsys, *shlex.split(flags), "--compare-kernels")
    assert code == 0, err
    assert out.splitlines() == ["line", "    1.50 times the same without our kernels"]
    assert measured == [(False, False, "bfloat16"), (False, True, "bfloat16")]
    row = json.loads((tmp_path / "t").read_text())[0]
    assert row["without_kernels"]["env_steps_per_second"] == 20 and row["times_without_kernels"] == 1.5
    code, _, err = command(capsys, *shlex.split(flags), "--compare-kernels", "--compare")
    assert code == 2 and "one of them" in err


def test_learners_that_do_not_fit_are_refused(monkeypatch):
    plan = SimpleNamespace(bytes_by_part={"learner": 1000, "batches": 600, "replay": 10**9}, seeds=8)
    case = bench_case.Case(None, None, plan, None, "float32")
    assert bench_case.needed_bytes(case) == 8 * 2000
    monkeypatch.setattr(bench_case, "free_bytes", lambda: 9000)
    with pytest.raises(ConfigError, match="--seeds 4"):
        bench_case.check_fits(case)


def test_parts_of_an_iteration_add_up():
    found = {"sample": 1.0, "update": 6.0}
    told = bench_parts.breakdown(found, iteration=10.0, prefill=2.0)
    assert told["breakdown_seconds"] == {
        "collect": 2.0, "sample": 1.0, "update": 6.0, "other": 1.0
    }  # fmt: skip
    assert sum(told["breakdown_fractions"].values()) == pytest.approx(1)
    left = bench_parts.breakdown({"update": 6.0}, iteration=10.0, prefill=None)
    assert left["breakdown_seconds"] == {"collect": 4.0, "update": 6.0, "other": 0.0}
    assert left["collect_by"] == "remainder"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("learner --env reachr", "did you mean 'reacher'"),
        ("learner --env reacher --agent clr", "did you mean 'crl'"),
        ("learner --env reacher --seeds 0", "at least 1"),
        ("learner --env reacher --seconds 0", "seconds must be above 0"),
        ("learner --env reacher --agent ppo --batch-size 8", "batch_size"),
        ("train --env reacher --seconds -1", "seconds must be above 0"),
        ("scaling --env antt", "did you mean 'ant'"),
        ("scaling --nets 3by256", "such as 2x256"),
        ("learner --net r6x256", "nearest: 8"),
        ("scaling --figure scaling.gif", ".png"),
        ("scaling --num-envs 0", "at least 1"),
        ("physics --env reacher ant --num-envs 4 0", "num_envs must be at least 1"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(capsys, tmp_path, flags, words):
    code, _, err = command(capsys, "bench", *shlex.split(flags), "--out", tmp_path / "b.json")
    assert code == 2
    assert words in err and len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_refused_first(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    for out, words in ((tmp_path, "is a folder"), (tmp_path / "file" / "b.json", "cannot be written")):
        code, _, err = command(capsys, "bench", "learner", "--env", "reacher", "--out", out)
        assert code == 2
        assert words in err


def physics_row(id, count):
    return {
        "env": id, "num_envs": count, "steps_per_second": 1.0, "milliseconds_per_step": 1.0,
        "reset_fraction": 0.0, "compile_seconds": 1.0, "bytes_per_env": 1.0,
    }  # fmt: skip


def test_physics_is_compared_to_itself_without_kernels(capsys, tmp_path, monkeypatch):
    """On a machine that takes four times as long without them, and compiles in groups."""
    monkeypatch.setattr(xla, "kernels", lambda: not xla._without_kernels.get())
    monkeypatch.setattr(programs, "groups", lambda cases: [list(cases)])
    monkeypatch.setattr(bench_physics, "_compile_run", lambda *_: 1.0 if xla.kernels() else 4.0)
    monkeypatch.setattr(bench_physics, "_time", lambda run, state, repeats: (run, state))
    code, out, _ = command(
        capsys,
        *["bench", "physics", "--env", "reacher", "--num-envs", "2", "3", "--compare", "--out"],
        tmp_path / "p",
    )
    assert code == 0 and out.count("4.00 times the plain program") == 2
    for row, count in zip(json.loads((tmp_path / "p").read_text()), (2, 3), strict=True):
        assert (row["num_envs"], row["kernels"], row["compiled_beside"]) == (count, True, 1)
        assert row["steps_per_second"] == 256 * count and row["times_plain"] == 4
        assert row["plain"] == {"steps_per_second": 64 * count}


def test_the_cost_of_auto_reset_need_not_be_measured(capsys, tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(bench_physics, "_compile_run", lambda *given: compiled.append(given) or 2.0)
    monkeypatch.setattr(bench_physics, "_time", lambda run, state, repeats: (run, state))
    flags = ["bench", "physics", "--env", "reacher", "--num-envs", "2", "--out", tmp_path / "p"]
    code, out, _ = command(capsys, *flags, "--no-reset-cost")
    assert code == 0 and len(compiled) == 1 and "auto-reset" not in out
    assert "reset_fraction" not in json.loads((tmp_path / "p").read_text())[0]


@pytest.mark.parametrize("together", [1, 8])
def test_physics_goes_on_past_an_environment_that_fails(capsys, tmp_path, monkeypatch, together):
    def prepared(id, count, *_):
        if id == "ant":
            raise FloatingPointError("nothing but NaN\nand more")
        return physics_row(id, count)

    cut = lambda cases: [cases[i : i + together] for i in range(0, len(cases), together)]
    monkeypatch.setattr(programs, "groups", cut)
    monkeypatch.setattr(bench_physics, "prepare", prepared)
    monkeypatch.setattr(bench_physics, "measure", lambda row, repeats: row)
    code, out, err = command(capsys, "bench", "physics", "--env", "all", "--out", tmp_path / "p.json")
    assert code == 1
    rows = {row["env"]: row for row in json.loads((tmp_path / "p.json").read_text())}
    assert len(rows) == len(ENVIRONMENTS) and len(out.splitlines()) == len(ENVIRONMENTS)
    assert rows["ant"]["failed"] == "nothing but NaN"
    assert [id for id, row in rows.items() if "failed" in row] == ["ant"]
    assert f"1 of {len(ENVIRONMENTS)} failed: ant" in err
