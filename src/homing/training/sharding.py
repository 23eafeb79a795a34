"""One run over several devices: seeds, and the environments of each, along the two axes of JAX's mesh.

The program is the one for a single device; only the placement of its arrays differs. Seeds are independent. The
environments of one seed, and the transitions of its batches, are spread over devices that all hold its networks:
each computes gradients for its part, and XLA adds them up. So results do not depend, up to rounding, on the
number of devices, and a checkpoint can be resumed on any number of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from homing.agents import OffPolicyAgent
from homing.config.plan import Schedule
from homing.errors import ConfigError

if TYPE_CHECKING:
    from homing.runs.progress import Progress

SEEDS, ENVS = "seeds", "envs"


def is_first() -> bool:
    """Whether this process writes; of several that share a run, one does."""
    return jax.process_index() == 0


def agreed(value: int) -> int:
    """The largest value that any process of the run has, in all of them."""
    if jax.process_count() == 1:
        return int(value)
    from jax.experimental import multihost_utils

    return int(np.max(multihost_utils.process_allgather(np.int32(value))))


def join_hosts() -> None:
    """Become one of several processes that share a run; before the first computation.

    Slurm and MPI number the processes for JAX; elsewhere three environment variables do.
    """
    names = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
    values = [os.environ.get(name) for name in names]
    if jax.config.values["jax_platforms"] == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        if all(values):
            address, count, index = (str(value) for value in values)
            jax.distributed.initialize(address, int(count), int(index))
        else:
            jax.distributed.initialize()
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"cannot join the other processes ({str(error).splitlines()[0]}); start them by srun or mpirun, "
            f"or set {', '.join(names)} in each"
        ) from error


def make_cpu_devices(devices: int | None, multi_host: bool) -> None:
    """On the CPU, several devices are parts of one: good for trying a program out."""
    if jax.config.values["jax_platforms"] == "cpu" and devices and not multi_host:
        # Once a computation was made, their number is fixed: `placement` then refuses.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", devices)


def shown_here(show: Progress) -> Progress:
    """The display of a run, in the first of its processes; silence in the others."""
    from homing.runs.progress import Lines

    return show if is_first() else Lines(quiet=True)


def memory_of(free: int | None, spread: Placement | None) -> int | None:
    """Memory of all devices together; that of the CPU is the same for all its parts."""
    if free is None or spread is None or jax.default_backend() == "cpu":
        return free
    return free * spread.count


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the arrays of a run lie: a mesh of [seeds, environments] devices."""

    mesh: Mesh
    seeds: int
    num_envs: int
    eval_envs: int

    @property
    def count(self) -> int:
        return self.mesh.devices.size

    def __str__(self) -> str:
        rows, columns = self.mesh.devices.shape
        kind = self.mesh.devices.flat[0].device_kind
        return (
            f"{self.count} devices ({kind}): {self.seeds // rows} of {self.seeds} seeds and "
            f"{self.num_envs // columns} of {self.num_envs} environments of each on one"
        )

    def sharding(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    @property
    def whole(self) -> NamedSharding:
        """On every device."""
        return self.sharding()

    @property
    def members(self) -> NamedSharding:
        """[S, ...]."""
        return self.sharding(SEEDS)

    def state(self, shapes: Any) -> Any:
        """Where each array of a TrainState of all seeds lies."""
        return shapes.replace(
            env=jax.tree.map(self._env_leaf, shapes.env),
            replay=jax.tree.map(lambda _: self.sharding(SEEDS, None, ENVS), shapes.replay),
            learner=jax.tree.map(lambda _: self.members, shapes.learner),
            average=jax.tree.map(lambda _: self.members, shapes.average),
            key=self.members,
        )

    def _env_leaf(self, leaf: Any) -> NamedSharding:
        """[S, N, ...] for nearly all; keys and counters that a batch has once are [S], its clock is []."""
        if leaf.ndim == 0:
            return self.whole
        has_envs = leaf.ndim > 1 and leaf.shape[1] % self.num_envs == 0
        return self.sharding(SEEDS, ENVS) if has_envs else self.members

    def put(self, tree: Any) -> Any:
        """Arrays [S, ...] that every process has, spread over the seeds' devices."""
        return jax.tree.map(self._put, tree)

    def _put(self, x: Any) -> Any:
        if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(self._put(jax.random.key_data(x)))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, self.members, lambda index: host[index])

    def gathered(self, tree: Any) -> Any:
        """Arrays that this process can read whole; all processes must ask."""
        return jax.device_get(jax.jit(lambda x: x, out_shardings=self.whole)(tree))

    # What makes XLA divide the work: constraints on environments and on the transitions of batches.

    def rows(self, tree: Any, size: int) -> Any:
        """A constraint on arrays [size, ...] inside a program for one seed."""
        if size % self.mesh.shape[ENVS]:
            return tree
        where = self.sharding(ENVS)
        return jax.tree.map(
            lambda x: jax.lax.with_sharding_constraint(x, where) if x.ndim and len(x) == size else x, tree
        )

    def of_env(self, env: Any) -> Any:
        return _Spread(env, {"reset": lambda state: self.rows(state, env.num_envs)})

    def of_loop(self, loop_of: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def spread(values: Any) -> Any:
            loop = loop_of(values)
            return dataclasses.replace(loop, agent=_SpreadAgent(loop.agent, self))

        return spread


class _Spread:
    """An object whose named methods have their results passed through a function."""

    def __init__(self, inner: Any, after: dict[str, Callable[[Any], Any]]):
        self._inner, self._after = inner, after

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in self._after:
            return value
        after = self._after[name]
        return lambda *args, **kwargs: after(value(*args, **kwargs))


class _SpreadAgent(_Spread):
    """An agent whose batches are spread over the devices of a seed."""

    def __init__(self, agent: Any, placement: Placement):
        super().__init__(agent, {})
        self._placement = placement

    def update(self, learner: Any, batch: Any, *rest: Any) -> Any:
        return self._inner.update(learner, self._placement.rows(batch, _batch_size(batch)), *rest)

    def updates(self, *args: Any, **kwargs: Any) -> Any:
        return OffPolicyAgent.updates(cast(Any, self), *args, **kwargs)


def _batch_size(batch: Any) -> int:
    return len(jax.tree.leaves(batch)[0])


def parse_devices(text: str | None) -> int | None:
    """`--devices`: a number, or all; None where nothing is said."""
    if text is None:
        return None
    if text == "all":
        return 0
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"--devices takes a number or all, not {text!r}")
    return int(text)


def placement(devices: int | None, plan: Schedule) -> Placement | None:
    """A mesh of so many devices (0: all) for a plan; None where one device is meant."""
    there = jax.devices()
    wanted = len(there) if devices == 0 else devices
    if wanted is None or (wanted == 1 and jax.process_count() == 1):
        return None
    if not plan.collects:
        raise ConfigError("training on a dataset (--data) uses one device: leave out --devices")
    if plan.config.exact_seeds:
        raise ConfigError(
            "--exact-seeds trains on one device: leave out --devices, or start a process for each device with "
            "a part of the seeds (--seed-list)"
        )
    if wanted > len(there):
        raise ConfigError(f"--devices {wanted}: JAX sees {len(there)}; use --devices {len(there)} or all")
    if jax.process_count() > 1 and wanted < len(there):
        raise ConfigError(
            f"--devices {wanted}: a run of several processes uses all {len(there)} of their devices"
        )
    rows = math.gcd(plan.seeds, wanted)
    columns = wanted // rows
    num_envs, eval_envs = plan.config.num_envs, plan.config.eval_envs
    if num_envs % columns:
        near = max(round(num_envs / columns), 1) * columns
        raise ConfigError(
            f"{plan.seeds} seeds of {num_envs} environments do not divide among {wanted} devices: "
            f"take a number of seeds that {wanted} divides, or num_envs {near}"
        )
    mesh = Mesh(np.asarray(there[:wanted]).reshape(rows, columns), (SEEDS, ENVS))
    return Placement(mesh, plan.seeds, num_envs, eval_envs)
