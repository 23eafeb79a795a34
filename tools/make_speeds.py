"""Make the package's table of training speeds on an H200 from the measurements in results/."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import jax

from homing.agents import make_agent
from homing.config.presets import preset
from homing.envs import make
from homing.types import bytes_of

ROOT = Path(__file__).parent.parent
SOURCES = ("train_h200.json", "train_baselines_ant_h200.json")
TABLE = ROOT / "src" / "homing" / "studies" / "reference_speeds.json"


def speeds() -> dict[str, Any]:
    """One row for each environment, agent, physics and number of seeds; repeated measurements are averaged."""
    rows = [row for file in SOURCES for row in json.loads((ROOT / "results" / file).read_text())]
    groups: dict[tuple[str, str, str, int], list[dict[str, Any]]] = {}
    for row in rows:
        # Rows say where their pipeline has been renamed since.
        physics = "mjx_mujoco" if "mjx_mujoco now" in row.get("measured", "") else row["physics"]
        groups.setdefault((row["env"], row["agent"], physics, row["seeds"]), []).append(row)
    made = [_row(key, rows) for key, rows in groups.items()]
    return {"device": "NVIDIA H200", "files": [f"results/{file}" for file in SOURCES], "rows": made}


def _row(key: tuple[str, str, str, int], rows: list[dict[str, Any]]) -> dict[str, Any]:
    env, agent, physics, seeds = key
    steps = rows[0]["steps_per_iteration"]
    whole = fmean(row["seconds_per_iteration"] for row in rows)
    # On-policy agents are measured as a whole, which is then a cost of steps.
    learning = fmean(row.get("update_seconds") or 0.0 for row in rows)
    config = preset(agent, "paper", env)
    learner = jax.eval_shape(make_agent(config.agent, make(env).spec).init, jax.random.key(0))
    return {
        "env": env,
        "agent": agent,
        "physics": physics,
        "seeds": seeds,
        "seconds_per_step": (whole - learning) / steps,
        "seconds_per_update": learning / rows[0]["updates_per_iteration"],
        "batch_size": getattr(config.train, "batch_size", 0),
        "learner_bytes": bytes_of(learner),
    }


if __name__ == "__main__":
    TABLE.write_text(json.dumps(speeds(), indent=1) + "\n")
