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
from homing.runs.strict_json import flat
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
_PAGE: dict[str, Check] = {
    "by": TEXT,
    "env": TEXT,
    "chains": COUNT,
    "length": COUNT,
    "seconds": METRIC,
    "scores": _SCORES,
    "date": TEXT,
    "homing": TEXT,
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
    "page": fields(_PAGE, "a measurement on the page"),
    "trained": fields(SESSION, "a session"),
    "seeds": listed(SEED, "a list of seeds"),
    "chosen": TEXT,
    "exported": each(TEXT, "date and version"),
}


def check_card(card: Any) -> Card:
    """A card from a file, if every field that is there has its type."""
    if not isinstance(card, dict):
        raise HomingError("its card is not an object")
    if wrong := fault(card, _CARD):
        raise HomingError(f"its card is wrong: {wrong}")
    rows = [
        row for part in (card, card.get("chain", {}), card.get("page", {})) for row in part.get("scores", ())
    ]
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
    """A run's settings; of a dataset and of what it started from only the name, not where it lay."""
    settings = to_json(config)
    if config.init_from is not None:
        settings["init_from"] = Path(config.init_from).name
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
        theirs = flat(dataclasses.asdict(theirs))
        differ |= {k: v for k, v in flat(dataclasses.asdict(ours)).items() if theirs.get(k) != v}
    return differ


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
    own = lambda part: [row for row in part.get("scores", ()) if row["seed"] in seeds]
    chains = {name: {**card[name], "scores": own(card[name])} for name in ("chain", "page") if name in card}
    return {
        **card,
        **chains,
        "scores": own(card),
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


def with_page(card: Mapping[str, Any], results: Mapping[str, Any]) -> Card:
    """The card with what clicks on the page of `homing play` found, and when."""
    page = {**results, "date": datetime.date.today().isoformat(), "homing": __version__}
    return check_card({**card, "page": page})


def on_page(
    card: Mapping[str, Any], seed: int | None = None, where: str = "on the page"
) -> tuple[float, str] | None:
    """The fraction of goals that the best seed, or this one, reaches on the page, and what it is in words."""
    page = card.get("page", {})
    rows = [r for r in page.get("scores", ()) if "reached" in r and seed in (None, r["seed"])]
    if not rows:
        return None
    best = max(rows, key=lambda row: row["reached"])
    fallen = "; a fallen robot gets up" if best.get("falls") else ""
    return best["reached"], f"of goals reached {where}, in chains of {page.get('length', '?')}{fallen}"


def best_seed(card: Mapping[str, Any]) -> int | None:
    """The seed with the highest success rate; ties are broken by the time near the goal."""
    rows = [row for row in card["scores"] if SCORE in row]
    if not rows:
        return None
    return max(rows, key=lambda row: (row[SCORE], row.get("time_near_goal", 0.0)))["seed"]
