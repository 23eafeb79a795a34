"""Commands that measure: `homing bench physics`, `train`, `learner` and `scaling`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import tyro

from homing.bounds import check_values
from homing.cli.arguments import Flag, Json
from homing.cli.bench_output import Rows, physics_line, ratio, say, twin_of
from homing.cli.paths import check_file

Dtype = Literal["float32", "bfloat16"]
bench_app = tyro.extras.SubcommandApp()


def _changes(**settings: Any) -> dict[str, Any]:
    """Settings that were given."""
    return {name: value for name, value in settings.items() if value is not None and value is not False}


def _net(dtype: str | None) -> dict[str, Any]:
    return {} if dtype is None else {"dtype": dtype}


def _check_counts(seconds: float, seeds: tuple[int, ...] = (), num_envs: int | None = None) -> None:
    check_values(seconds=seconds, num_envs=num_envs)
    for count in seeds:
        check_values(seeds=count)


def _usual(*seeds: int) -> tuple[int, ...]:
    """Numbers of seeds to measure where none are given: on a CPU several take as many times as long as one."""
    import jax

    return seeds if jax.default_backend() == "gpu" else seeds[:1]


@bench_app.command(name="physics")
def physics(
    env: tuple[str, ...] = ("ant",),
    num_envs: tuple[int, ...] = (1024,),
    steps: int = 256,
    repeats: int = 5,
    physics: str | None = None,
    compare: bool = False,
    reset_cost: bool = True,
    json_: Json = False,
    out: Path | None = None,
) -> None:
    """Measure environment steps per second, with auto-reset, under random actions.

    Where several are measured, one that fails is reported and the others continue; the exit code is then 1.
    On a GPU, several are compiled in parallel before they are measured.

    Args:
        env: ids of environments, or `all`
        num_envs: numbers of parallel environments to measure each with
        steps: environment steps in one timed run
        repeats: timed runs, of which the median is reported
        physics: physics pipeline, instead of the environments' default
        compare: measure each again without custom kernels (on a CPU, without stages), and report the ratio
        reset_cost: measure the fraction of auto-reset too, which compiles one more program
        json_: print JSON instead of a table
        out: also write the JSON to this file
    """
    from homing.bench import physics as bench_physics
    from homing.envs import env_ids
    from homing.envs.registry import resolve

    ids = env_ids() if env == ("all",) else tuple(resolve(id) for id in env)
    for count in num_envs:
        check_values(num_envs=count, steps=steps, repeats=repeats)
    output, failed = Rows(json_, out), []
    cases = [(id, count) for id in ids for count in num_envs]
    rows = bench_physics.physics_rows(cases, steps, repeats, physics, compare, reset_cost)
    for (id, count), row in zip(cases, rows, strict=True):
        if not isinstance(row, Exception):
            output.add(row, physics_line(row))
        elif len(cases) == 1:
            raise row
        else:
            why = (str(row).strip() or type(row).__name__).splitlines()[0]
            failed.append(id)
            say(f"homing: {id} with {count} environments failed: {why}")
            output.add({"env": id, "num_envs": count, "failed": why}, f"{id:24s} {count:6d} envs  failed")
    output.end()
    if failed:
        say(f"homing: {len(failed)} of {len(cases)} failed: {', '.join(dict.fromkeys(failed))}")
        raise SystemExit(1)


@bench_app.command(name="train")
def train(
    env: tuple[str, ...] = ("ant",),
    seeds: tuple[int, ...] = (),
    agent: str = "crl",
    preset: str = "paper",
    her: Flag = False,
    num_envs: int | None = None,
    prefill_steps: int | None = None,
    replay_dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    batch_size: int | None = None,
    net_dtype: Dtype | None = None,
    seconds: float = 20.0,
    physics: str | None = None,
    breakdown: bool = True,
    evaluation: bool = True,
    compare: Flag = False,
    compare_kernels: Flag = False,
    cpu: Flag = False,
    json_: Json = False,
    out: Path | None = None,
) -> None:
    """Measure training: steps and updates per second, where the time goes, evaluation, compilation, memory.

    Args:
        env: ids of environments
        seeds: numbers of seeds to measure each with; 1 10 by default, on a CPU 1
        agent: the agent: crl, srl, sac, td3, ppo or a registered one
        preset: preset of the agent's settings
        her: with hindsight experience replay (sac, td3)
        num_envs: environments of each seed, instead of the preset's
        prefill_steps: steps of each environment before the first update: fewer, where the physics is slow
        replay_dtype: number format of states and actions in replay, instead of the preset's
        batch_size: transitions in a batch, instead of the preset's
        net_dtype: arithmetic of the networks, instead of the preset's
        seconds: time to measure each, after compiling; as long again for the breakdown
        physics: physics pipeline, instead of the environments' default
        breakdown: divide an iteration into its parts, each compiled by itself
        evaluation: compile and measure evaluation too
        compare: measure each again in float32 as XLA compiles it by default, and report the ratio
        compare_kernels: measure each again without custom kernels, and report the ratio
        cpu: compute on the CPU, even if there is a GPU
        json_: print JSON instead of lines
        out: also write the JSON to this file
    """
    from homing.bench import table as bench_table
    from homing.bench import train as bench_train
    from homing.training.device import choose_device

    _check_counts(seconds, seeds, num_envs)
    twin = twin_of(compare, compare_kernels)
    changes = _changes(
        her=her,
        num_envs=num_envs,
        batch_size=batch_size,
        prefill_steps=prefill_steps,
        replay_dtype=replay_dtype,
    )
    output = Rows(json_, out)
    choose_device(cpu)
    asked = [(id, count) for id in env for count in seeds or _usual(1, 10)]
    given = {"agent": agent, "preset": preset, "physics": physics, **changes}
    for row in bench_table.train_rows(asked, given, _net(net_dtype), seconds, breakdown, evaluation, twin):
        output.add(row, bench_train.line(row) + ratio(row))
    output.end()


@bench_app.command(name="learner")
def learner(
    env: tuple[str, ...] = ("ant",),
    seeds: tuple[int, ...] = (),
    agent: tuple[str, ...] = ("crl",),
    preset: str = "paper",
    batch_size: int | None = None,
    net: str | None = None,
    net_dtype: Dtype | None = None,
    seconds: float = 5.0,
    compare: Flag = False,
    compare_kernels: Flag = False,
    cpu: Flag = False,
    json_: Json = False,
    out: Path | None = None,
) -> None:
    """Measure updates of one or several agents alone, on random batches: no physics is compiled.

    Args:
        env: environments that give the sizes of states, goals and actions
        seeds: numbers of seeds to measure each with; 1 10 32 by default, on a CPU 1
        agent: agents to measure each with: crl, srl, sac, td3, ppo or registered ones
        preset: preset of the agents' settings
        batch_size: transitions in a batch, instead of the preset's
        net: size of the networks, instead of the preset's: 2x256, 4x1024, r16x256 (r: residual blocks), ...
        net_dtype: arithmetic of the networks, instead of the preset's
        seconds: time to measure each, after compiling
        compare: measure each again in float32 as XLA compiles it by default, and report the ratio
        compare_kernels: measure each again without custom kernels, and report the ratio
        cpu: compute on the CPU, even if there is a GPU
        json_: print JSON instead of lines
        out: also write the JSON to this file
    """
    from homing.bench import learner as bench_learner
    from homing.bench import table as bench_table
    from homing.bench.case import make_case
    from homing.bench.scaling import net_of
    from homing.training.device import choose_device

    _check_counts(seconds, seeds)
    twin, size = twin_of(compare, compare_kernels), {} if net is None else net_of(net)
    output = Rows(json_, out)
    choose_device(cpu)
    changes = _changes(batch_size=batch_size)
    counts = seeds or _usual(1, 10, 32)
    asked = [(id, count, name, preset) for id in env for name in agent for count in counts]
    cases = [make_case(*what, size | _net(net_dtype), **changes) for what in asked]
    twins = cases if compare_kernels else []
    if compare:
        twins = [make_case(*what, size, **changes) for what in asked]
    for row in bench_table.learner_rows(cases, twins, seconds, twin or "plain"):
        output.add(row, bench_learner.line(row) + ratio(row))
    output.end()


@bench_app.command(name="scaling")
def scaling(
    what: Literal["seeds", "envs", "nets", "all"] = "all",
    env: str = "ant",
    agent: str = "crl",
    preset: str = "paper",
    seeds: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64),
    num_envs: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768),
    nets: tuple[str, ...] = (),
    batch_size: int | None = None,
    net_dtype: Dtype | None = None,
    seconds: float = 3.0,
    training: Flag = False,
    cpu: Flag = False,
    json_: Json = False,
    out: Path | None = None,
    figure: Path | None = None,
) -> None:
    """Measure how cost grows: updates with seeds and networks, physics with environments.

    Args:
        what: what to vary: seeds, envs, nets, or all of them one after the other
        env: id of an environment
        agent: the agent: crl, srl, sac, td3, ppo or a registered one
        preset: preset of the agent's settings
        seeds: numbers of seeds to measure with
        num_envs: numbers of environments to measure with
        nets: networks, for instance 2x256 4x1024 r64x256 (r: residual blocks); eleven usual ones if not given
        batch_size: transitions in a batch, instead of the preset's
        net_dtype: arithmetic of the networks, instead of the preset's
        seconds: time to measure each point, after compiling
        training: measure whole training at every point, with the physics
        cpu: compute on the CPU, even if there is a GPU
        json_: print JSON instead of lines
        out: also write the JSON to this file, after every point
        figure: draw a figure to this file, which ends with .png, .pdf or .svg
    """
    from homing.bench import figures as bench_figures
    from homing.bench import scaling as bench_scaling
    from homing.training.device import choose_device

    if figure is not None:
        bench_figures.check_figure(figure)
        check_file("--figure", figure)
    _check_counts(seconds)
    output = Rows(json_, out)
    asked = bench_scaling.points(what, seeds, num_envs, nets)
    settings = bench_scaling.Settings(env, agent, preset, seconds, training, net_dtype, batch_size)
    choose_device(cpu)
    bench_scaling.check(settings)
    for row in bench_scaling.measure(asked, settings):
        output.add(row, bench_scaling.line(row))
        if json_:
            say(bench_scaling.line(row))
    output.end()
    if figure is not None:
        bench_figures.write_scaling(output.rows, figure)
        say(f"figure: {figure}")
