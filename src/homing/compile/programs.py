"""Compiling side by side: the programs of a run, and groups of programs to be measured."""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile import export_cache
from homing.compile.jitted import Programs
from homing.types import Key

T = TypeVar("T")


def warm_up() -> None:
    """Let the device get ready in a thread of its own; Python can read and trace models meanwhile."""

    def first_program() -> None:
        with contextlib.suppress(RuntimeError):  # the next use of the device raises it again
            jax.jit(lambda: jnp.zeros(()))().block_until_ready()

    threading.Thread(target=first_program, name="warm-up", daemon=True).start()


class Compiled:
    """The programs of a run while they compile in threads of their own; each call waits for its program.

    Tracing holds Python's lock and XLA does not, so `init` compiles while `epoch` is traced. `evaluate`,
    which is needed last, waits for `epoch` and is made while that runs.

    fresh:     `init` is needed
    evaluated: `evaluate` is needed
    identity:  the settings that the programs follow from; with them a program that was traced before is not
               traced again (see `homing.compile.export_cache`)
    """

    def __init__(
        self,
        made: Programs,
        keys: Key,
        fresh: bool = True,
        evaluated: bool = True,
        identity: Mapping[str, Any] | None = None,
    ):
        self._begin = time.perf_counter()
        self._done: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="compile")
        self.shapes = jax.eval_shape(made.init, keys)
        count = jax.ShapeDtypeStruct((), jnp.int32)
        self._keys = keys
        lower = self._lower(made, export_cache.store(identity))
        self._init = self._submit("init", lower("init", keys)) if fresh else None
        self._epoch = self._submit("epoch", lower("epoch", self.shapes, count, count))

        def evaluate() -> Any:
            wait([self._epoch])
            return lower("evaluate", self.shapes, count)()

        self._evaluate = self._submit("evaluate", evaluate) if evaluated else None
        self._pool.shutdown(wait=False)

    def _lower(self, made: Programs, kept: export_cache.Store | None) -> Callable[..., Callable[[], Any]]:
        """Tracing by name, through the export cache where there is one."""
        results = {
            "init": lambda metrics: self.shapes,
            "epoch": lambda metrics: (self.shapes, metrics),
            "evaluate": lambda metrics: metrics,
        }

        def lower(name: str, *args: Any) -> Callable[[], Any]:
            program = getattr(made, name)
            if kept is None:
                return program.lower(*args)
            return program.lower_kept(kept, name, results[name], *args)

        return lower

    def _submit(self, name: str, make: Callable[[], Any]) -> Future[Callable[..., Any]]:
        def compile() -> Callable[..., Any]:
            compiled = make()
            self._done[name] = time.perf_counter() - self._begin
            return compiled

        return self._pool.submit(contextvars.copy_context().run, compile)

    def init(self) -> Any:
        assert self._init is not None
        return self._init.result()(self._keys)

    def epoch(self, train: Any, start: int, stop: int) -> Any:
        return self._epoch.result()(train, np.int32(start), np.int32(stop))

    def evaluate(self, train: Any, iteration: int) -> Any:
        assert self._evaluate is not None
        return self._evaluate.result()(train, np.int32(iteration))

    def wait(self, name: str) -> float:
        """Until one program is ready; the seconds from the start of all to that."""
        getattr(self, f"_{name}").result()
        return self._done[name]

    def wait_all(self) -> dict[str, float]:
        """The same for every program that is needed, by name."""
        needed = (name for name in ("init", "epoch", "evaluate") if getattr(self, f"_{name}") is not None)
        return {name: self.wait(name) for name in needed}


def groups(items: Sequence[T]) -> list[list[T]]:
    """Items to measure, in groups whose programs are compiled together before the first is measured.

    Compiling tries kernels on a GPU, which would disturb a measurement there. A CPU has no cores to spare.
    """
    size = max(1, cpu_cores() // 2) if jax.default_backend() == "gpu" else 1
    return [list(items[i : i + size]) for i in range(0, len(items), size)]


def side_by_side(makers: Iterable[Callable[[], T]]) -> list[Future[T]]:
    """Each in a thread of its own, all of them done; an error is raised when its result is asked for."""
    with ThreadPoolExecutor(thread_name_prefix="compile") as pool:
        return [pool.submit(contextvars.copy_context().run, make) for make in makers]


def in_groups(makers: Sequence[Callable[[int], T]]) -> Iterator[tuple[Callable[[], T], int]]:
    """For each maker a function that gives its result, or raises, and how many others were made with it.

    A maker is called with that number. One that is alone is made when its result is asked for.
    """
    for group in groups(makers):
        beside = len(group) - 1
        calls = [partial(make, beside) for make in group]
        results = [future.result for future in side_by_side(calls)] if beside else calls
        yield from ((result, beside) for result in results)


def cpu_cores() -> int:
    """Number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_seconds() -> float:
    """Seconds since this process was started, the interpreter's own start included."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        with open("/proc/uptime") as file:
            return float(file.read().split()[0]) - started
    except (OSError, ValueError, IndexError):
        return time.process_time()
