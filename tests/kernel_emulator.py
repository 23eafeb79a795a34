"""CUDA kernels on a CPU: their own source, with a block's threads as fibers."""

import ctypes
import functools
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from homing.compile.cuda import Launch


def emulator(folder: Path, source: Path) -> Callable[..., list[np.ndarray]]:
    """`run(defines, launch, inputs, outputs)` of the kernel that `defines` names; outputs as examples."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")

    @functools.cache
    def library(defines: tuple[tuple[str, int], ...]) -> ctypes.CDLL:
        out = folder / f"{len(list(folder.iterdir()))}.so"
        flags = ["-O1", "-shared", "-fPIC", "-std=c++17", "-w", f'-DKERNELS="{source}"']
        flags += [f"-D{name}={value}" for name, value in defines]
        device = Path(__file__).parent / "emulated_kernels.cpp"
        subprocess.run([compiler, *flags, device, "-o", out], check=True)
        return ctypes.CDLL(str(out))

    def run(
        defines: Mapping[str, int], launch: Launch, given: Sequence[Any], outputs: Sequence[Any]
    ) -> list[np.ndarray]:
        made = [_buffer(out) for out in outputs]
        arrays = [_bits(a) for a in given] + made
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        start = library(tuple(sorted(defines.items()))).launch
        start(launch.grid[0], launch.grid[1], launch.shared_bytes, launch.threads, pointers)
        return [_floats(array) for array in made]

    return run


def _buffer(like: Any) -> np.ndarray:
    """Memory for an output, full of NaN."""
    kind = np.uint16 if like.dtype == jnp.bfloat16 else np.float32
    return np.full(like.shape, 0xFFFF if kind == np.uint16 else np.nan, kind)


def _bits(array: Any) -> np.ndarray:
    array = np.ascontiguousarray(array)
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def _floats(array: np.ndarray) -> np.ndarray:
    return array.view(jnp.bfloat16).astype(np.float32) if array.dtype == np.uint16 else array
