"""Speed measurements of the programs of a plan, by training each for a few iterations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from homing.config.run import RunConfig, from_json, to_json
from homing.studies import speeds
from homing.studies.planner import StudyPlan

SECONDS = 3.0


def measure(plan: StudyPlan, slot: dict[str, str], say: Callable[[str], None]) -> None:
    """Measure and record the speed of every program shape without a record, each in its own process."""
    seen: set[str] = set()
    for program in plan.programs:
        config = program.points[0].config
        shape = speeds.shape_id(config)
        found = speeds.nearest(speeds.known(plan.machine.device), config, program.seeds)
        if shape in seen or (found is not None and found[1] == "measured"):
            continue
        seen.add(shape)
        say(f"measuring {program.id}")
        request = json.dumps(
            {
                "config": to_json(config),
                "seeds": program.seeds,
                "device": plan.machine.device,
            }
        )
        done = subprocess.run(
            [sys.executable, "-m", "homing.studies.measuring"],
            input=request,
            env={**os.environ, **slot},
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode:
            say(f"could not measure {program.id}: {done.stderr.strip().splitlines()[-1:]}")


def measure_here(config: RunConfig, seeds: int, device: str) -> None:
    """Compile a program, train it for a few seconds after the prefill, and record its speed."""
    import dataclasses

    import jax

    from homing.compile.programs import Compiled
    from homing.training.device import choose_device
    from homing.training.population import joined_parts
    from homing.training.seeds import programs, seed_keys

    choose_device()
    parts = joined_parts([dataclasses.replace(config, seeds=tuple(range(seeds)))])
    compiled = Compiled(programs(parts.loop, parts.eval_env), seed_keys(range(seeds)))
    first = parts.plan.prefill_iterations
    train: Any = compiled.init()
    train, _ = jax.block_until_ready(compiled.epoch(train, first, first + 1))
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SECONDS:
        train, _ = jax.block_until_ready(compiled.epoch(train, first + 1 + count, first + 2 + count))
        count += 1
    each = (time.perf_counter() - begin) / count
    jax.block_until_ready(compiled.evaluate(train, 0))
    begin = time.perf_counter()
    jax.block_until_ready(compiled.evaluate(train, 1))
    speed = seeds * parts.plan.steps_per_iteration / each
    speeds.add(device, config, seeds, speed, time.perf_counter() - begin)


if __name__ == "__main__":
    request = json.load(sys.stdin)
    measure_here(from_json(request["config"]), request["seeds"], request["device"])
