"""Several measurements in one command: what is compiled together, in which order, how twins are paired."""

import contextlib
import threading
from types import SimpleNamespace

import jax
import pytest
from cli_helpers import command

from homing.bench import table as bench_table
from homing.bench import train as bench_train
from homing.bench.table import Job
from homing.compile import xla


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.delenv(xla.SWITCH, raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(6), raising=False)


def job(name, told, plain=False):
    def make(beside):
        told.append(("make", name, beside, bool(xla.options()), threading.current_thread().name))
        return name

    def measure(made, beside):
        told.append(("measure", made, beside, bool(xla.options()), threading.current_thread().name))
        return {"name": made, "rate": 1.0 if plain else 3.0, "net_dtype": "float32"}

    return Job(make, measure, xla.plain if plain else contextlib.nullcontext)


def test_the_first_is_compiled_alone_and_the_others_in_groups_before_they_are_measured(as_on_a_gpu):
    told = []
    found = [row["name"] for row in bench_table.rows([job(i, told) for i in range(6)])]
    assert found == list(range(6))
    steps = [(what, name) for what, name, *_ in told]
    assert steps[:2] == [("make", 0), ("measure", 0)]
    assert set(steps[2:5]) == {("make", i) for i in (1, 2, 3)}
    assert steps[5:8] == [("measure", i) for i in (1, 2, 3)]
    assert set(steps[8:10]) == {("make", 4), ("make", 5)}
    assert {name: beside for what, name, beside, *_ in told if what == "make"} == {
        0: 0, 1: 2, 2: 2, 3: 2, 4: 1, 5: 1,
    }  # fmt: skip
    assert {thread for what, *_, thread in told if what == "measure"} == {threading.current_thread().name}


def test_a_cpu_compiles_and_measures_one_after_the_other():
    told = []
    list(bench_table.rows([job(i, told) for i in range(3)]))
    assert [(what, name) for what, name, *_ in told] == [
        (what, i) for i in range(3) for what in ("make", "measure")
    ]


def test_twins_are_plain_in_the_threads_that_compile_them_too(as_on_a_gpu):
    told = []
    jobs = [one for i in range(3) for one in (job(i, told), job(f"twin {i}", told, plain=True))]
    rows = list(bench_table.compared(jobs, "rate"))
    assert [(row["name"], row["times_plain"]) for row in rows] == [(0, 3.0), (1, 3.0), (2, 3.0)]
    assert rows[0]["plain"] == {"rate": 1.0, "net_dtype": "float32"}
    graphs = {name: set() for _, name, *_ in told}
    for _, name, _, with_graphs, _ in told:
        graphs[name].add(with_graphs)
    assert graphs == {i: {True} for i in range(3)} | {f"twin {i}": {False} for i in range(3)}


def test_what_fails_to_compile_is_raised_in_its_turn(as_on_a_gpu):
    def broken(beside):
        raise RuntimeError("does not fit")

    told = []
    rows = bench_table.rows([job(0, told), job(1, told), Job(broken, lambda *_: {}), job(3, told)])
    assert [next(rows)["name"], next(rows)["name"]] == [0, 1]
    with pytest.raises(RuntimeError, match="does not fit"):
        next(rows)


@pytest.mark.parametrize(
    ("flags", "word"), [("--env ant reachr", "did you mean 'reacher'"), ("--seeds 1 0", "at least 1")]
)
def test_a_later_case_that_is_wrong_is_refused_before_the_first_is_compiled(capsys, monkeypatch, flags, word):
    monkeypatch.setattr("homing.bench.train.start", lambda *_, **__: pytest.fail("compiled"))
    code, _, err = command(capsys, "bench", "train", *flags.split())
    assert code != 0 and word in err


@pytest.mark.parametrize(("each", "rounds"), [(0.01, [20] * 5), (0.3, [1] * 4), (7.0, [1] * 2)])
def test_slow_iterations_are_measured_fewer_times(each, rounds):
    class Clock:
        def __init__(self):
            self.asked = []

        def run(self, start, stop):
            self.asked.append((start, stop))
            return each * (stop - start)

    clock = Clock()
    told = bench_train._times(clock, SimpleNamespace(prefill_iterations=3), seconds=1.0)
    assert [stop - start for start, stop in clock.asked[2:]] == rounds
    assert told["iteration"] == pytest.approx(each)
    assert told["measured"] == sum(rounds)
    assert told["next"] == 4 + sum(rounds)
