"""What follows from a plan's counts, whatever the training loop: epochs, evaluations, whether it fits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Self

from homing.bounds import MAX_COUNT
from homing.errors import ConfigError

WORKSPACE = 1.25  # compiled programs need room beside what they keep


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of one seed that no arithmetic on a config can tell: from the environment and the agent."""

    state_dim: int
    action_dim: int
    goal_dim: int
    batch_bytes: int = 0
    """Of one prepared batch and its random draws."""
    learner_bytes: int = 0
    env_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The integers of a run. An iteration collects one unroll in every environment, then makes its updates.

    A plan of one kind of loop adds `prefill_iterations`, `updates_ratio`, `bytes_by_part` and `fitting`.
    """

    config: Any
    sizes: Sizes
    seeds: int = 1

    # What a plan adds.

    @property
    def prefill_iterations(self) -> int:
        """Iterations that only collect."""
        raise NotImplementedError

    @property
    def updates_ratio(self) -> Fraction:
        """Updates for each iteration past the prefill."""
        raise NotImplementedError

    @property
    def bytes_by_part(self) -> dict[str, int]:
        """Memory that one seed keeps, and that its largest temporary results take."""
        raise NotImplementedError

    @property
    def collects(self) -> bool:
        """Whether training steps environments; with a dataset, a step is an update."""
        return True

    @property
    def shared_bytes(self) -> int:
        """Memory that all seeds have in common."""
        return 0

    def fitting(self, free_bytes: int) -> Mapping[str, Self]:
        """Plans that fit, by the one setting changed: each the largest of its kind, nearest first."""
        raise NotImplementedError

    def lr_scale(self, done: Any) -> Any:
        """Learning rates as a fraction of the first, when this fraction of the updates is done: annealed linearly."""
        return 1 - (1 - self.config.lr_final_scale) * done

    # Iterations.

    @property
    def steps_per_iteration(self) -> int:
        return self.config.num_envs * self.config.unroll_length

    @property
    def iterations(self) -> int:
        """All of them, the prefill included."""
        return -(-self.config.total_steps // self.steps_per_iteration)

    @property
    def train_iterations(self) -> int:
        return self.iterations - self.prefill_iterations

    @property
    def total_steps(self) -> int:
        """Steps of one seed at the end: the asked number or less than one iteration more."""
        return self.steps_at(self.iterations)

    def steps_at(self, iteration: int) -> int:
        """Environment steps of one seed before this iteration."""
        return iteration * self.steps_per_iteration

    # Updates: past the prefill, iteration i makes ⌊(i + 1) r⌋ − ⌊i r⌋ of them, r = updates_ratio.

    def updates_at(self, iteration: int) -> int:
        """Gradient steps of one seed before this iteration."""
        return math.floor(max(iteration - self.prefill_iterations, 0) * self.updates_ratio)

    @property
    def total_updates(self) -> int:
        return self.updates_at(self.iterations)

    # Epochs: what runs compiled between two evaluations.

    @property
    def epochs(self) -> int:
        """As many as evaluations were asked for, unless there are too few iterations or updates."""
        needed = math.ceil(1 / self.updates_ratio)  # iterations that surely contain an update
        return max(min(self.config.evaluations, self.train_iterations // needed), 1)

    def epoch_bounds(self, epoch: int) -> tuple[int, int]:
        """First iteration of an epoch, and the first after it; the prefill belongs to the first epoch."""
        start, stop = (
            self.prefill_iterations + self.train_iterations * e // self.epochs for e in (epoch, epoch + 1)
        )
        return (start if epoch else 0), stop

    # Memory.

    @property
    def bytes_per_seed(self) -> int:
        parts = self.bytes_by_part
        kept = parts.get("replay", 0)
        return kept + math.ceil(WORKSPACE * (sum(parts.values()) - kept))

    @property
    def bytes_in_all(self) -> int:
        return self.shared_bytes + self.seeds * self.bytes_per_seed

    def fits(self, free_bytes: int) -> bool:
        return self.bytes_in_all <= free_bytes

    def largest_fitting(self, free_bytes: int) -> Self:
        """This plan, or the nearest that fits."""
        if self.fits(free_bytes):
            return self
        for plan in self.fitting(free_bytes).values():
            return plan
        raise ConfigError(
            f"one seed needs {human_bytes(self.bytes_per_seed)} and {human_bytes(free_bytes)} are free; "
            f"lower num_envs (now {self.config.num_envs}) or the networks' width and depth"
        )

    def check_fits(self, free_bytes: int) -> None:
        """Raise, with every single change that would do, unless the run fits."""
        if self.fits(free_bytes):
            return
        self.largest_fitting(free_bytes)
        value = lambda name, plan: plan.seeds if name == "seeds" else getattr(plan.config, name)
        ways = [f"{name} {value(name, plan)}" for name, plan in self.fitting(free_bytes).items()]
        raise ConfigError(
            f"the run needs {human_bytes(self.bytes_in_all)} and {human_bytes(free_bytes)} are free; "
            f"it fits with {' or '.join(ways)}"
        )

    def with_fewer_seeds(self, free_bytes: int) -> Self | None:
        seeds = (free_bytes - self.shared_bytes) // self.bytes_per_seed
        return dataclasses.replace(self, seeds=seeds) if seeds >= 1 else None

    def check_counts(self) -> None:
        """Counters on the device hold the run's numbers."""
        if self.seeds < 1:
            raise ConfigError(f"seeds is {self.seeds}; it must be at least 1")
        if max(self.total_steps, self.total_updates) > MAX_COUNT:
            raise ConfigError(f"more than {MAX_COUNT} steps or updates are not counted; lower total_steps")

    # As a person reads it.

    def evaluation_line(self) -> str:
        every = self.train_iterations / self.epochs
        return f"evals    {self.epochs}, every {every:.4g} iterations, {self.config.eval_envs} episodes each"

    def memory_line(self) -> str:
        parts = ", ".join(f"{name} {human_bytes(size)}" for name, size in self.bytes_by_part.items())
        whose = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        each, all_ = human_bytes(self.bytes_per_seed), human_bytes(self.bytes_in_all)
        return f"memory   {each} a seed ({parts}), {all_} for {whose}"


def human_bytes(count: float) -> str:
    """A size as a person says it: 1.7 GiB."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
