"""CUDA kernels on a CPU: their own source, with a block's threads as fibers."""

import ctypes
import functools
import importlib.resources
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from homing.compile.cuda import Kernel, Launch

DEVICE = Path(__file__).parent / "networks" / "emulated_kernels.cpp"
HEADERS = "headers.h"


def emulated_call(folder: Path) -> Callable[..., tuple[Any, ...]]:
    """What `homing.compile.cuda.call` does, on arrays that are there: nothing is traced."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")

    flags = ["-O1", "-shared", "-fPIC", "-std=c++17", "-w", f"-I{folder}"]
    # The standard library's headers, parsed once.
    headers = [line for line in DEVICE.read_text().splitlines() if line.startswith("#include <")]
    (folder / HEADERS).write_text("\n".join(headers))
    subprocess.run([compiler, *flags, "-x", "c++-header", folder / HEADERS], check=True)

    @functools.cache
    def library(kernel: Kernel) -> ctypes.CDLL:
        out = folder / f"{len(list(folder.iterdir()))}.so"
        source = importlib.resources.files(kernel.package).joinpath(kernel.file)
        defines = [f'-DKERNELS="{source}"', f"-DENTRY={kernel.entry}"]
        defines += [f"-D{name}={value}" for name, value in kernel.defines]
        subprocess.run([compiler, *flags, *defines, "-include", HEADERS, DEVICE, "-o", out], check=True)
        return ctypes.CDLL(str(out))

    def call(kernel: Kernel, launch: Launch, outputs: Sequence[Any], *inputs: Any) -> tuple[Any, ...]:
        made = [_buffer(out) for out in outputs]
        arrays = [_bits(a) for a in inputs] + made
        pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
        blocks, networks, _ = launch.grid
        library(kernel).launch(blocks, networks, launch.shared_bytes, launch.threads, pointers)
        return tuple(map(_array, made))

    return call


def _buffer(like: Any) -> np.ndarray:
    """Memory for an output, full of NaN."""
    kind = np.uint16 if like.dtype == jnp.bfloat16 else np.float32
    return np.full(like.shape, 0xFFFF if kind == np.uint16 else np.nan, kind)


def _bits(array: Any) -> np.ndarray:
    array = np.ascontiguousarray(array)
    return array.view(np.uint16) if array.dtype == jnp.bfloat16 else array


def _array(array: np.ndarray) -> Any:
    return jnp.asarray(array.view(jnp.bfloat16) if array.dtype == np.uint16 else array)
