"""Metrics to TensorBoard and Weights & Biases, beside the run's own file."""

from __future__ import annotations

import importlib.util
import re
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from homing.config.run import RunConfig, SaveConfig, to_json
from homing.errors import ConfigError, HomingError
from homing.runs.folder import write_json
from homing.runs.strict_json import describe, read_json
from homing.runs.validation import COLUMNS, Row

WANDB_ID = "wandb.json"
_WANDB_RUN = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-(.+)")


class Tracker(Protocol):
    def write(self, step: int, rows: Sequence[Row], summary: dict[str, dict[str, float]]) -> None: ...
    def close(self) -> None: ...


def values(rows: Sequence[Row], summary: dict[str, dict[str, float]]) -> dict[str, float]:
    """`eval/success_any/seed_3` of each seed, and `eval/success_any` over them (its IQM)."""
    scalars = {name: stats["iqm"] for name, stats in summary.items()}
    for row in rows:
        # What is no number, such as the table of metrics by goal, has no curve.
        plain = {name: v for name, v in row.items() if isinstance(v, int | float) and name not in COLUMNS}
        scalars |= {f"{name}/seed_{row['seed']}": v for name, v in plain.items()}
    return scalars


class TensorBoard:
    """Event files; those after `step`, of a run that is resumed, no longer count."""

    def __init__(self, folder: Path, step: int):
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def write(self, step: int, rows: Sequence[Row], summary: dict[str, dict[str, float]]) -> None:
        for name, value in values(rows, summary).items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandB:
    """Weights & Biases; the run's id is kept in its folder, so that a resumed run goes on there."""

    def __init__(self, folder: Path, config: RunConfig):
        import wandb

        self._run = wandb.init(
            project="homing",
            id=wandb_id(folder),
            name=folder.name,
            dir=str(folder),
            config=to_json(config),
            mode=config.save.wandb,
            resume="allow",
        )

    def write(self, step: int, rows: Sequence[Row], summary: dict[str, dict[str, float]]) -> None:
        self._run.log(values(rows, summary), step=step)

    def close(self) -> None:
        self._run.finish()


def wandb_id(folder: Path) -> str:
    """The id of a run at Weights & Biases: random, and the same whenever the run is resumed."""
    path = folder / WANDB_ID
    if not path.exists():
        found = _logged_id(folder) or secrets.token_hex(8)
        write_json(path, {"id": found})
        return found
    content = read_json(path)
    found = content.get("id") if isinstance(content, dict) else None
    if not isinstance(found, str) or not found:
        raise HomingError(
            f"cannot use {path}: its id is {describe(found)}, not a string; put it back from a copy, or remove it: "
            "the run is then logged under the id of its wandb folder, or a new one"
        )
    return found


def _logged_id(folder: Path) -> str | None:
    """The id under which a run was last logged, by the names in W&B's own folder."""
    found = [
        match.groups() for path in folder.glob("wandb/*run-*") if (match := _WANDB_RUN.fullmatch(path.name))
    ]
    return max(found)[1] if found else None


def check_installed(save: SaveConfig) -> None:
    """Refuse a tracker whose package is not installed; before anything is compiled."""
    for wanted, module, extra in (
        (save.tensorboard == "on", "tensorboardX", "tensorboard"),
        (save.wandb != "off", "wandb", "wandb"),
    ):
        if wanted and not _installed(module):
            raise ConfigError(f'{module} is not installed: pip install "homing[{extra}]"')


def trackers(folder: Path, config: RunConfig, step: int) -> list[Tracker]:
    """The trackers that the run's settings ask for; `step` is where the run begins."""
    made: list[Tracker] = []
    if config.save.tensorboard == "on" or (config.save.tensorboard == "auto" and _installed("tensorboardX")):
        made.append(TensorBoard(folder / "tensorboard", step))
    if config.save.wandb != "off":
        made.append(WandB(folder, config))
    return made


def _installed(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


__all__ = ["TensorBoard", "Tracker", "WandB", "check_installed", "trackers", "values", "wandb_id"]
