"""What `--data` changes in the arguments of `homing train`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from homing.cli.arguments import value_of


def check_collection(args: Sequence[str]) -> None:
    """Refuse flags of collection beside a dataset."""
    from homing.config.offpolicy import COLLECTION
    from homing.config.run import check_offline_changes

    if value_of("--data", args) is not None:
        given = {arg.partition("=")[0].lstrip("-").replace("-", "_") for arg in args if arg[:2] == "--"}
        check_offline_changes(name for name in COLLECTION if name in given)


def loop_settings(asked: Any, steps_given: bool) -> Any:
    """Settings of the training loop; with a dataset, steps are updates."""
    from homing.config.offpolicy import TrainConfig, offline

    train = asked.train if asked.steps is None else dataclasses.replace(asked.train, total_steps=asked.steps)
    if asked.data is None or not isinstance(train, TrainConfig):
        return train
    return offline(train, train.total_steps if steps_given else None)
