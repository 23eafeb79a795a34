"""Several configurations measured one after the other, compiled in groups, and compared to plain twins."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from homing.bench import learner as bench_learner
from homing.bench import train as bench_train
from homing.compile import xla
from homing.compile.programs import in_groups
from homing.config.run import RunConfig
from homing.envs.registry import get_spec
from homing.envs.scene import check_pipeline

Row = dict[str, Any]


class Job(NamedTuple):
    """One measurement; `beside` is how many others are compiled at the same time."""

    make: Callable[[int], Any]
    """(beside) -> what is to be measured; compiled, unless it is alone"""
    measure: Callable[..., Row]
    """(what was made, beside) -> row"""
    plain: bool = False
    """As XLA compiles it by default."""

    def made(self, beside: int) -> Any:
        with self._way():
            return self.make(beside)

    def row(self, made: Any, beside: int) -> Row:
        with self._way():
            return self.measure(made, beside=beside)

    def _way(self) -> contextlib.AbstractContextManager[None]:
        return xla.plain() if self.plain else contextlib.nullcontext()


def rows(jobs: Sequence[Job]) -> Iterator[Row]:
    """A row for each as soon as it is measured. The first is compiled alone: its first step is timed."""
    makers = [job.made for job in jobs]
    for job, (get, beside) in zip(jobs, chain(in_groups(makers[:1]), in_groups(makers[1:])), strict=True):
        yield job.row(get(), beside)


def compared(jobs: Sequence[Job], rate: str) -> Iterator[Row]:
    """The rows of every other job, each with the ratio to the next one's: its plain twin."""
    measured = rows(jobs)
    for row in measured:
        plain = next(measured)
        yield row | {
            "plain": {rate: plain[rate], "net_dtype": plain["net_dtype"]},
            "times_plain": row[rate] / plain[rate],
        }


def train_rows(
    asked: Sequence[tuple[str, int]],
    given: Mapping[str, Any],
    net: Mapping[str, Any],
    seconds: float,
    breakdown: bool = True,
    evaluation: bool = True,
    compare: bool = False,
) -> Iterator[Row]:
    """For each environment and number of seeds; `given` are other arguments of `bench_train.start`.

    `compare`: with the ratio to the same in float32 as XLA compiles it by default, training alone.
    """

    def make(what: tuple[str, int], more: Mapping[str, Any], beside: int) -> bench_train.Case:
        case = bench_train.start(*what, **given, **more)
        if beside:
            case.compiled.wait_all()
        return case

    _check([bench_learner.config_of(*what, **given, net=net) for what in asked])
    jobs = []
    for i, what in enumerate(asked):
        measure = partial(bench_train.bench, seconds=seconds, fresh=i == 0, breakdown=breakdown)
        jobs.append(Job(partial(make, what, {"evaluation": evaluation, "net": net}), measure))
        if compare:
            twin = partial(bench_train.bench, seconds=seconds, breakdown=False)
            jobs.append(Job(partial(make, what, {"evaluation": False}), twin, plain=True))
    return compared(jobs, "env_steps_per_second") if compare else rows(jobs)


def _check(configs: Sequence[RunConfig]) -> None:
    """Find a wrong name before anything is compiled; the first case, whose start is timed, finds its own."""
    for config in configs[1:]:
        check_pipeline(get_spec(config.env), config.physics)


def learner_rows(
    cases: Sequence[bench_learner.Case], twins: Sequence[bench_learner.Case], seconds: float
) -> Iterator[Row]:
    """For each case; `twins`, where there are any, are the same in float32, to be compared."""

    def job(case: bench_learner.Case, plain: bool = False) -> Job:
        make = lambda beside: bench_learner.compiled(case)
        return Job(make, lambda ready, beside: bench_learner.bench(case, seconds, ready), plain)

    if not twins:
        return rows([job(case) for case in cases])
    pairs = [(job(case), job(twin, plain=True)) for case, twin in zip(cases, twins, strict=True)]
    return compared([one for pair in pairs for one in pair], "updates_per_second")
