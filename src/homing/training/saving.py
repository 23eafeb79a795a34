"""What a run saves on its way: checkpoints to resume from, and policies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from homing.config.plan import human_bytes
from homing.config.run import SaveConfig
from homing.runs.checkpoints import Checkpoints, free_space
from homing.runs.folder import WriteError
from homing.runs.progress import Progress
from homing.training.loop import TrainState
from homing.training.members import Member
from homing.training.resuming import NOTED
from homing.training.sharding import Placement, is_first


class Saver:
    """Checkpoints in `home`, and the policies of each run in its own folder."""

    def __init__(
        self,
        home: Path,
        config: SaveConfig,
        members: Sequence[Member],
        show: Progress,
        placement: Placement | None,
    ):
        self.config, self.members, self.show, self.placement = config, members, show, placement
        self.checkpoints = Checkpoints(home / "checkpoints", config.keep_checkpoints, NOTED)

    def check_disk(self, size: int) -> None:
        """Say at once if the checkpoints will not fit: the old ones stay until the new one is whole."""
        missing = self.config.keep_checkpoints + 1 - len(self.checkpoints.iterations())
        free = free_space(self.checkpoints.path)
        if missing * size > free:
            self.show.warn(
                f"{missing} checkpoints of {human_bytes(size)} will not fit on the disk, where "
                f"{human_bytes(free)} are free; lower --keep-checkpoints or --replay-size, or make room"
            )

    def is_due(self, evaluated: bool, seconds: float) -> bool:
        """Whether a checkpoint is to be made, so many seconds after the last one."""
        minutes = self.config.checkpoint_minutes
        return is_first() and (seconds >= 60 * minutes if minutes else evaluated)

    def gathered(self, train: TrainState) -> Any:
        """What was learned, where this process can read it."""
        return train.policy if self.placement is None else self.placement.gathered(train.policy)

    def save(self, iteration: int, train: TrainState, notes: dict[str, Any]) -> None:
        """A checkpoint, written in the background, and the last policies."""
        if is_first():
            self.show.doing("saving")
        self.checkpoints.save(iteration, train, notes)
        self.save_policies(iteration, train)

    def save_policies(self, iteration: int, train: TrainState) -> None:
        learner = self.gathered(train)
        for member in self.members if is_first() else ():
            member.save_policy("last", learner, iteration)

    def settle(self, wait: bool = False) -> None:
        """Learn how the last checkpoint went, if it is done."""
        try:
            self.checkpoints.wait() if wait else self.checkpoints.settle()
        except WriteError as error:
            self.show.warn(str(error))
