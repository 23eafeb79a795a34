"""Write the numbers of README.md, of docs/index.md and docs/see.md from results/ (texts: tools/numbers.md)."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from homing import load
from homing.config.recipes import recipe_for, recipes

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
TEXTS = Path(__file__).with_name("numbers.md")
# Pages, and how each leads to the list of results.
PAGES = {
    "README.md": "results/README.md",
    "docs/index.md": "../results/README.md",
    "docs/see.md": "../results/README.md",
}
# Steps whose evaluations are compared: both curves have levelled off, and the original's files end here.
WINDOW = 9.0e6, 13.6e6
LAST = 3  # evaluations at the end of a run that are averaged
OURS = ("spring", "generalized", "mjx")
REFACTOR = {"name": "train_ant_refactor_h200.json", "code": "after the refactor"}
Row = dict[str, Any]


def rows(name: str) -> list[Row]:
    """The rows of a file: a list in JSON, or a line each."""
    path = RESULTS / name
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    return json.loads(path.read_text())


def speeds(name: str, **wanted: Any) -> list[float]:
    """Environment steps per second over all seeds, of the rows with these facts."""
    found = (row for row in rows(name) if all(row.get(key) == value for key, value in wanted.items()))
    return [row["env_steps_per_second"] for row in found if row["physics"] in OURS]


def in_window(found: Sequence[Row], metric: str) -> tuple[float, int]:
    """Mean over the evaluations in the window, and the number of seeds."""
    chosen = [row for row in found if WINDOW[0] <= row["step"] <= WINDOW[1]]
    return statistics.mean(row[metric] for row in chosen), len({row["seed"] for row in chosen})


def at_the_end(name: str, metric: str) -> float:
    """Mean over seeds and the last evaluations of a run."""
    found = rows(name)
    steps = sorted({row["step"] for row in found})[-LAST:]
    return statistics.mean(row[metric] for row in found if row["step"] in steps)


def facts() -> dict[str, str]:
    """Every number by the name that it has in the texts."""
    return _comparison() | _recipes() | _speeds() | _pages()


def _comparison() -> dict[str, str]:
    slow = statistics.mean(row["sps"] for row in rows("jaxgcrl_ant_speed_h200.jsonl")[1:])  # first: compiling
    (fast,), (full,) = (
        speeds(seeds=10, **REFACTOR),
        speeds("train_ant_h200.json", seeds=10, net_dtype="float32"),
    )
    published = [row for row in rows("jaxgcrl_ant_h200.jsonl") if row["name"].startswith("jaxgcrl_s")]
    theirs, their_seeds = in_window(published, "episode_success_any")
    ours, our_seeds = in_window(rows("learn_crl_ant_paper_50M_h200.jsonl"), "eval/success_any")
    fourth = json.loads((RESULTS / "jaxgcrl_ant_seed0_h200.json").read_text())
    (command,), measured = rows("time_ant_paper_50M_h200.json"), rows(REFACTOR["name"])[-1]
    best_file = str(recipe_for("ant").result)
    best = rows(best_file)
    return {
        "original_speed": _count(slow),
        "ten_seeds": _count(fast),
        "times": f"{fast / slow:.0f}",
        "times_float32": f"{full / slow:.0f}",
        "ten_seeds_float32": _count(full),
        "ten_seeds_elsewhere": _count(min(speeds("train_h200.json", env="ant", seeds=10))),
        "original_success": _percent(theirs),
        "original_seeds": str(their_seeds),
        "paper_success": _percent(ours),
        "paper_seeds": str(our_seeds),
        "paper_seconds": f"{command['whole_command_seconds']:.0f}",
        "original_fourth": _percent(fourth["episode_success_any"]),
        "original_fourth_steps": _count(fourth["step"]),
        "best_success": _percent(at_the_end(best_file, "eval/success_any")),
        "best_steps": _count(max(row["step"] for row in best), 2),
        "best_seeds": str(len({row["seed"] for row in best})),
        "jax": measured["versions"]["jax"],
        "brax": measured["versions"]["brax"],
        "first_date": command["date"],
        "last_date": measured["date"],
    }


def _recipes() -> dict[str, str]:
    """A row of the table for each recipe with a recorded run."""
    lines = []
    for recipe in recipes():
        if recipe.result is not None:
            found = rows(recipe.result)
            cells = [
                f"{recipe.env.replace('_', ' ').title()} (`{recipe.env}`)",
                recipe.agent.upper() + ("" if recipe.reward == "sparse" else f", {recipe.reward} reward"),
                str(len({row["seed"] for row in found})),
                _count(max(row["step"] for row in found), 2),
                _percent(at_the_end(recipe.result, "eval/success_any")),
                _percent(at_the_end(recipe.result, "eval/time_near_goal")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    near = at_the_end("learn_crl_ant_paper_50M_h200.jsonl", "eval/time_near_goal")
    humanoid = "learn_srl_humanoid_h200.jsonl"
    dense = "learn_ppo_dense_ant_h200.jsonl"
    return {
        "recipe_rows": "\n".join(lines),
        "srl_humanoid_success": _percent(at_the_end(humanoid, "eval/success_any")),
        "humanoid_before": _count(load("humanoid").card["step"], 2),
        "srl_humanoid_steps": _count(max(row["step"] for row in rows(humanoid)), 2),
        "paper_near": _percent(near),
        "dense_success": _percent(at_the_end(dense, "eval/success_any")),
        "dense_steps": _count(max(row["step"] for row in rows(dense)), 2),
    }


def _speeds() -> dict[str, str]:
    many = lambda env, seeds: _count(max(speeds("train_h200.json", env=env, seeds=seeds)))
    found = {f"speed_ant_{seeds}": many("ant", seeds) for seeds in (1, 10, 32)}
    for env in ("ant_big_maze", "ant_soccer", "reacher", "humanoid"):
        found[f"speed_{env}_10"] = many(env, 10)
    for row in rows("kernels_h200.json"):  # measured again when their physics got kernels
        if row["what"].startswith("whole training"):
            found[f"speed_{row['env']}_10"] = _count(row["env_steps_per_second"])
    for agent in ("sac", "td3", "ppo"):
        found[f"speed_{agent}"] = _count(*speeds("train_baselines_ant_h200.json", agent=agent))
    for row in rows("learner_kernels_h200.json")[:2]:
        micro, times = row["microseconds_per_update"], row["times_without_kernels"]
        found |= {
            f"update_{row['agent']}": f"{micro:.0f}",
            f"update_{row['agent']}_plain": f"{micro * times:.0f}",
        }
    warm, cold = (f"{row['whole_command_seconds']:.0f}" for row in rows("time_ant_fast_h200.json"))
    return found | {"fast_seconds": warm, "fast_seconds_cold": cold}


def _pages() -> dict[str, str]:
    """How soon pages of `homing play` are ready, and what a frame costs."""
    found = json.loads((RESULTS / "play_cpu.json").read_text())
    starts, frames = (
        found["starts"],
        [row for name, row in found["pages"].items() if name.startswith("play ")],
    )
    lines = [
        f"| `{name}` | {row['cold_seconds']:.1f} s | {row['warm_seconds']:.1f} s |"
        for name, row in starts["pages"].items()
    ]
    low_high = lambda name: "{:.1f} to {:.1f}".format(
        *(pick(row[name] for row in frames) for pick in (min, max))
    )
    return {
        "ready_rows": "\n".join(lines),
        "ready_machine": f"{starts['cores']} cores of an {starts['cpu']}",
        "ready_date": starts["date"],
        "frame_browser": low_high("main_thread_ms"),
        "frame_server": low_high("server_ms"),
        "frame_traffic": f"{max(row['sent_kB_per_second'] for row in frames):.0f}",
    }


def _percent(value: float) -> str:
    """In whole per cent; what is nearly all is not shown as all."""
    nearly = 0.995 <= value < 0.9995
    return f"{100 * value:.{1 if nearly else 0}f} %"


def _count(value: float, digits: int = 3) -> str:
    if value < 1e6:
        return f"{value / 1e3:.0f} k"
    millions = value / 1e6
    return f"{millions:.0f} M" if millions >= 10**digits else f"{millions:#.{digits}g} M".replace(". ", " ")


def texts() -> dict[str, str]:
    """The parts of the texts, by heading."""
    parts = re.split(r"^# (\w+)\n", TEXTS.read_text(), flags=re.M)[1:]
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def updated(page: str) -> str:
    """The text of a page with its numbers as the files have them."""
    text, known = (ROOT / page).read_text(), facts() | {"results": PAGES[page]}
    for name, part in texts().items():
        begin, end = f"<!-- begin {name}: tools/make_numbers.py -->", f"<!-- end {name} -->"
        if begin in text:
            before, rest = text.split(begin)
            text = f"{before}{begin}\n{part.format(**known)}\n{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    for page in PAGES:
        (ROOT / page).write_text(updated(page))


if __name__ == "__main__":
    main()
