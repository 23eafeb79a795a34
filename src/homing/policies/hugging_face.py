"""A policy as a folder for a model hub: its file and a model card with metadata in Hugging Face's form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from homing.envs.info import gymnasium_id
from homing.errors import ConfigError, shown
from homing.policies.card_page import FIRST, markdown
from homing.policies.store import Policies, read_policies
from homing.runs.folder import write_whole
from homing.runs.tensors import SUFFIX

CARD = "README.md"
LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")


def policy_file(folder: str | Path) -> Path:
    """The policy file in a folder: it has the folder's name."""
    folder = Path(folder)
    return folder / f"{folder.absolute().name}{SUFFIX}"


def check_folder(folder: str | Path, license: str) -> Path:
    """Refuse a folder that holds something, and what is no license's name."""
    folder = Path(folder)
    if folder.suffix in (SUFFIX, ".onnx"):
        raise ConfigError(f"with --hf, --out names a folder, not the file {folder}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is not empty; choose a new folder with --out")
    if not isinstance(license, str) or not LICENSE.fullmatch(license):
        raise ConfigError(
            f"--license takes an identifier such as apache-2.0 or cc-by-4.0, not {shown(license)}"
        )
    return folder


def write_card(path: Path, license: str) -> Path:
    """The model card of a policy file, as README.md beside it."""
    policies = read_policies(path)
    name, card = path.stem, policies.card
    env, agent = policies.choice.env, policies.agent_name
    text = "\n".join(
        [
            "---",
            *_yaml(front_matter(name, env, agent, card, license)),
            "---",
            "",
            f"# {name}",
            "",
            _about(policies),
            "",
            "```python",
            "import homing",
            "",
            f'policy = homing.load("{path.name}")',
            "env = policy.make_env(num_envs=8)",
            "```",
            "",
            markdown(name, card, path.stat().st_size),
        ]
    )
    write_whole(path.parent / CARD, text)
    return path.parent / CARD


def _about(policies: Policies) -> str:
    spec, chunk = policies.spec, policies.agent.chunk
    return (
        f"A goal-conditioned policy for the environment `{policies.choice.env}`, trained by `{policies.agent_name}` "
        f"of Homing. It maps a state of {spec.state_dim} entries and a goal of {spec.goal_dim} to an action of "
        f"{spec.action_dim} in [−1, 1]" + (f", planned {chunk} at a time." if chunk > 1 else ".")
    )


def front_matter(name: str, env: str, agent: str, card: Mapping[str, Any], license: str) -> dict[str, Any]:
    """Metadata of a model card; metrics are means over its seeds, and absent where there are none."""
    result = {
        "task": {"type": "reinforcement-learning", "name": "goal reaching"},
        "dataset": {"type": gymnasium_id(env), "name": env},
        "metrics": _metrics(card.get("scores", ())),
    }
    index = {"model-index": [{"name": name, "results": [result]}]} if result["metrics"] else {}
    return {
        "license": license,
        "library_name": "homing",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "goal-conditioned-rl", "jax", agent, env],
        **index,
    }


def _metrics(scores: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = sorted({name for row in scores for name in row} - {"seed"})
    order = [*(n for n in FIRST if n in names), *(n for n in names if n not in FIRST)]
    means = {name: float(np.mean([row[name] for row in scores if name in row])) for name in order}
    return [
        {"type": name, "name": name.replace("_", " "), "value": float(f"{mean:.6g}"), "verified": False}
        for name, mean in means.items()
    ]


def _yaml(content: Any, indent: str = "") -> list[str]:
    """Plain values as YAML; texts and numbers are written as JSON, which YAML includes."""
    lines: list[str] = []
    entries = content.items() if isinstance(content, Mapping) else ((None, value) for value in content)
    for name, value in entries:
        head = f"{indent}- " if name is None else f"{indent}{name}:"
        if not isinstance(value, (Mapping, list)):
            lines.append(f"{head}{json.dumps(value)}" if name is None else f"{head} {json.dumps(value)}")
        elif name is None:
            inner = _yaml(value, indent + "  ")
            lines += [f"{indent}- {inner[0].lstrip()}", *inner[1:]]
        else:
            lines += [head, *_yaml(value, indent + ("  " if isinstance(value, Mapping) else ""))]
    return lines
