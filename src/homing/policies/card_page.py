"""A model card as a page of Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from homing.config.run import RunConfig

# In the order of a card's table; others follow by name.
FIRST = ("success_any", "success_end", "time_near_goal", "final_distance")
FIRST_OF_CHAIN = ("reached", "reached_all", "fell")
FIRST_ON_PAGE = ("reached", "reached_without_fall", "falls", "mean_seconds")


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
    return "\n".join(lines + _page_table(card) + _chain_table(card) + _table(card))


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


def _page_table(card: Mapping[str, Any]) -> list[str]:
    """What a person on the page can expect, of every seed."""
    page = card.get("page", {})
    if not page.get("scores"):
        return []
    name = f"**Goals reached on the page, in chains of {page.get('length', '?')}; a fallen robot gets up.**"
    seconds = f"{page['seconds']:g}" if "seconds" in page else "?"
    what = f"{page.get('chains', '?')} chains in {_code(page.get('env'))}, {seconds} s for each goal"
    when = f"{page.get('date', '?')}, Homing {page.get('homing', '?')}"
    return [f"{name} {what}, by {page.get('by', '?')}; {when}.", "", *_rows(page["scores"], FIRST_ON_PAGE)]


def _chain_table(card: Mapping[str, Any]) -> list[str]:
    """Fractions of goals reached along chains, of every seed."""
    chain = card.get("chain", {})
    if not chain.get("scores"):
        return []
    rule = f"**{'Stricter: a' if card.get('page') else 'A'} fall ends a chain.**"
    what = f"{rule} {chain.get('length', '?')} goals one after the other, without a reset"
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
    config = card.get("config", {})
    own = {name: config.get(name) for name in ("episode_length", "reward", "init_from")}
    usual = {field.name: field.default for field in dataclasses.fields(RunConfig) if field.name in own}
    lines = card["changed"] | {name: value for name, value in own.items() if value not in (None, usual[name])}
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
