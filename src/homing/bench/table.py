"""Benchmarks of several configurations, compiled in groups, optionally compared with plain XLA in float32."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Literal, NamedTuple

from homing.bench import learner as bench_learner
from homing.bench import train as bench_train
from homing.bench.case import Case, config_of
from homing.compile import xla
from homing.compile.programs import in_groups
from homing.config.run import RunConfig
from homing.envs.registry import get_spec
from homing.envs.scene import check_pipeline

Row = dict[str, Any]
Compare = Literal["plain", "without_kernels"]
TWINS: Mapping[Compare, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "plain": xla.plain,
    "without_kernels": xla.without_kernels,
}


class Job(NamedTuple):
    """One measurement; `beside` is the number of others compiled at the same time."""

    make: Callable[[int], Any]
    """(beside) -> the case to measure; compiled, unless it is alone"""
    measure: Callable[..., Row]
    """(case, beside) -> row"""
    compilation: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    """Options of the compiler that it is made and measured with."""

    def made(self, beside: int) -> Any:
        """Make the case, under the job's compilation options."""
        with self.compilation():
            return self.make(beside)

    def row(self, made: Any, beside: int) -> Row:
        """Measure the case, under the job's compilation options."""
        with self.compilation():
            return self.measure(made, beside=beside)


def rows(jobs: Sequence[Job]) -> Iterator[Row]:
    """Yield a row per job. The first job is compiled alone, since its time to the first step is measured."""
    makers = [job.made for job in jobs]
    for job, (get, beside) in zip(jobs, chain(in_groups(makers[:1]), in_groups(makers[1:])), strict=True):
        yield job.row(get(), beside)


def compared(jobs: Sequence[Job], rate: str, twin: str = "plain") -> Iterator[Row]:
    """Rows of the even jobs, each with the ratio to the following job, its counterpart called `twin`."""
    measured = rows(jobs)
    for row in measured:
        other = next(measured)
        yield row | {
            twin: {rate: other[rate], "net_dtype": other["net_dtype"]},
            f"times_{twin}": row[rate] / other[rate],
        }


def train_rows(
    asked: Sequence[tuple[str, int]],
    given: Mapping[str, Any],
    net: Mapping[str, Any],
    seconds: float,
    breakdown: bool = True,
    evaluation: bool = True,
    compare: Compare | None = None,
) -> Iterator[Row]:
    """One row for each environment and number of seeds.

    given:   other arguments of `bench_train.start`
    compare: add the ratio to training in float32 with XLA's defaults ("plain"), or to the same without custom
             kernels ("without_kernels")
    """

    def make(what: tuple[str, int], more: Mapping[str, Any], beside: int) -> bench_train.Case:
        case = bench_train.start(*what, **given, **more)
        if beside:
            case.compiled.wait_all()
        return case

    _check([config_of(*what, **given, net=net) for what in asked])
    jobs = []
    for i, what in enumerate(asked):
        measure = partial(bench_train.bench, seconds=seconds, fresh=i == 0, breakdown=breakdown)
        jobs.append(Job(partial(make, what, {"evaluation": evaluation, "net": net}), measure))
        if compare is not None:
            same = {"net": net} if compare == "without_kernels" else {}
            twin = partial(bench_train.bench, seconds=seconds, breakdown=False)
            jobs.append(Job(partial(make, what, {"evaluation": False, **same}), twin, TWINS[compare]))
    return rows(jobs) if compare is None else compared(jobs, "env_steps_per_second", compare)


def _check(configs: Sequence[RunConfig]) -> None:
    """Validate names before anything is compiled; the first case is timed and validates its own."""
    for config in configs[1:]:
        check_pipeline(get_spec(config.env), config.physics)


def learner_rows(
    cases: Sequence[Case], twins: Sequence[Case], seconds: float, compare: Compare = "plain"
) -> Iterator[Row]:
    """One row for each case; `twins`, if given, are their counterparts, compiled as `compare` says."""

    def job(case: Case, compilation: Callable = contextlib.nullcontext) -> Job:
        make = lambda beside: bench_learner.compiled(case)
        return Job(make, lambda ready, beside: bench_learner.bench(case, seconds, ready), compilation)

    if not twins:
        return rows([job(case) for case in cases])
    pairs = [(job(case), job(twin, TWINS[compare])) for case, twin in zip(cases, twins, strict=True)]
    return compared([one for pair in pairs for one in pair], "updates_per_second", compare)
