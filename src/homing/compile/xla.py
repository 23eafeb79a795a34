"""Compiler options: on a GPU, programs become CUDA graphs whose kernels run side by side, loops included.

An update of small networks is some sixty kernels of a few microseconds. By default XLA launches the kernels of
a loop iteration one after the other; in a graph each starts when those it depends on are done, and the loop
itself runs on the GPU without returning to the host.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax

from homing.compile import cuda

GRAPHS: dict[str, str | bool] = {
    "xla_gpu_command_buffer_scheduling_mode": "CONCURRENT",
    "xla_gpu_enable_command_buffer": (
        "FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,WHILE,CONDITIONAL"
    ),
}
SHALLOW = 8
"""Layers of networks whose updates are short."""
SWITCH = "HOMING_GRAPHS"
"""Environment variable: 0 turns graphs off."""

KERNELS = "HOMING_KERNELS"
"""Environment variable: 0 turns kernels of our own and stages off, `all` turns on those that must be asked for."""
TRITON = (
    "jax.experimental.pallas.triton"  # what those of physics are written in; JAX will not have it for ever
)
OLDEST = (8, 0)  # compute capability of the cards that they compile for: Ampere
HOPPER = (9, 0)

_plain = contextvars.ContextVar("plain", default=False)  # threads that compile take a copy along
_divided = contextvars.ContextVar("divided", default=False)
_without_kernels = contextvars.ContextVar("without_kernels", default=False)
_seeds = contextvars.ContextVar("seeds", default=1)
_unknown = False


def options() -> dict[str, str | bool]:
    """What `compile` of a traced program takes as `compiler_options`; none without a GPU, or graphs."""
    if _plain.get() or os.environ.get(SWITCH, "1") == "0" or jax.default_backend() != "gpu":
        return {}
    return {} if _unknown else GRAPHS


def kernels() -> bool:
    """Whether a program may have kernels of our own: on one recent NVIDIA card, and not in a plain program."""
    return _allowed() and _has_triton()


def cuda_kernels(
    asked_for: bool = False, oldest: tuple[int, int] = HOPPER, newest: tuple[int, ...] | None = None
) -> bool:
    """The same for kernels in CUDA; those of networks need what Hopper cards have, and some what no later card has.

    `asked_for`: those that were seen to be faster in parts of the benchmark only.
    """
    found = cuda.capability()
    fits = found >= oldest and (newest is None or found <= newest)
    return _allowed(asked_for) and fits and cuda.library() is not None


def _allowed(asked_for: bool = False) -> bool:
    wanted = os.environ.get(KERNELS, "1")
    if wanted == "0" or (asked_for and wanted != "all"):
        return False
    if _plain.get() or _divided.get() or _without_kernels.get():
        return False
    return jax.default_backend() == "gpu" and cuda.capability() >= OLDEST


@functools.cache
def _has_triton() -> bool:
    try:
        return importlib.util.find_spec(TRITON) is not None
    except ImportError:
        return False


def stages() -> bool:
    """Whether results that share much are computed in stages (`physics.spring.stages`): on a CPU only."""
    wanted = os.environ.get(KERNELS, "1") != "0" and not (_plain.get() or _without_kernels.get())
    return wanted and jax.default_backend() == "cpu"


def divided(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose arrays lie on several devices: XLA cannot divide our kernels among them."""

    @functools.wraps(fn)
    def traced(*args: Any) -> Any:
        with _inside(_divided, True):
            return fn(*args)

    return traced


def build(lowered: Any) -> Any:
    """A traced program, compiled; without options that this version of XLA does not know."""
    global _unknown
    chosen = options()
    try:
        return lowered.compile(compiler_options=chosen)
    except RuntimeError as error:
        if not chosen or "compile option" not in str(error):
            raise
    _unknown = True
    return lowered.compile()


def unroll_factor(layers: int = 0) -> int:
    """Updates unrolled in one iteration of a learner's loop: on a GPU consecutive updates overlap.

    Updates of deep networks fill the GPU by themselves, and four of them take four times as long to compile.
    """
    return 4 if options() and layers <= SHALLOW else 1


@contextlib.contextmanager
def _inside(switch: contextvars.ContextVar[Any], value: Any) -> Iterator[None]:
    before = switch.set(value)
    try:
        yield
    finally:
        switch.reset(before)


def plain() -> contextlib.AbstractContextManager[None]:
    """Programs traced and built inside are compiled as XLA does by default, to compare."""
    return _inside(_plain, True)


def side_by_side(seeds: int) -> contextlib.AbstractContextManager[None]:
    """Programs traced inside compute every operation for so many seeds at once."""
    return _inside(_seeds, seeds)


def seeds() -> int:
    """Seeds for which the program that is being traced computes every operation at once."""
    return _seeds.get()


def without_kernels() -> contextlib.AbstractContextManager[None]:
    """Programs traced inside have no kernels of our own and no stages, to compare or to translate them."""
    return _inside(_without_kernels, True)
