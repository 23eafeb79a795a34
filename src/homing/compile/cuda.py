"""CUDA kernels of our own in JAX programs: compiled when first used by NVRTC, which `jax[cuda13]` brings.

A kernel's source is a .cu file of this package, with the files that it includes, specialised by preprocessor
definitions. Its PTX goes into the program by a custom call that XLA launches itself, inside CUDA graphs too: no
library of ours has to be built.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import importlib.resources
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.custom_batching import custom_vmap
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jaxlib.mlir import ir

from homing.types import Array

TARGET = "__gpu$xla.gpu.ptx"  # XLA's custom call that launches PTX
# Shared memory of a block by compute capability, in KiB; others have at least the last.
SHARED_KIB: dict[tuple[int, ...], int] = {(8, 0): 163, (8, 7): 163, (9, 0): 227, (10, 0): 227, (10, 3): 227}
LEAST_SHARED_KIB = 99


class Kernel(NamedTuple):
    """One entry function of a CUDA source, specialised."""

    package: str  # whose file it is
    file: str
    entry: str
    defines: tuple[tuple[str, int], ...]


class Launch(NamedTuple):
    """How a kernel is launched."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int


def kernel(package: str, file: str, entry: str, defines: Mapping[str, int]) -> Kernel:
    """The kernel `entry` of a package's .cu file, compiled with these definitions."""
    return Kernel(package, file, entry, tuple(sorted(defines.items())))


def call(
    kernel: Kernel, launch: Launch, outputs: Sequence[jax.ShapeDtypeStruct], *inputs: Array
) -> tuple[Array, ...]:
    """Outputs of a kernel whose parameters are pointers to its inputs, then to its outputs, all row-major."""
    shapes = tuple((tuple(out.shape), out.dtype) for out in outputs)
    return tuple(_call.bind(*inputs, kernel=kernel, launch=launch, outputs=shapes))


def over_leading_axis(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` of arrays with a common leading axis, which axes of vmap are merged into."""

    @custom_vmap
    def merged(*args: Any) -> Any:
        return run(*args)

    @merged.def_vmap
    def batched(size: int, is_batched: list[Any], *args: Any) -> tuple[Any, Any]:
        def merge(array: Array, has_axis: bool) -> Array:
            array = array if has_axis else jnp.broadcast_to(array, (size, *array.shape))
            return array.reshape(-1, *array.shape[2:])

        out = merged(*jax.tree.map(merge, list(args), list(is_batched)))
        apart = jax.tree.map(lambda a: a.reshape(size, -1, *a.shape[1:]), out)
        return apart, jax.tree.map(lambda a: True, apart)

    return merged


_call = Primitive("cuda_kernel")
_call.multiple_results = True


@_call.def_abstract_eval
def _shapes(*inputs: Any, kernel: Kernel, launch: Launch, outputs: Any) -> list[Any]:
    return [ShapedArray(shape, dtype) for shape, dtype in outputs]


def _lower(ctx: Any, *operands: Any, kernel: Kernel, launch: Launch, outputs: Any) -> Any:
    text, number = ir.StringAttr.get, functools.partial(ir.IntegerAttr.get, ir.IntegerType.get_signless(32))
    x, y, z = launch.grid
    config = {
        "name": text(kernel.entry),
        "kernel_type": text("ptx"),
        "kernel_data": text(ptx(kernel, capability())),
        "grid_x": number(x),
        "grid_y": number(y),
        "grid_z": number(z),
        "block_x": number(launch.threads),
        "block_y": number(1),
        "block_z": number(1),
        "shared_mem_bytes": number(launch.shared_bytes),
        "output_indices": ir.ArrayAttr.get([number(len(operands) + i) for i in range(len(outputs))]),
    }
    return jax.ffi.ffi_lowering(TARGET, backend_config=config)(ctx, *operands)


mlir.register_lowering(_call, _lower, platform="cuda")


def capability() -> tuple[int, ...]:
    """Compute capability of the first device; () of what is not an NVIDIA card."""
    found = str(getattr(jax.devices()[0], "compute_capability", ""))  # of an AMD card, a name
    return tuple(int(part) for part in found.split(".")) if found.replace(".", "").isdigit() else ()


def shared_memory() -> int:
    """Bytes of shared memory that a block may have."""
    return 1024 * SHARED_KIB.get(capability(), LEAST_SHARED_KIB)


# NVRTC, by its C interface.


@functools.cache
def ptx(kernel: Kernel, capability: tuple[int, ...]) -> str:
    """A kernel's PTX for cards of this compute capability."""
    source = _source(Path(str(importlib.resources.files(kernel.package))) / kernel.file)
    # With what only this generation of cards has: the matrix units of Hopper.
    target = "".join(map(str, capability)) + ("a" if capability == (9, 0) else "")
    options = [f"--gpu-architecture=compute_{target}", "--std=c++17", "-w"]
    options += [f"-D{name}={value}" for name, value in kernel.defines]
    return _compile(source, kernel.file, options)


def _source(path: Path) -> str:
    """A source with what it includes in place."""
    include = lambda match: _source(path.parent / match[1])
    return re.sub(r'^#include "(.+)"$', include, path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _compile(source: str, name: str, options: Sequence[str]) -> str:
    nvrtc = library()
    if nvrtc is None:
        raise RuntimeError("NVRTC, which compiles CUDA kernels, was not found")
    program = ctypes.c_void_p()
    encoded = [option.encode() for option in options]
    given = source.encode(), name.encode(), 0, None, None
    _check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), *given))
    try:
        array = (ctypes.c_char_p * len(encoded))(*encoded)
        failed = nvrtc.nvrtcCompileProgram(program, len(encoded), array)
        if failed:
            raise RuntimeError(f"{name} does not compile: {_text(nvrtc, 'ProgramLog', program)}")
        return _text(nvrtc, "PTX", program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _text(nvrtc: Any, what: str, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.value.decode()


def _check(nvrtc: Any, code: int) -> None:
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise RuntimeError(f"NVRTC: {nvrtc.nvrtcGetErrorString(code).decode()}")


@functools.cache
def library() -> Any | None:
    """NVRTC as a ctypes library: from NVIDIA's packages beside JAX, else the system's; None where there is none."""
    for path in [*_packaged(), ctypes.util.find_library("nvrtc")]:
        if path is not None:
            try:
                for part in Path(path).parent.glob("libnvrtc-builtins.so.*"):
                    ctypes.CDLL(str(part))  # which NVRTC looks for by its name alone
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    return None


def _packaged() -> list[Path]:
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    return [path for root in roots for path in sorted(root.glob("*/lib/libnvrtc.so.*"), reverse=True)]
