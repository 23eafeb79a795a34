"""Model cards: how a policy was trained, and how well it reaches goals."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from homing.config.offpolicy import offline
from homing.config.presets import preset
from homing.config.run import RunConfig, to_json
from homing.errors import HomingError
from homing.runs.folder import RunFolder
from homing.runs.validation import (
    COLUMNS,
    COUNT,
    METRIC,
    OBJECT,
    SEED,
    SESSION,
    TEXT,
    Check,
    each,
    fault,
    fields,
    listed,
)
from homing.version import __version__

Card = dict[str, Any]
SCORE = "success_any"
# In the order of a card's table; others follow by name.
FIRST = ("success_any", "success_end", "time_near_goal", "final_distance")
FIRST_OF_CHAIN = ("reached", "reached_all", "fell")


_TRAIN = fields({"batch_size": COUNT, "num_envs": COUNT}, "an object of training settings")
_CONFIG: dict[str, Check] = {
    "agent": TEXT,
    "env": TEXT,
    "preset": TEXT,
    "episode_length": COUNT,
    "seeds": listed(SEED, "a list of seeds"),
    "env_options": OBJECT,
    "imports": listed(TEXT, "a list of modules"),
    "train": _TRAIN,
}
_SCORES = listed(each(METRIC, "scores of a seed"), "a list of scores")
_CHAIN: dict[str, Check] = {
    "by": TEXT,
    "env": TEXT,
    "episodes": COUNT,
    "length": COUNT,
    "steps": COUNT,
    "scores": _SCORES,
}
_CARD: dict[str, Check] = {
    "run": TEXT,
    "which": TEXT,
    "iteration": COUNT,
    "config": fields(_CONFIG, "a run's settings"),
    "changed": OBJECT,
    "scores": _SCORES,
    "step": COUNT,
    "updates": COUNT,
    "measured": fields({"by": TEXT, "env": TEXT, "episodes": COUNT}, "an evaluation"),
    "chain": fields(_CHAIN, "an evaluation of chains"),
    "trained": fields(SESSION, "a session"),
    "seeds": listed(SEED, "a list of seeds"),
    "chosen": TEXT,
    "exported": each(TEXT, "date and version"),
}


def check_card(card: Any) -> Card:
    """A card from a file, if every field that is there has its type."""
    if not isinstance(card, dict):
        raise HomingError("its card is no object")
    if wrong := fault(card, _CARD):
        raise HomingError(f"its card is wrong: {wrong}")
    rows = [*card.get("scores", ()), *card.get("chain", {}).get("scores", ())]
    if any(not SEED.holds(row.get("seed")) for row in rows):
        raise HomingError("its card has scores without a seed")
    return {"scores": [], **card}


def run_card(folder: RunFolder, config: RunConfig, which: str, iteration: int) -> Card:
    """The card of a run's policies of one iteration, from its config, metrics and sessions."""
    rows = [row for row in folder.rows(COLUMNS) if row["iteration"] <= iteration]
    newest = max((row["iteration"] for row in rows), default=None)
    rows = [row for row in rows if row["iteration"] == newest]
    sessions = folder.sessions()
    card: Card = {
        "run": folder.path.name,
        "which": which,
        "iteration": iteration,
        "config": _settings(config),
        "changed": changed(config),
        "scores": [_scores(row) for row in rows],
    }
    if rows:
        card |= {"step": rows[0]["step"], "updates": rows[0]["updates"]}
        card["measured"] = _measured(config, rows[0])
    if sessions:
        card["trained"] = {key: sessions[-1][key] for key in _SESSION if key in sessions[-1]}
    return card


def _settings(config: RunConfig) -> Card:
    """A run's settings; of a dataset only the name, not where it lay."""
    settings = to_json(config)
    if config.data is not None:
        settings["data"] = {"path": Path(config.data.path).name, "sha256": config.data.sha256}
    return settings


def changed(config: RunConfig) -> Card:
    """Settings that differ from the preset, as it is now, by dotted name."""
    usual = preset(config.agent, config.preset, config.env)
    train = usual.train if config.data is None else offline(usual.train)
    pairs = ((config.train, train), (config.settings, usual.agent))
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


def measured_again(card: Mapping[str, Any], results: Mapping[str, Any], seed: int) -> Card:
    """The card with results of `homing.evaluate` in place of the run's own evaluation."""
    by = f"a separate evaluation with reset seed {seed}"
    measured = {"by": by, "env": results["env"], "episodes": results["episodes"], "step": card.get("step")}
    return {**card, "scores": results["seeds"], "measured": measured}


def with_chain(card: Mapping[str, Any], results: Mapping[str, Any], seed: int) -> Card:
    """The card with results of `homing.evaluate` along chains of goals beside its scores."""
    chain = {
        "by": f"a separate evaluation with reset seed {seed}",
        "env": results["env"],
        "episodes": results["episodes"],
        "length": results["chain"],
        "steps": results["chain_steps"],
        "scores": results["seeds"],
    }
    return {**card, "chain": chain}


def best_seed(card: Mapping[str, Any]) -> int | None:
    """The seed with the highest success rate; ties are broken by the time near the goal."""
    rows = [row for row in card["scores"] if SCORE in row]
    if not rows:
        return None
    return max(rows, key=lambda row: (row[SCORE], row.get("time_near_goal", 0.0)))["seed"]


def markdown(name: str, card: Mapping[str, Any], size: int) -> str:
    """A model card as a page; facts that the card does not have are left out."""
    config = card.get("config", {})
    facts = [
        ("environment", _code(config.get("env")) + _options(config)),
        ("agent", _code(config.get("agent")) + (f", preset {_code(config['preset'])}" if "preset" in config else "")),
        ("changed settings", _differences(card)),
        ("training", _training(card)),
        ("seeds", _seeds(card)),
        ("trained on", _hardware(card.get("trained", {}))),
        ("file", _file(card, size)),
    ]  # fmt: skip
    lines = [f"## {name}", "", "| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in facts if v), ""]
    return "\n".join(lines + _table(card) + _chain_table(card))


def _file(card: Mapping[str, Any], size: int) -> str:
    made = card.get("exported", {})
    by = f", exported {made['date']} by Homing {made.get('homing', '?')}" if "date" in made else ""
    return f"{size / 1024:,.0f} KiB{by}"


def _table(card: Mapping[str, Any]) -> list[str]:
    """Scores of every seed."""
    scores, measured = card["scores"], card.get("measured")
    if not scores or not measured:
        return ["It was not evaluated.", ""]
    episodes, env = measured.get("episodes", "?"), _code(measured.get("env"))
    head = [f"Measured by {measured.get('by', '?')}: {episodes} episodes in {env}.", ""]
    return head + _rows(scores, FIRST)


def _chain_table(card: Mapping[str, Any]) -> list[str]:
    """Fractions of goals reached along chains, of every seed."""
    chain = card.get("chain", {})
    if not chain.get("scores"):
        return []
    what = f"{chain.get('length', '?')} goals one after the other, without a reset"
    where = f"{chain.get('episodes', '?')} chains in {_code(chain.get('env'))}"
    head = f"{what}, with {chain.get('steps', '?')} steps for each: {where}, by {chain.get('by', '?')}."
    return [head, "", *_rows(chain["scores"], FIRST_OF_CHAIN)]


def _rows(scores: Sequence[Mapping[str, Any]], first: Sequence[str]) -> list[str]:
    """A table with a column for each seed, and the metrics `first` in this order."""
    names = {name for row in scores for name in row} - {"seed"}
    order = [*(n for n in first if n in names), *sorted(names - set(first))]
    head = ["| seed | " + " | ".join(str(row["seed"]) for row in scores) + " |"]
    head += ["|---" + "|---:" * len(scores) + "|"]
    body = [
        f"| {name} | " + " | ".join(f"{row[name]:.4g}" if name in row else "" for row in scores) + " |"
        for name in order
    ]
    return [*head, *body, ""]


def _differences(card: Mapping[str, Any]) -> str:
    if "changed" not in card:
        return ""
    lines, length = dict(card["changed"]), card.get("config", {}).get("episode_length")
    if length not in (None, RunConfig.episode_length):
        lines["episode_length"] = length
    show = lambda v: f"{v:.4g}" if isinstance(v, float) else str(v)
    return ", ".join(f"{_code(name)} {show(value)}" for name, value in lines.items())


def _training(card: Mapping[str, Any]) -> str:
    if "step" not in card:
        return ""
    config = card.get("config", {})
    train, data = config.get("train", {}), config.get("data")
    parts = [f"{card['step']:,} environment steps"] if data is None else ["a dataset"]
    parts += [f"{card['updates']:,} updates"] if "updates" in card else []
    parts += [f"batch size {train['batch_size']}"] if "batch_size" in train else []
    parts += [f"{train['num_envs']} environments"] if "num_envs" in train and data is None else []
    return ", ".join(parts) + (f"; the {card['which']} policy" if "which" in card else "")


def _seeds(card: Mapping[str, Any]) -> str:
    if "seeds" not in card:
        return ""
    trained = card.get("config", {}).get("seeds")
    kept = ", ".join(map(str, card["seeds"]))
    how = f" ({card['chosen']})" if "chosen" in card else ""
    return kept + how + (f" of {len(trained)} that were trained" if trained is not None else "")


def _hardware(trained: Mapping[str, Any]) -> str:
    if not trained:
        return ""
    versions = trained.get("versions", {})
    count = f"{trained['devices']} × " if trained.get("devices", 1) > 1 else ""
    commit = trained.get("git", {}).get("homing", {}).get("commit", "")
    code = f", commit {_code(commit[:10])}" if commit else ""
    software = f"Homing {versions.get('homing', '?')}, JAX {versions.get('jax', '?')}"
    return f"{count}{trained.get('device', '?')}, {trained.get('date', '?')}, {software}{code}"


def _options(config: Mapping[str, Any]) -> str:
    parts = [f"{name} = {value}" for name, value in config.get("env_options", {}).items()]
    parts += [f"physics {config['physics']}"] if config.get("physics") else []
    return f" with {', '.join(parts)}" if parts else ""


def _code(text: str | None) -> str:
    return f"`{text}`" if text is not None else "?"
