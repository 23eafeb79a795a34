"""What a person sees of a run."""

import io

import pytest
from rich.console import Console
from run_helpers import probe_config, probe_envs  # noqa: F401

from homing.runs.progress import Lines, Screen, human_count, human_time, make_progress, memory_line, sparkline
from homing.training import build as run_build

pytestmark = pytest.mark.usefixtures("probe_envs")


@pytest.fixture
def plan():
    return run_build.build(probe_config()).plan


def rows(iteration, *values):
    return [
        {"seed": 3 + i, "iteration": iteration, "finite": v is not None, "speed/env_steps_per_second": 1500.0}
        | ({} if v is None else {"eval/success_any": v})
        for i, v in enumerate(values)
    ]


SUMMARY = {"eval/success_any": {"iqm": 0.5, "low": 0.25, "high": 0.75, "seeds": 2}}


def test_sparkline_spans_its_range_and_averages_what_does_not_fit():
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([0.0, 1.0, 1.0, 1.0], width=2) == "▅█"
    assert sparkline([-1.0, 7.0], low=0.0, high=1.0) == "▁█"
    assert sparkline([]) == ""
    assert len(sparkline([0.3] * 1000, width=40)) == 40


def test_numbers_as_people_say_them():
    assert [human_count(n) for n in (87, 1_500, 450_000, 12_345_678, 2e9)] == [
        "87",
        "1.5k",
        "450k",
        "12.3M",
        "2B",
    ]
    assert [human_time(s) for s in (5, 123, 3723)] == ["0:05", "2:03", "1:02:03"]


def test_plain_lines_tell_each_evaluation_once(plan, capsys):
    show = Lines()
    show.doing("compiling")
    show.begin(plan, (3, 4), 0, [])
    show.advanced(5)
    show.doing("evaluating")
    show.evaluated(7, rows(7, 0.25, 0.75), SUMMARY)
    show.warn("careful")
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "compiling"
    assert len(lines) == 2
    for part in ("560 of 1.92k steps", "success_any 0.500 [0.250, 0.750]", "1.5k steps/s", "left"):
        assert part in lines[1]
    assert err == "careful\n"


def test_quiet_lines_warn_only(plan, capsys):
    show = make_progress(quiet=True)
    show.begin(plan, (3, 4), 0, [])
    show.say("hello")
    show.evaluated(7, rows(7, 0.25, 0.75), SUMMARY)
    show.warn("careful")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "careful\n")


def test_without_a_terminal_there_are_lines():
    assert isinstance(make_progress(), Lines)


def test_the_screen_shows_steps_speed_time_and_a_curve_for_each_seed(plan):
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    show = Screen(console)
    show.begin(plan, (3, 4), 7, rows(7, 0.0, 0.1))
    show.evaluated(13, rows(13, 1.0, None), {})
    show.warn("seed 4 has diverged")
    show.close()
    text = console.file.getvalue()
    assert any(line.startswith("1.04k of 1.92k steps") for line in text.splitlines())
    for part in ("1.04k of 1.92k steps", "1.5k steps/s", "gone", "left", "▁█", "seed 3", "1.000", "diverged"):
        assert part in text


def test_many_seeds_are_cut_and_returns_are_scaled(plan):
    console = Console(file=io.StringIO(), width=100)
    show = Screen(console)
    seeds = tuple(range(3, 23))
    told = [
        {"seed": s, "iteration": i, "finite": True, "eval/return": float(i)} for i in (7, 13) for s in seeds
    ]
    show.begin(plan, seeds, 13, told)
    show.close()
    console.print(show)
    text = console.file.getvalue()
    assert "and 8 more" in text
    assert "▁█" in text


def test_memory_is_told_against_what_is_free(plan):
    assert "a seed); 1 GiB are free" in memory_line(plan, 2**30)
    assert "does not tell" in memory_line(plan, None)
