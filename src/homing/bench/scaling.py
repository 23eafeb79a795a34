"""Scaling benchmark over seeds, environments and network sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import jax

from homing.bench import case as bench_case
from homing.bench import learner as bench_learner
from homing.bench import physics as bench_physics
from homing.bench import train as bench_train
from homing.bounds import check_value
from homing.compile.programs import groups, side_by_side
from homing.config.plan import Schedule, human_bytes
from homing.config.presets import preset as get_preset
from homing.envs import make
from homing.envs.registry import resolve
from homing.errors import ConfigError, HomingError, unknown
from homing.networks import NetConfig
from homing.system.doctor import free_bytes
from homing.training.build import build
from homing.types import bytes_of

NETS = (
    "2x256",
    "2x512",
    "2x1024",
    "4x256",
    "4x512",
    "4x1024",
    "r4x256",
    "r8x256",
    "r16x256",
    "r32x256",
    "r64x256",
)
QUANTITIES = ("seeds", "envs", "nets")
PATIENCE = 10  # points that would take more than this multiple of `seconds` are skipped


class Settings(NamedTuple):
    """Settings that all points share."""

    env: str
    agent: str = "crl"
    preset: str = "paper"
    seconds: float = 3.0
    training: bool = False
    """Measure full training at every point instead of the learner or physics alone."""
    net_dtype: str | None = None
    batch_size: int | None = None

    def net(self, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Overrides of the network settings."""
        return dict(changes or {}) | ({} if self.net_dtype is None else {"dtype": self.net_dtype})

    def changes(self, **more: Any) -> dict[str, Any]:
        """Overrides of the training settings."""
        return more | ({} if self.batch_size is None else {"batch_size": self.batch_size})


class Point(NamedTuple):
    """One measurement."""

    what: str
    x: int | str
    family: str
    seeds: int = 1
    num_envs: int | None = None
    net: Mapping[str, Any] | None = None


def net_of(name: str) -> dict[str, Any]:
    """Settings of a network by its name: layers × units, such as 2x256, or r16x256 with residual blocks."""
    sizes = re.fullmatch(r"(r?)([1-9]\d*)x([1-9]\d*)", name)
    if sizes is None:
        raise ConfigError(
            f"unknown network {name!r}; write layers x units, such as 2x256, or r16x256 with residual blocks"
        )
    blocks = {"residual": "blocks", "layer_norm": True} if sizes[1] else {}
    net = {"width": int(sizes[3]), "depth": int(sizes[2]), **blocks}
    NetConfig(**net)  # its errors name the fix
    return net


def _family(net: Mapping[str, Any]) -> str:
    """Networks that differ in one dimension belong together in a figure."""
    return f"residual, {net['width']} wide" if "residual" in net else f"plain, {net['depth']} layers"


def points(what: str, seeds: tuple[int, ...], envs: tuple[int, ...], nets: tuple[str, ...]) -> list[Point]:
    """All points in the order of measurement; an empty `nets` selects all of `NETS`."""
    if what not in (*QUANTITIES, "all"):
        raise unknown("part of a scaling benchmark", what, (*QUANTITIES, "all"))
    for name, counts in (("seeds", seeds), ("num_envs", envs)):
        for count in counts:
            check_value(name, count)
    sizes = {name: net_of(name) for name in nets or NETS}
    found = {
        "seeds": [Point("seeds", n, "seeds", seeds=n) for n in sorted(seeds)],
        "envs": [Point("envs", n, "envs", num_envs=n) for n in sorted(envs)],
        "nets": [Point("nets", name, _family(net), net=net) for name, net in sizes.items()],
    }
    return [point for name in (QUANTITIES if what == "all" else (what,)) for point in found[name]]


def check(settings: Settings) -> None:
    """Validate the settings before anything is compiled."""
    resolve(settings.env)
    get_preset(settings.agent, settings.preset, settings.env)
    if not settings.seconds > 0:
        raise ConfigError(f"seconds is {settings.seconds:g}; it must be more than 0")
    bench_case.make_case(
        settings.env, 1, settings.agent, settings.preset, settings.net(), **settings.changes()
    )


def measure(asked: list[Point], settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield a row for each point; `skipped` holds the reason if it was not measured."""
    before: dict[str, dict[str, Any]] = {}
    for group in groups(asked):
        ahead = _ahead(group, settings)
        for point in group:
            row = {"what": point.what, "x": point.x, "family": point.family}
            last = before.get(point.what)
            try:
                why = _too_much(point, settings, last)
                found = {"skipped": why} if why else _measurement(point, settings, last, ahead)
            except (HomingError, RuntimeError) as error:
                found = {"skipped": _reason(error)}
            if "skipped" not in found:
                before[point.what] = found
            yield row | found


Ahead = Mapping[tuple[str, int | str], Future[bench_learner.Ready]]  # by what is varied, and its value


def _ahead(group: list[Point], settings: Settings) -> Ahead:
    """Learners compiled concurrently; physics is not, since its number of steps depends on the previous point."""
    if len(group) == 1 or settings.training:
        return {}
    asked = [point for point in group if point.what != "envs" and not _too_much(point, settings, None)]
    makers = [partial(bench_learner.compiled, _case(point, settings)) for point in asked]
    names = [(point.what, point.x) for point in asked]
    return dict(zip(names, side_by_side(makers), strict=True))


def _reason(error: Exception) -> str:
    """The reason to skip a point; errors unrelated to its size are re-raised."""
    text = str(error)
    if "RESOURCE_EXHAUSTED" in text or "out of memory" in text.lower():
        return "the device ran out of memory"
    if isinstance(error, ConfigError):
        return text.splitlines()[0]
    raise error


def _measurement(
    point: Point, settings: Settings, last: dict[str, Any] | None, ahead: Ahead
) -> dict[str, Any]:
    if settings.training:
        return _training(point, settings)
    if point.what == "envs":
        return _physics(point, settings, last)
    ready = ahead.get((point.what, point.x))
    compiled = None if ready is None else ready.result()
    return bench_learner.bench(_case(point, settings), settings.seconds, compiled)


def _case(point: Point, settings: Settings) -> bench_case.Case:
    return bench_case.make_case(
        settings.env,
        point.seeds,
        settings.agent,
        settings.preset,
        settings.net(point.net),
        **settings.changes(),
    )


def _training(point: Point, settings: Settings) -> dict[str, Any]:
    more = {} if point.num_envs is None else {"num_envs": point.num_envs}
    case = bench_train.start(
        settings.env,
        point.seeds,
        agent=settings.agent,
        preset=settings.preset,
        net=settings.net(point.net),
        **settings.changes(**more),
    )
    return bench_train.bench(case, settings.seconds)


def _physics(point: Point, settings: Settings, last: dict[str, Any] | None) -> dict[str, Any]:
    assert point.num_envs is not None
    return bench_physics.bench_physics(
        settings.env, point.num_envs, _steps(point.num_envs, settings, last), PHYSICS_REPEATS
    )


# Two programs are timed (with and without auto-reset), each this many times after one warm-up run.
PHYSICS_REPEATS = 3
PHYSICS_RUNS = 2 * (PHYSICS_REPEATS + 1)
STEPS = (256, 128, 64, 32, 16)


def _seconds_at_worst(num_envs: int, steps: int, last: dict[str, Any] | None) -> float:
    """Upper estimate with step time proportional to the number of environments; 0 without a previous point."""
    if last is None:
        return 0.0
    step = 1e-3 * last["milliseconds_per_step"] * num_envs / last["num_envs"]
    return PHYSICS_RUNS * steps * step


def _steps(num_envs: int, settings: Settings, last: dict[str, Any] | None) -> int:
    """Steps that fit into the time budget; the fewest for the first point."""
    if last is None:
        return STEPS[-1]
    fitting = [n for n in STEPS if _seconds_at_worst(num_envs, n, last) <= settings.seconds]
    return fitting[0] if fitting else STEPS[-1]


def _too_much(point: Point, settings: Settings, last: dict[str, Any] | None) -> str | None:
    """The reason to skip a point: too much memory or time; None to measure it."""
    if point.what == "envs" and not settings.training:
        assert point.num_envs is not None
        worst = _seconds_at_worst(point.num_envs, STEPS[-1], last)
        if worst > PATIENCE * settings.seconds:
            return f"would take up to {worst:.0f} s"
        needed = _env_bytes(settings.env, point.num_envs)
    elif settings.training:
        needed = _plan_of(point, settings).bytes_in_all
    else:
        needed = bench_case.needed_bytes(_case(point, settings))
    free = free_bytes()
    if free is None or needed <= free:
        return None
    return f"needs {human_bytes(needed)} but {human_bytes(free)} are free"


def _plan_of(point: Point, settings: Settings) -> Schedule:
    more = {} if point.num_envs is None else {"num_envs": point.num_envs}
    config = bench_case.config_of(
        settings.env,
        point.seeds,
        settings.agent,
        settings.preset,
        settings.net(point.net),
        **settings.changes(**more),
    )
    return build(config).plan


def _env_bytes(env: str, num_envs: int) -> int:
    """Bytes of the environment states before and after a step."""
    state = jax.eval_shape(make(env, num_envs=num_envs).reset, jax.eval_shape(lambda: jax.random.key(0)))
    return 2 * bytes_of(state)


def line(row: Mapping[str, Any]) -> str:
    """A point as text."""
    head = f"{row['what']:6s}{row['x']!s:>8s}  "
    if "skipped" in row:
        return f"{head}skipped: {row['skipped']}"
    if "microseconds_per_update" in row:
        rate, each = row["updates_per_second"], row["microseconds_per_update"]
        reached = f"{row['tflops_per_second']:8.3g} TFLOP/s ({row['flops_fraction']:.1%})"
        return f"{head}{rate:12,.0f} updates/s {each:12,.1f} µs  {reached}"
    if "milliseconds_per_step" in row:
        return f"{head}{row['steps_per_second']:12,.0f} steps/s {row['milliseconds_per_step']:14,.3f} ms per step"
    steps, updates = row["env_steps_per_second"], row["updates_per_second"]
    return f"{head}{steps:12,.0f} steps/s {updates:14,.0f} updates/s"
