"""What a user asks of on-policy training, and the whole numbers that follow."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Self

from homing import bounds
from homing.config.plan import Schedule


@dataclasses.dataclass(frozen=True)
class OnPolicyConfig:
    """Settings of on-policy training; the defaults are the paper's for PPO."""

    total_steps: int = 50_000_000
    """Environment steps of each seed, all environments together; the run ends on or just past it."""
    num_envs: int = 4096
    """Parallel environments of each seed."""
    unroll_length: int = 5
    """Steps of every environment in a rollout."""
    spread_episodes: bool = False
    """Truncate the first episodes at random times, so that later ones do not all start and end together."""
    lr_final_scale: float = 1.0
    """Linearly anneal the learning rate to this fraction; 1 keeps it constant."""
    policy_ema: float = 0.0
    """Decay per iteration of the averaged policy that is evaluated, saved and exported; 0 uses the policy itself."""
    evaluations: int = 100
    """Evaluations in the run, evenly spread; the last is at its end."""
    eval_envs: int = 256
    """Episodes of one evaluation."""
    exact_seeds: bool = False
    """Train seeds one after the other, each with the same bits whichever seeds are beside it; slower."""

    def __post_init__(self) -> None:
        bounds.check(self)


@dataclasses.dataclass(frozen=True)
class OnPolicyPlan(Schedule):
    """The integers of an on-policy run; every iteration makes the same number of updates."""

    config: OnPolicyConfig
    updates_per_iteration: int = 1

    def __post_init__(self) -> None:
        self.check_counts()

    @property
    def prefill_iterations(self) -> int:
        return 0

    @property
    def updates_ratio(self) -> Fraction:
        return Fraction(self.updates_per_iteration)

    @property
    def bytes_by_part(self) -> dict[str, int]:
        config, sizes = self.config, self.sizes
        row = 2 * (sizes.state_dim + sizes.goal_dim) + sizes.action_dim + 8
        return {
            "learner": sizes.learner_bytes,
            "environments": sizes.env_bytes,
            "evaluation": sizes.env_bytes * config.eval_envs // config.num_envs,
            # As it was collected, and once more in the order of the updates.
            "rollout": 2 * 4 * row * self.steps_per_iteration,
        }

    def fitting(self, free_bytes: int) -> Mapping[str, Self]:
        """Plans that fit, by the one setting changed."""
        if self.fits(free_bytes):
            return {"as asked": self}
        fewer = self.with_fewer_seeds(free_bytes)
        return {} if fewer is None else {"seeds": fewer}

    def __str__(self) -> str:
        config = self.config
        return "\n".join(
            [
                f"steps    {self.total_steps:,} in {self.iterations} iterations of {config.num_envs} envs × "
                f"{config.unroll_length} steps",
                f"updates  {self.total_updates:,}, {self.updates_per_iteration} an iteration",
                self.evaluation_line(),
                self.memory_line(),
            ]
        )
