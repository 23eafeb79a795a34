"""The device that a process computes on, and the cache of what it compiles there."""

from __future__ import annotations

import jax

from homing.bounds import check_values
from homing.compile.cache import keep_compiled
from homing.compile.programs import warm_up
from homing.system.doctor import require_seen_gpu
from homing.training.sharding import join_hosts, make_cpu_devices


def choose_device(cpu: bool = False, devices: int | None = None, multi_host: bool = False) -> None:
    """Choose the device and the cache of compiled programs; before the first computation."""
    check_values(devices=devices)
    if cpu:
        jax.config.update("jax_platforms", "cpu")
    make_cpu_devices(devices, multi_host)
    if multi_host:
        join_hosts()
    if not cpu and jax.config.values["jax_platforms"] != "cpu":  # JAX_PLATFORMS=cpu is a choice too
        require_seen_gpu()
    keep_compiled()
    if jax.default_backend() == "gpu":
        warm_up()
