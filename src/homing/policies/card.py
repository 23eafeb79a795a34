"""Model cards: what a policy was trained by, and how well it reaches goals."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from homing.config.presets import preset
from homing.config.run import RunConfig, to_json
from homing.runs.folder import RunFolder
from homing.version import __version__

Card = dict[str, Any]
SCORE = "success_any"
# In the order of a card's table; others follow by name.
FIRST = ("success_any", "success_end", "time_near_goal", "final_distance")


def run_card(folder: RunFolder, config: RunConfig, which: str, iteration: int) -> Card:
    """What a run's folder tells of the policies of one iteration."""
    rows = [row for row in folder.rows() if row["iteration"] <= iteration]
    newest = max((row["iteration"] for row in rows), default=None)
    rows = [row for row in rows if row["iteration"] == newest]
    sessions = folder.sessions()
    card: Card = {
        "run": folder.path.name,
        "which": which,
        "iteration": iteration,
        "config": to_json(config),
        "changed": changed(config),
        "scores": [_scores(row) for row in rows],
    }
    if rows:
        card |= {"step": rows[0]["step"], "updates": rows[0]["updates"]}
        card["measured"] = _measured(config, rows[0])
    if sessions:
        card["trained"] = {key: sessions[-1][key] for key in _SESSION if key in sessions[-1]}
    return card


def changed(config: RunConfig) -> Card:
    """Settings that are not those of the preset, as it is now, by dotted name."""
    usual = preset(config.agent, config.preset, config.env)
    pairs = ((config.train, usual.train), (config.settings, usual.agent))
    differ: Card = {}
    for ours, theirs in pairs:
        theirs = _flat(dataclasses.asdict(theirs))
        differ |= {k: v for k, v in _flat(dataclasses.asdict(ours)).items() if theirs.get(k) != v}
    return differ


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Card:
    flat: Card = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping)
        flat |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return flat


_SESSION = ("device", "platform", "devices", "versions", "date", "git")


def _measured(config: RunConfig, row: Mapping[str, Any]) -> Card:
    return {
        "by": "the run's own evaluation",
        "env": config.eval_env or config.env,
        "episodes": config.train.eval_envs,
        "step": row["step"],
    }


def _scores(row: Mapping[str, Any]) -> Card:
    scores = {name.removeprefix("eval/"): v for name, v in row.items() if name.startswith("eval/")}
    return {"seed": row["seed"], **scores}


def exported(card: Mapping[str, Any], seeds: Sequence[int], chosen: str) -> Card:
    """The card of the seeds that are exported, and how they were chosen."""
    now = datetime.date.today().isoformat()
    return {
        **card,
        "scores": [row for row in card["scores"] if row["seed"] in seeds],
        "seeds": list(seeds),
        "chosen": chosen,
        "exported": {"date": now, "homing": __version__},
    }


def measured_again(card: Mapping[str, Any], told: Mapping[str, Any], seed: int) -> Card:
    """The card with what `homing.evaluate` has just told instead of the run's own evaluation."""
    by = f"an evaluation apart, on starts and goals of seed {seed}"
    measured = {"by": by, "env": told["env"], "episodes": told["episodes"], "step": card.get("step")}
    return {**card, "scores": told["seeds"], "measured": measured}


def best_seed(card: Mapping[str, Any]) -> int | None:
    """The seed with the highest success, of equal ones that which is near its goals longest."""
    rows = [row for row in card["scores"] if SCORE in row]
    if not rows:
        return None
    return max(rows, key=lambda row: (row[SCORE], row.get("time_near_goal", 0.0)))["seed"]


def markdown(name: str, card: Mapping[str, Any], size: int) -> str:
    """A model card as a page."""
    config = card["config"]
    facts = [
        ("environment", _code(config["env"]) + _options(config)),
        ("agent", _code(config["agent"]) + f", preset {_code(config['preset'])}"),
        ("other than the preset", _differences(card)),
        ("training", _training(card)),
        ("seeds", _seeds(card)),
        ("trained on", _hardware(card.get("trained", {}))),
        ("file", f"{size / 1024:,.0f} KiB, exported {card['exported']['date']} by Homing "
                 f"{card['exported']['homing']}"),
    ]  # fmt: skip
    lines = [f"## {name}", "", "| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in facts if v), ""]
    return "\n".join(lines + _table(card))


def _table(card: Mapping[str, Any]) -> list[str]:
    """Scores of every seed."""
    scores, measured = card["scores"], card.get("measured")
    if not scores or not measured:
        return ["It was not evaluated.", ""]
    names = {name for row in scores for name in row} - {"seed"}
    order = [*(n for n in FIRST if n in names), *sorted(names - set(FIRST))]
    head = [f"Measured by {measured['by']}: {measured['episodes']} episodes in {_code(measured['env'])}.", ""]
    head += ["| seed | " + " | ".join(str(row["seed"]) for row in scores) + " |"]
    head += ["|---" + "|---:" * len(scores) + "|"]
    body = [
        f"| {name} | " + " | ".join(f"{row[name]:.4g}" if name in row else "" for row in scores) + " |"
        for name in order
    ]
    return [*head, *body, ""]


def _differences(card: Mapping[str, Any]) -> str:
    if "changed" not in card:
        return ""
    lines, length = dict(card["changed"]), card["config"]["episode_length"]
    if length != RunConfig.episode_length:
        lines["episode_length"] = length
    show = lambda v: f"{v:.4g}" if isinstance(v, float) else str(v)
    return ", ".join(f"{_code(name)} {show(value)}" for name, value in lines.items())


def _training(card: Mapping[str, Any]) -> str:
    if "step" not in card:
        return ""
    train = card["config"]["train"]
    return (
        f"{card['step']:,} environment steps and {card['updates']:,} updates of {train['batch_size']} rows, "
        f"{train['num_envs']} environments; the {card['which']} policy"
    )


def _seeds(card: Mapping[str, Any]) -> str:
    kept = ", ".join(map(str, card["seeds"]))
    return f"{kept} ({card['chosen']}) of {len(card['config']['seeds'])} that were trained"


def _hardware(trained: Mapping[str, Any]) -> str:
    if not trained:
        return ""
    versions = trained.get("versions", {})
    count = f"{trained['devices']} × " if trained.get("devices", 1) > 1 else ""
    commit = trained.get("git", {}).get("homing", {}).get("commit", "")
    code = f", commit {_code(commit[:10])}" if commit else ""
    software = f"Homing {versions.get('homing', '?')}, JAX {versions.get('jax', '?')}"
    return f"{count}{trained['device']}, {trained['date']}, {software}{code}"


def _options(config: Mapping[str, Any]) -> str:
    parts = [f"{name} = {value}" for name, value in config["env_options"].items()]
    parts += [f"physics {config['physics']}"] if config["physics"] else []
    return f" with {', '.join(parts)}" if parts else ""


def _code(text: str) -> str:
    return f"`{text}`"
