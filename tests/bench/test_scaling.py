"""How cost grows: which points are measured, which are skipped, and what is drawn."""

import json
import shlex

import pytest
from cli_helpers import command
from run_helpers import no_key_check  # noqa: F401

from homing.bench import figures as bench_figures
from homing.bench import scaling as bench_scaling
from homing.bench.cost import roofline
from homing.bench.scaling import Point, Settings
from homing.errors import HomingError

CEILINGS = {"float32_tflops_per_second": 2.0, "bfloat16_tflops_per_second": 4.0, "bytes_per_second": 1e10}


def test_points_are_those_asked_for():
    found = bench_scaling.points("all", (4, 1), (8,), ("r8x256",))
    assert [(p.what, p.x) for p in found] == [("seeds", 1), ("seeds", 4), ("envs", 8), ("nets", "r8x256")]
    every = {p.x: p for p in bench_scaling.points("nets", (), (), ())}
    assert {"2x256", "4x1024", "r64x256"} <= set(every)
    assert every["r64x256"].net["depth"] == 64


def fake_row(point, settings, last, ahead):
    if point.x == 16:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 byte")
    row = {"env": "reacher", "device": "a machine", "seeds": point.seeds, "net_dtype": "float32"}
    if point.what == "envs":
        return row | {"num_envs": point.x, "milliseconds_per_step": 1.0, "steps_per_second": 1e3 * point.x}
    width = (point.net or {}).get("width", 256)
    return row | {
        "updates_per_second": 100.0 * point.seeds, "microseconds_per_update": 10.0 * width,
        "flops_per_update": 1e6 * width**2, "tflops_per_second": 1.0, "flops_fraction": 0.5,
        "roofline": CEILINGS,
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
    assert len(rows) == 4 + 2 + len(bench_scaling.NETS)
    assert "skipped: too large" in err
    assert figure.stat().st_size > 5000


def test_other_failures_are_not_hidden(monkeypatch):
    def broken(*_):
        raise RuntimeError("INTERNAL: something else")

    monkeypatch.setattr(bench_scaling, "_too_much", lambda *_: None)
    monkeypatch.setattr(bench_scaling, "_measurement", broken)
    with pytest.raises(RuntimeError, match="something else"):
        list(bench_scaling.measure([Point("seeds", 1, "seeds")], Settings("reacher")))


def test_a_network_is_known_by_its_size():
    blocks = {"residual": "blocks", "layer_norm": True}
    assert bench_scaling.net_of("3x96") == {"width": 96, "depth": 3}
    assert bench_scaling.net_of("r8x128") == {"width": 128, "depth": 8, **blocks}
    found = bench_scaling.points("nets", (), (), ("r8x128", "r4x128", "2x64", "2x256", "4x64"))
    families = ["residual, 128 wide"] * 2 + ["plain, 2 layers"] * 2 + ["plain, 4 layers"]
    assert [(point.x, point.family) for point in found] == list(
        zip(["r8x128", "r4x128", "2x64", "2x256", "4x64"], families, strict=True)
    )
    for bad, why in (
        ("big", "such as 2x256"),
        ("0x64", "such as"),
        ("r6x64", "nearest: 8"),
        ("2x0", "such as"),
    ):
        with pytest.raises(HomingError, match=why):
            bench_scaling.net_of(bad)


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


@pytest.mark.slow
def test_scaling_really_measures(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(roofline.SIZES, "cpu", (64, 2**16))
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
