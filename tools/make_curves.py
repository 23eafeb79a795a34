"""Learning curves of files under results/ as pictures: mean over seeds, with the range of the seeds."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

RESULTS = Path(__file__).parent.parent / "results"
# Picture -> panels -> lines: the file of each.
PICTURES: dict[str, dict[str, dict[str, str]]] = {
    "survival_h200.png": {
        "Ant": {
            "SRL, fast preset": "learn_srl_ant_h200.jsonl",
            "goals renewed and far, lower entropy": "learn_srl_ant_far_h200.jsonl",
            "CRL, fast preset": "learn_crl_ant_fast_h200.jsonl",
            "CRL, paper settings": "learn_crl_ant_paper_50M_h200.jsonl",
        },
        "Ant U4 Maze": {
            "SRL, fast preset": "learn_srl_ant_u4_maze_rates_6e-4_h200.jsonl",
            "SRL, twice the learning rates": "learn_srl_ant_u4_maze_h200.jsonl",
            "twice the rates, goals renewed": "learn_srl_ant_u4_maze_renew_h200.jsonl",
            "goals renewed and far, lower entropy": "learn_srl_ant_u4_maze_far_h200.jsonl",
        },
        "Ant Big Maze": {
            "SRL, fast preset": "learn_srl_ant_big_maze_h200.jsonl",
            "twice the rates, goals renewed": "learn_srl_ant_big_maze_renew_h200.jsonl",
            "goals renewed and far, lower entropy": "learn_srl_ant_big_maze_far_h200.jsonl",
            "the same with waypoints": "learn_srl_ant_big_maze_waypoints_h200.jsonl",
        },
        "Ant Hardest Maze": {
            "SRL, twice the learning rates": "learn_srl_ant_hardest_maze_h200.jsonl",
            "twice the rates, goals renewed": "learn_srl_ant_hardest_maze_renew_h200.jsonl",
            "goals far, lower entropy, waypoints": "learn_srl_ant_hardest_maze_waypoints_h200.jsonl",
        },
    },
    "survival_more_h200.png": {
        "Ant U Maze": {
            "goals renewed": "learn_srl_ant_u_maze_renew_h200.jsonl",
            "goals renewed and far, lower entropy": "learn_srl_ant_u_maze_far_h200.jsonl",
        },
        "Ant U5 Maze": {
            "goals renewed": "learn_srl_ant_u5_maze_renew_h200.jsonl",
            "and far, lower entropy, waypoints": "learn_srl_ant_u5_maze_waypoints_h200.jsonl",
        },
        "Ant Soccer": {"SRL": "learn_srl_ant_soccer_h200.jsonl"},
        "Half-Cheetah": {"SRL": "learn_srl_half_cheetah_h200.jsonl"},
        "Pusher Hard": {"SRL": "learn_srl_pusher_hard_h200.jsonl"},
        "Humanoid": {"SRL": "learn_srl_humanoid_h200.jsonl"},
    },
}
# Picture -> the file and the metrics of one run that are drawn together.
RUNS: dict[str, tuple[str, dict[str, str]]] = {
    "sb3_her_reacher_cpu.png": (
        "sb3_her_reacher_cpu.jsonl",
        {"goal reached": "eval/success_any", "at the goal in the end": "eval/success_end"},
    ),
}
METRIC, LONGEST = "eval/time_near_goal", 25e6


def curve(file: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and values [T, seeds] of a metrics file, up to the longest run that is drawn."""
    values = defaultdict(list)
    for line in (RESULTS / file).read_text().splitlines():
        row = json.loads(line)
        if METRIC in row and row["step"] <= LONGEST:
            values[row["step"]].append(row[METRIC])
    steps = sorted(values)
    return np.asarray(steps), np.asarray([values[step] for step in steps])


def draw(name: str, panels: dict[str, dict[str, str]]) -> None:
    """Write one picture."""
    columns = len(panels) if len(panels) <= 4 else 3
    lines, rest = divmod(len(panels), columns)
    assert not rest, "panels fill their rows"
    figure, axes = plt.subplots(
        lines, columns, figsize=(4 * columns, 3 * lines), sharey=True, layout="constrained"
    )
    colours = {}
    for ax, (title, files) in zip(np.ravel(axes), panels.items(), strict=True):
        for label, file in files.items():
            steps, values = curve(file)
            colour = colours.setdefault(label, f"C{len(colours)}")
            ax.fill_between(
                steps / 1e6, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.2, lw=0
            )
            ax.plot(steps / 1e6, values.mean(axis=1), color=colour, label=label)
        ax.set(title=title, xlabel="million steps", ylim=(0, 1))
        ax.grid(alpha=0.3)
        ax.legend(fontsize=7)
    figure.supylabel("fraction of time near the goal")
    figure.savefig(RESULTS / name, dpi=110)
    plt.close(figure)


def draw_run(name: str, file: str, metrics: dict[str, str]) -> None:
    """Write a small picture of one run."""
    rows = [json.loads(line) for line in (RESULTS / file).read_text().splitlines()]
    figure, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
    for label, metric in metrics.items():
        ax.plot([row["step"] / 1e3 for row in rows], [row[metric] for row in rows], label=label)
    ax.set(xlabel="thousand steps", ylabel="fraction of episodes", ylim=(0, 1.02))
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    figure.savefig(RESULTS / name, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    for name, panels in PICTURES.items():
        draw(name, panels)
    for name, (file, metrics) in RUNS.items():
        draw_run(name, file, metrics)
