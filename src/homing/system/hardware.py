"""Hardware and software description of the machine, stored with measurements."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import jax

from homing.compile.programs import cpu_cores

MEMORY_FRACTION, OLD_MEMORY_FRACTION = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
DEFAULT_MEMORY_FRACTION = 0.75  # of a GPU's memory: JAX's
PACKAGES = ("jax", "jaxlib", "brax", "mujoco", "mujoco-mjx", "flax", "optax", "numpy")


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on; packages that are not installed are omitted."""
    from homing.version import __version__

    found = {"homing": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """The CPU's model name."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.processor()
    except OSError:
        return platform.processor() or platform.machine()


def machine_gpus() -> list[str]:
    """GPUs known to the driver, whether or not JAX can use them."""
    try:
        answer = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.startswith("GPU")]


def ask_driver(*fields: str, gpu: str | None = None) -> list[list[str]]:
    """A row for each GPU, or for one, with what NVIDIA's driver says of these fields; none without an answer.

    Unlike JAX the driver counts all programs, and it allocates nothing.
    """
    chosen = [] if gpu is None else ["-i", gpu]
    query = ["nvidia-smi", *chosen, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    return [row for row in rows if len(row) == len(fields)]


def visible_gpus() -> list[str] | None:
    """What `CUDA_VISIBLE_DEVICES` names, in the order in which JAX counts; None if it is not set."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if visible is None else [name.strip() for name in visible.split(",") if name.strip()]


def _driver_index(place: int) -> str | None:
    """The driver's number of the GPU that JAX calls `place`; None where it is not known by its number."""
    names = visible_gpus()
    if names is None:
        return str(place)
    return names[place] if place < len(names) and names[place].isdigit() else None


def driver_memory(device: Any) -> tuple[int, int] | None:
    """Free and total bytes of a GPU as its driver counts them, with all programs; None if unknown."""
    place = device.local_hardware_id if device.platform == "gpu" else None
    index = None if place is None else _driver_index(place)
    if index is None:
        return None
    try:
        ((free, total),) = ask_driver("memory.free", "memory.total", gpu=index)
        return int(float(free) * 2**20), int(float(total) * 2**20)
    except ValueError:  # no row, or "[N/A]"
        return None


def reserved_bytes(stats: Mapping[str, int]) -> int:
    """What this program has taken of a GPU, by JAX's statistics of its memory, whether it uses it or not."""
    return stats.get("pool_bytes", stats.get("bytes_in_use", 0))


def held_by_others() -> int | None:
    """Bytes of the first GPU that other programs hold; None if unknown."""
    device = jax.devices()[0]
    memory = driver_memory(device)
    if memory is None:
        return None
    free, total = memory
    return max(total - free - reserved_bytes(device.memory_stats() or {}), 0)


def memory_fraction() -> float:
    """The fraction of a GPU's memory that JAX may use."""
    wanted = os.environ.get(MEMORY_FRACTION) or os.environ.get(OLD_MEMORY_FRACTION)
    return float(wanted) if wanted else DEFAULT_MEMORY_FRACTION


def with_memory_fraction(fraction: float) -> dict[str, str]:
    """Environment variables of a process that may use so much; JAX refuses both names at once."""
    return {MEMORY_FRACTION: f"{fraction:.3f}", OLD_MEMORY_FRACTION: ""}


def describe() -> dict[str, Any]:
    """Hardware, versions and date of a measurement."""
    device = jax.devices()[0]
    return {
        "device": device.device_kind if device.platform != "cpu" else cpu_name(),
        "platform": device.platform,
        "devices": jax.device_count(),
        "cpu_cores": cpu_cores(),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
    }
