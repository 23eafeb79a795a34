"""Measurements: what is counted is held to sums by hand, what is timed to itself."""

import dataclasses
import json
import shlex
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from run_helpers import NET, TRAIN, no_key_check, probe_envs  # noqa: F401
from test_cli_train import command

from homing import (
    bench,
    bench_figures,
    bench_learner,
    bench_parts,
    bench_scaling,
    ceilings,
    presets,
    profiles,
)
from homing.bench_scaling import Point, Settings
from homing.compiled_text import cost, size_of
from homing.costs import product_flops
from homing.errors import ConfigError, HomingError

CEILINGS = {"float32_tflops_per_second": 2.0, "bfloat16_tflops_per_second": 4.0, "bytes_per_second": 1e10}


@pytest.fixture
def tiny(monkeypatch):
    """A preset of tiny networks and few rows, and ceilings that cost no time."""
    agent = dataclasses.replace(
        presets.preset("crl", "quickstart").agent, critic_net=NET, actor_net=NET, representation_dim=8
    )
    monkeypatch.setitem(presets.PRESETS["crl"], "tiny", presets.Preset("", TRAIN, agent))
    monkeypatch.setattr(ceilings, "ceilings", lambda: CEILINGS)


# Counting.


def two_layers(params, x):
    return jnp.sum(jnp.tanh(x @ params[0]) @ params[1])


def shapes(*sizes):
    return [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]


def test_products_are_counted_as_by_hand():
    params, (x,) = shapes((5, 7), (7, 3)), shapes((11, 5))
    forward = 2 * 11 * (5 * 7 + 7 * 3)
    assert product_flops(two_layers, params, x) == forward
    # Backwards both weights need a product each, and the hidden layer one; the input needs none.
    backward = 2 * 11 * (5 * 7 + 7 * 3 + 3 * 7)
    # The loss itself is no result of a gradient: its last product is not made.
    assert product_flops(jax.grad(two_layers), params, x) == backward + 2 * 11 * 5 * 7


def test_loops_count_as_often_as_they_run_and_branches_once():
    (x,) = shapes((4, 4))
    loop = lambda x: lax.scan(lambda c, _: (c @ x, None), x, length=6)[0]
    assert product_flops(loop, x) == 6 * 2 * 4**3
    branch = lambda x: lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)
    assert product_flops(branch, x) == 2 * 2 * 4**3
    dropped = lambda x: (x @ x, x + 1)[1]
    assert product_flops(dropped, x) == 0


def test_many_seeds_are_as_many_products():
    params, (x,) = shapes((3, 5, 7), (3, 7, 3)), shapes((3, 11, 5))
    assert product_flops(jax.vmap(two_layers), params, x) == 3 * 2 * 11 * (5 * 7 + 7 * 3)


def test_launches_and_bytes_grow_with_the_loop():
    def compiled(length):
        def run(x, rows):
            return lax.scan(lambda c, row: (jnp.tanh(c @ c) + row, None), x, rows)[0]

        return cost(jax.jit(run).lower(*shapes((16, 16), (length, 16, 16))).compile().as_text())

    once, twice, four = compiled(10), compiled(20), compiled(40)
    assert once.launches >= 20
    assert four.launches - twice.launches == 2 * (twice.launches - once.launches)
    assert four.bytes - twice.bytes == 2 * (twice.bytes - once.bytes)
    each = (twice.bytes - once.bytes) / 10
    # A product and a sum at least read and write their rows; a whole [length, 16, 16] is never read.
    assert 4 * 1024 <= each <= 20 * 1024


GPU_LIKE = """HloModule jit_run, is_scheduled=true

%fused (p0: f32[8,64], p1: s32[]) -> f32[64] {
  %p0 = f32[8,64]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,64]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={1,64}
  ROOT %out = f32[64]{0} bitcast(%row)
}

%body (t: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %t = (s32[], f32[8,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,64]{1,0} get-tuple-element(%t), index=1
  %f = f32[64]{0} fusion(%x, %i), kind=kLoop, calls=%fused
  %g = (f32[8,64]{1,0}, s8[4194304]{0}) custom-call(%x, %f), custom_call_target="__cublas$gemm"
  %y = f32[8,64]{1,0} get-tuple-element(%g), index=0
  ROOT %r = (s32[], f32[8,64]{1,0}) tuple(%i, %y)
}

%condition (c: (s32[], f32[8,64])) -> pred[] {
  %c = (s32[], f32[8,64]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (a: f32[8,64]) -> f32[8,64] {
  %a = f32[8,64]{1,0} parameter(0)
  %n = s32[] constant(0)
  %s = (s32[], f32[8,64]{1,0}) tuple(%n, %a)
  %w = (s32[], f32[8,64]{1,0}) while(%s), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %z = f32[8,64]{1,0} get-tuple-element(%w), index=1
}
"""  # noqa: E501


def test_slices_and_a_librarys_own_room_are_not_traffic():
    row, whole = 4 * 64, 4 * 8 * 64
    found = cost(GPU_LIKE)
    assert found.launches == 5 * 2
    assert found.bytes == 5 * ((row + row + 4) + (whole + row + whole))
    assert size_of("(f32[2,3]{1,0}, bf16[4]{0}, pred[])") == 24 + 8 + 1


def test_a_profile_counts_kernels_of_gpus_alone():
    def plane(name, **lines):
        lines = [
            SimpleNamespace(name=line.replace("_", " "), events=[SimpleNamespace(name=n) for n in names])
            for line, names in lines.items()
        ]
        return SimpleNamespace(name=name, lines=lines)

    planes = [
        plane("/host:CPU", Stream=["call"]),
        plane("/device:GPU:0", Stream_13=["fusion_1", "gemm", "MemcpyD2D"], XLA_Ops=["fusion_1"]),
    ]
    assert profiles.started(planes) == 2
    assert profiles.kernels(lambda: None) is None  # tests run on the CPU


# Timing.


def test_ceilings_are_measured(monkeypatch):
    monkeypatch.setitem(ceilings.SIZES, "cpu", (64, 2**16))
    ceilings.ceilings.cache_clear()
    try:
        found = ceilings.ceilings(0.01)
        assert set(found) == set(CEILINGS)
        assert all(value > 0 for value in found.values())
        assert ceilings.ceilings(0.01) is found
    finally:
        ceilings.ceilings.cache_clear()


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
    assert row["flops_share"] == pytest.approx(row["tflops_per_second"] / 2.0)
    assert row["launches_per_update"] > 10
    # φ (4 → 16 → 16 → 8), ψ (2 → … → 8) and the policy (4 → … → 4), filled up alike, and α.
    layers = lambda inputs, outputs: 17 * 16 + (inputs + 1) * 16 + 17 * outputs
    assert row["parameters"] == 3 * layers(8, 8) + 1
    assert "updates/s" in bench_learner.line(row) and "GB/s" in bench_learner.line(row)


@pytest.mark.slow
@pytest.mark.usefixtures("probe_envs")
@pytest.mark.parametrize("agent", ["sac", "td3", "ppo"])
def test_bench_learner_measures_every_agent(monkeypatch, agent):
    monkeypatch.setattr(ceilings, "ceilings", lambda: CEILINGS)
    small = {"num_envs": 8, "unroll_length": 10}
    if agent != "ppo":
        small |= {"batch_size": 16, "replay_rows": 50, "prefill_rows": 20}
    case = bench_learner.make_case("walk", 2, agent, "quickstart", {"dtype": "bfloat16"}, **small)
    row = bench_learner.bench(case, 0.1)
    assert row["net_dtype"] == "bfloat16"
    assert row["updates_per_second"] > 0 and row["parameters"] > 0 and row["flops_per_update"] > 0


def test_learners_that_do_not_fit_are_refused(monkeypatch):
    plan = SimpleNamespace(bytes_by_part={"learner": 1000, "batches": 600, "replay": 10**9}, seeds=8)
    case = bench_learner.Case(None, None, plan, None, "float32")
    assert bench_learner.needed_bytes(case) == 8 * 2000
    monkeypatch.setattr(bench_learner, "free_bytes", lambda: 9000)
    with pytest.raises(ConfigError, match="--seeds 4"):
        bench_learner.check_fits(case)


def test_parts_of_an_iteration_add_up():
    found = {"sample": 1.0, "metrics": 0.5, "update": 6.0}
    told = bench_parts.breakdown(found, iteration=10.0, prefill=2.0)
    assert told["breakdown_seconds"] == {
        "collect": 1.5, "sample": 1.0, "update": 6.0, "metrics": 0.5, "other": 1.0
    }  # fmt: skip
    assert sum(told["breakdown_shares"].values()) == pytest.approx(1)
    left = bench_parts.breakdown({"update": 6.0}, iteration=10.0, prefill=None)
    assert left["breakdown_seconds"] == {"collect": 4.0, "update": 6.0, "other": 0.0}
    assert left["collect_by"] == "what is left"


# Scaling.


def test_points_are_those_asked_for():
    found = bench_scaling.points("all", (4, 1), (8,), ("r8x256",))
    assert [(p.what, p.x) for p in found] == [("seeds", 1), ("seeds", 4), ("envs", 8), ("nets", "r8x256")]
    every = {p.x: p for p in bench_scaling.points("nets", (), (), ())}
    assert {"2x256", "4x1024", "r64x256"} <= set(every)
    assert every["r64x256"].net["depth"] == 64
    with pytest.raises(HomingError, match="did you mean '4x1024'"):
        bench_scaling.points("nets", (), (), ("4x1023",))


def fake_row(point, settings, last):
    if point.x == 16:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 byte")
    row = {"env": "reacher", "device": "a machine", "seeds": point.seeds, "net_dtype": "float32"}
    if point.what == "envs":
        return row | {"num_envs": point.x, "milliseconds_per_step": 1.0, "steps_per_second": 1e3 * point.x}
    width = (point.net or {}).get("width", 256)
    return row | {
        "updates_per_second": 100.0 * point.seeds, "microseconds_per_update": 10.0 * width,
        "flops_per_update": 1e6 * width**2, "tflops_per_second": 1.0, "flops_share": 0.5,
        "ceilings": CEILINGS,
    }  # fmt: skip


@pytest.mark.parametrize("suffix", ["png", "pdf"])
def test_scaling_goes_on_past_what_does_not_fit_and_draws_the_rest(capsys, tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(bench_scaling, "_measurement", fake_row)
    monkeypatch.setattr(bench_scaling, "_too_much", lambda p, *_: "too large" if p.x == 8 else None)
    monkeypatch.setattr(bench_scaling, "check", lambda settings: None)
    file, figure = tmp_path / "a" / "s.json", tmp_path / "b" / f"s.{suffix}"
    flags = "bench scaling --env reacher --seeds 1 4 8 16 --num-envs 256 1024 --json"
    code, out, err = command(capsys, *shlex.split(flags), "--out", file, "--figure", figure)
    assert code == 0, err
    rows = json.loads(out)
    assert rows == json.loads(file.read_text())
    skipped = {row["x"]: row["skipped"] for row in rows if "skipped" in row}
    assert skipped == {8: "too large", 16: "the device ran out of memory"}
    assert len(rows) == 4 + 2 + sum(len(own) for own in bench_scaling.NETS.values())
    assert "skipped: too large" in err
    assert figure.stat().st_size > 5000


def test_other_failures_are_not_hidden(monkeypatch):
    def broken(*_):
        raise RuntimeError("INTERNAL: something else")

    monkeypatch.setattr(bench_scaling, "_too_much", lambda *_: None)
    monkeypatch.setattr(bench_scaling, "_measurement", broken)
    with pytest.raises(RuntimeError, match="something else"):
        list(bench_scaling.measure([Point("seeds", 1, "seeds")], Settings("reacher")))


def test_physics_keeps_to_its_time():
    settings, last = Settings("reacher", seconds=1.0), {"num_envs": 256, "milliseconds_per_step": 1.0}
    assert bench_scaling._steps(256, settings, None) == 16  # nothing is known yet
    assert bench_scaling._steps(512, settings, last) == 32  # 8 runs × 32 steps × 2 ms ≤ 1 s
    slow = last | {"milliseconds_per_step": 1000.0}
    assert "would take" in bench_scaling._too_much(Point("envs", 512, "envs", num_envs=512), settings, slow)


def test_what_memory_cannot_hold_is_not_tried(monkeypatch):
    monkeypatch.setattr(bench_scaling, "_env_bytes", lambda env, count: 100 * count)
    monkeypatch.setattr(bench_scaling, "free_bytes", lambda: 30_000)
    judge = lambda count: bench_scaling._too_much(
        Point("envs", count, "envs", num_envs=count), Settings("reacher"), None
    )
    assert judge(256) is None
    assert "are free" in judge(512)


def test_a_figure_of_nothing_is_refused(tmp_path):
    with pytest.raises(HomingError, match="nothing to draw"):
        bench_figures.write_scaling([{"what": "seeds", "x": 1, "skipped": "x"}], tmp_path / "f.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("learner --env reachr", "did you mean 'reacher'"),
        ("learner --env reacher --agent clr", "did you mean 'crl'"),
        ("learner --env reacher --seeds 0", "at least 1"),
        ("learner --env reacher --seconds 0", "more than 0"),
        ("learner --env reacher --agent ppo --batch-size 8", "batch_size"),
        ("train --env reacher --seconds -1", "more than 0"),
        ("scaling --env antt", "did you mean 'ant'"),
        ("scaling --nets 3x256", "did you mean"),
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


def test_physics_goes_on_past_an_environment_that_fails(capsys, tmp_path, monkeypatch):
    def measured(id, count, *_):
        if id == "ant":
            raise FloatingPointError("nothing but NaN\nand more")
        return {
            "env": id, "num_envs": count, "steps_per_second": 1.0, "milliseconds_per_step": 1.0,
            "reset_share": 0.0, "compile_seconds": 1.0, "bytes_per_env": 1.0,
        }  # fmt: skip

    monkeypatch.setattr(bench, "bench_physics", measured)
    code, out, err = command(capsys, "bench", "physics", "--env", "all", "--out", tmp_path / "p.json")
    assert code == 1
    rows = {row["env"]: row for row in json.loads((tmp_path / "p.json").read_text())}
    assert len(rows) == 44 and len(out.splitlines()) == 44
    assert rows["ant"]["failed"] == "nothing but NaN"
    assert [id for id, row in rows.items() if "failed" in row] == ["ant"]
    assert "1 of 44 failed: ant" in err


@pytest.mark.slow
def test_scaling_really_measures(capsys, tmp_path):
    flags = (
        "bench scaling --env point_u_maze --preset quickstart --seeds 1 2 --num-envs 4 8 --nets 2x256 4x256 "
        "--batch-size 8 --seconds 0.2 --json"
    )
    code, out, err = command(capsys, *shlex.split(flags), "--figure", tmp_path / "s.png")
    assert code == 0, err
    rows = json.loads(out)
    assert [row["what"] for row in rows] == ["seeds"] * 2 + ["envs"] * 2 + ["nets"] * 2
    assert not [row for row in rows if "skipped" in row]
    assert rows[5]["flops_per_update"] > rows[4]["flops_per_update"]
    assert (tmp_path / "s.png").stat().st_size > 5000
