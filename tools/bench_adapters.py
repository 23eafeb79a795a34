"""Speed of adapters on this machine: steps per second beside Homing's own jitted step in a Python loop.

`python tools/bench_adapters.py [--env reacher ant] [--num-envs 1024] --out results/adapters_cpu.json`
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import gymnasium
import jax
import numpy as np

import homing
from homing.adapters.gymnasium import gymnasium_id
from homing.system import hardware

Run = Callable[[int], None]


def own_loop(env_id: str, actions: np.ndarray) -> Run:
    """The yardstick: `env.step`, jitted, called from Python, with nothing copied from the device."""
    env = homing.make(env_id, actions.shape[1])
    step = jax.jit(env.step)
    state = [jax.jit(env.reset)(jax.random.key(0))]

    def run(steps: int) -> None:
        for t in range(steps):
            state[0] = step(state[0], actions[t % len(actions)])
        jax.block_until_ready(state[0])

    return run


def vector_env(env_id: str, actions: np.ndarray) -> Run:
    env = gymnasium.make_vec(gymnasium_id(env_id), num_envs=actions.shape[1])
    env.reset(seed=0)
    return lambda steps: [env.step(actions[t % len(actions)]) for t in range(steps)] and None


def vec_env(env_id: str, actions: np.ndarray) -> Run:
    from homing.adapters.sb3 import HomingVecEnv

    env = HomingVecEnv(env_id, actions.shape[1])
    env.reset()
    return lambda steps: [env.step(actions[t % len(actions)]) for t in range(steps)] and None


ADAPTERS = {"gymnasium": (vector_env, "gymnasium"), "sb3": (vec_env, "stable-baselines3")}


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def bench(env_id: str, num_envs: int, steps: int, rounds: int) -> list[dict[str, Any]]:
    """One row for each adapter; the loops take turns, so that other load slows all of them."""
    size = (16, num_envs, homing.make(env_id).spec.action_dim)
    actions = np.random.default_rng(0).uniform(-1, 1, size).astype(np.float32)
    loops = {"own": own_loop(env_id, actions)}
    loops |= {
        name: make(env_id, actions) for name, (make, package) in ADAPTERS.items() if version_of(package)
    }
    seconds: dict[str, list[float]] = {name: [] for name in loops}
    for repeat in range(rounds + 1):
        for name, run in loops.items():
            begin = time.perf_counter()
            run(steps)
            if repeat:  # the first compiles
                seconds[name].append(time.perf_counter() - begin)
    speed = {name: num_envs * steps / median(times) for name, times in seconds.items()}
    return [
        {
            "env": env_id,
            "num_envs": num_envs,
            "adapter": name,
            "version": version_of(ADAPTERS[name][1]),
            "steps_per_second": round(speed[name]),
            "own_steps_per_second": round(speed["own"]),
            "fraction_of_own": round(
                median(own / other for own, other in zip(seconds["own"], seconds[name], strict=True)), 3
            ),
        }
        for name in loops
        if name != "own"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", nargs="+", default=["reacher", "point_u_maze", "ant"])
    parser.add_argument("--num-envs", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = []
    for env_id in args.env:
        rows += bench(env_id, args.num_envs, args.steps, args.rounds)
        print(*rows[-len(ADAPTERS) :], sep="\n", flush=True)
        measured = {"steps": args.steps, "rounds": args.rounds, "rows": rows, **hardware.describe()}
        args.out.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
