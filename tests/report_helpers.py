"""Folders of runs that nobody trained, with curves of known shape."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

SESSION = {
    "time": "2026-11-15T06:00:00+00:00",
    "device": "a device",
    "platform": "cpu",
    "devices": 1,
    "cpu_cores": 2,
    "versions": {"homing": "0.1.0", "jax": "0.10.2"},
    "git": {"homing": {"commit": "0123456789abcdef", "changed": False}},
    "iteration": 0,
}


def rows_of(seeds, top=0.8, points=6, total=60_000, lr_scale=1.0, noise=0.03):
    """Success rises to about `top`; seed s is always the same."""
    rows = []
    for point in range(1, points + 1):
        for seed in seeds:
            rng = np.random.default_rng([seed, point])
            success = float(np.clip(top * (1 - np.exp(-3 * point / points)) + noise * rng.normal(), 0, 1))
            rows.append(
                {
                    "seed": seed,
                    "iteration": point,
                    "step": total * point // points,
                    "updates": 10 * point,
                    "finite": True,
                    "train/critic_loss": 3.0 / point + 0.1 * rng.normal(),
                    "train/entropy": 1.0 - 0.1 * point,
                    "eval/success_any": success,
                    "eval/time_near_goal": success / 2,
                    "eval/final_distance": 5 * (1 - success),
                    "speed/env_steps_per_second": 1000.0 * lr_scale,
                    "time/elapsed": 20.0 * point / lr_scale,
                    "time/evaluation": 0.5,
                }
            )
    return rows


def write_run(path: Path, agent="crl", env="ant", seeds=(0, 1, 2), *, finished=True, changes=None, **shape):
    """A run's folder as training leaves it; `changes` are settings by dotted name."""
    path.mkdir(parents=True)
    rows = rows_of(seeds, **shape)
    config = {
        "agent": agent,
        "env": env,
        "train": {"total_steps": 60_000, "num_envs": 8, "batch_size": 32},
        "settings": {"energy": "l2", "critic_net": {"width": 16}},
        "seeds": list(seeds),
        "preset": "paper",
        "eval_env": None,
        "episode_length": 100,
        "physics": None,
        "env_options": {},
        "save": {"tensorboard": "off"},
    }
    for name, value in (changes or {}).items():
        *parts, last = name.split(".")
        place = config
        for part in parts:
            place = place[part]
        place[last] = value
    (path / "config.json").write_text(json.dumps(config))
    (path / "sessions.json").write_text(json.dumps([SESSION]))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        (path / "summary.json").write_text(json.dumps({"status": "finished", "step": 60_000}))
    return path
