"""Checks of the installation, with fixes."""

from __future__ import annotations

import importlib.util
import os
import shutil
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile import cuda, xla
from homing.errors import HomingError
from homing.system import hardware

CUDA_FIX = (
    'install the CUDA build with `pip install "homing[cuda]"` (from a checkout: `pip install ".[cuda]"`)'
)
PLUGINS = ("jax_cuda12_plugin", "jax_cuda13_plugin")  # the parts of JAX's CUDA build that import alone
PLUGIN_FIX = "`python -c \"import jax; jax.devices('cuda')\"` says why JAX's CUDA build does not start"
NVRTC_FIX = (
    "install it with `pip install nvidia-cuda-nvrtc`; without it deep networks train at a third of the speed"
)


@dataclass(frozen=True)
class Finding:
    """The result of one check; `fix` is empty if it passed."""

    what: str
    found: str
    fix: str = ""

    @property
    def well(self) -> bool:
        """Whether the check passed."""
        return not self.fix


def examine() -> list[Finding]:
    """Check everything that a run depends on."""
    machine = [_devices(), _gpu_seen(), _arithmetic(), _kernels(), _memory(), _disk()]
    return [*_versions(), *machine, _drawing(), _films()]


def _versions() -> list[Finding]:
    found = hardware.versions()
    findings = [Finding("versions", ", ".join(f"{name} {version}" for name, version in found.items()))]
    if found.get("mujoco") != found.get("mujoco-mjx"):
        findings.append(
            Finding(
                "mujoco and mjx",
                f"versions differ: {found.get('mujoco')} and {found.get('mujoco-mjx')}",
                "install a matched pair in a new environment: pip install mujoco==3.17.0 mujoco-mjx==3.17.0",
            )
        )
    return findings


def _devices() -> Finding:
    return Finding("JAX devices", ", ".join(f"{d.platform}:{d.id} ({d.device_kind})" for d in jax.devices()))


def unseen_gpus() -> list[str]:
    """GPUs of the machine if JAX runs on the CPU."""
    return hardware.machine_gpus() if jax.default_backend() == "cpu" else []


def require_seen_gpu() -> None:
    """Raise if JAX runs on the CPU of a machine that has a GPU."""
    if unseen := unseen_gpus():
        raise HomingError(
            f"this machine has a GPU ({unseen[0].split('(')[0].strip()}) that JAX does not see; {_unseen_fix()}, "
            "or pass --cpu to run on the CPU"
        )


def _unseen_fix() -> str:
    """What to do where JAX does not see a GPU that is there."""
    if (chosen := os.environ.get("JAX_PLATFORMS")) and "cuda" not in chosen and "gpu" not in chosen:
        return f"JAX_PLATFORMS is {chosen}: unset it"
    if all(map(os.environ.get, (hardware.MEMORY_FRACTION, hardware.OLD_MEMORY_FRACTION))):
        return f"JAX refuses {hardware.MEMORY_FRACTION} and {hardware.OLD_MEMORY_FRACTION} at once: unset the latter"
    return PLUGIN_FIX if any(map(importlib.util.find_spec, PLUGINS)) else CUDA_FIX


def _gpu_seen() -> Finding:
    gpus = hardware.machine_gpus()
    if not gpus:
        return Finding("GPU", "none found by nvidia-smi; the CPU is sufficient for small runs")
    if jax.default_backend() == "cpu":
        return Finding("GPU", f"{gpus[0]}, which JAX does not see", _unseen_fix())
    return Finding("GPU", f"{len(gpus)} in the machine, {jax.local_device_count()} used by JAX")


def _arithmetic() -> Finding:
    """Compile and run a matrix product, since a listed device may still not work."""
    try:
        total = float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((64, 64), jnp.float32)))
    except Exception as error:  # the backend's message is what the user needs, of any type
        return Finding(
            "arithmetic", f"fails: {str(error).splitlines()[0]}", "check the driver and the JAX build"
        )
    well = total == 64.0**3
    return Finding(
        "arithmetic",
        "a matrix product is correct" if well else f"a matrix product gives {total}",
        "" if well else "check the JAX build",
    )


def _kernels() -> Finding:
    """Which of our kernels programs are compiled with."""
    if jax.default_backend() != "gpu":
        return Finding("kernels", "none on this device; XLA compiles everything")
    named = {
        "hidden layers of networks (CUDA)": xla.cuda_kernels(),
        "whole networks, of several seeds (CUDA)": xla.cuda_kernels(newest=xla.HOPPER),
        "contact forces of the generalized pipeline (Triton)": xla.kernels(),
        "Newton's method of MJX (CUDA)": xla.cuda_kernels(oldest=xla.OLDEST),
    }
    used = [name for name, on in named.items() if on]
    found = f"in use: {', '.join(used)}" if used else "none in use"
    capable = cuda.capability() >= xla.OLDEST and os.environ.get(xla.KERNELS, "1") != "0"
    if capable and cuda.library() is None:
        return Finding("kernels", f"{found}; NVRTC, which compiles those in CUDA, is missing", NVRTC_FIX)
    return Finding("kernels", found)


def free_bytes() -> int | None:
    """Free bytes of the first device, or of the machine for the CPU; None if unknown."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        try:
            with open("/proc/meminfo") as file:
                fields = dict(line.split(":", 1) for line in file)
            return int(fields["MemAvailable"].split()[0]) * 1024
        except (OSError, KeyError, ValueError):
            return None
    stats = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    used = stats.get("bytes_in_use", 0)
    free = stats["bytes_limit"] - used
    # JAX counts its own memory only: other programs may hold the rest.
    driver = hardware.driver_memory(device)
    return free if driver is None else min(free, driver[0] + hardware.reserved_bytes(stats) - used)


def _memory() -> Finding:
    free = free_bytes()
    if free is None:
        return Finding("free memory", "unknown")
    fix = "close other programs: less than 2 GiB is free" if free < 2 << 30 else ""
    return Finding("free memory", f"{free / 2**30:.1f} GiB", fix)


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    fix = "free some disk space: checkpoints need room" if free < 1 << 30 else ""
    return Finding("free disk here", f"{free / 2**30:.1f} GiB", fix)


def _drawing() -> Finding:
    from homing.physics import Model
    from homing.physics.drawing import Camera, Drawer

    try:
        model = Model.from_xml("<mujoco><worldbody><geom type='sphere' size='1'/></worldbody></mujoco>")
        with Drawer(model, (), 32, 32, tile=1.0) as drawer:
            drawer.draw(np.zeros((0, 3)), np.zeros((0, 4)), Camera((0.0, 0.0, 0.0), 4.0))
    except HomingError as error:
        return Finding("rendering", "does not work", str(error))
    return Finding("rendering", "works")


def _films() -> Finding:
    try:
        import imageio_ffmpeg

        return Finding("video", f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}")
    except (ImportError, RuntimeError) as error:
        return Finding("video", f"no mp4 ({error})", "pip install 'imageio[ffmpeg]'; .gif works without it")
