"""What a user asks of off-policy training (`TrainConfig`), and the whole numbers that follow (`Plan`)."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Literal

from homing.config.plan import MAX_COUNT, WORKSPACE, Schedule, Sizes, check_at_least_one, human_bytes
from homing.data import replay
from homing.errors import ConfigError, unknown

MAX_DENOMINATOR = 10_000  # keeps counts of updates on the device inside int32
MAX_UNROLL = 32_767  # replay counts rows of a segment in int16


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of off-policy training; the defaults are the paper's. Any numbers go together."""

    total_steps: int = 50_000_000
    """Environment steps of each seed, all lanes together; the run ends on or just past it."""
    num_envs: int = 1024
    """Environments (lanes) of each seed."""
    unroll_length: int = 62
    """Steps of every lane between two rounds of updates."""
    batch_size: int = 256
    """Rows of one gradient step."""
    updates_per_step: float = 1 / 16
    """Gradient steps for each environment step (the update-to-data ratio)."""
    replay_rows: int = 10_000
    """Rows kept of each lane."""
    prefill_rows: int = 1_000
    """Rows collected of each lane by the untrained policy before the first update."""
    restart_after: int | None = None
    """Steps after which training cuts an episode and starts another, so that replay has more beginnings."""
    greedy: float = 0.0
    """Share of the lanes that act as in evaluation, without noise: replay then shows where that leads."""
    newest: float = 1.0
    """Share of the stored rows that batches are drawn from, the newest ones; 1 draws from all."""
    final_rate: float = 1.0
    """Learning rates fall in a straight line to this share of themselves at the end; 1 leaves them alone."""
    evaluations: int = 100
    """Evaluations in the run, evenly spread; the last is at its end."""
    eval_envs: int = 256
    """Episodes of one evaluation."""
    storage: Literal["float32", "bfloat16", "float16"] = "float32"
    """How replay keeps states and actions; goals stay float32."""
    chunk_bytes: int = 16 * 2**20
    """Memory for batches prepared at once; results do not depend on it."""

    def __post_init__(self) -> None:
        counts = ("total_steps", "num_envs", "unroll_length", "batch_size", "replay_rows", "evaluations")
        check_at_least_one(self, *counts, "eval_envs")
        if self.prefill_rows < 0:
            raise ConfigError(f"prefill_rows is {self.prefill_rows}; 0 means no prefill")
        if not self.updates_per_step > 0 or not math.isfinite(self.updates_per_step):
            raise ConfigError(
                f"updates_per_step is {self.updates_per_step}; choose a positive ratio, such as 0.0625"
            )
        if self.restart_after is not None:
            check_at_least_one(self, "restart_after")
        if not 0 < self.newest <= 1:
            raise ConfigError(f"newest is {self.newest:g}, a share of replay: choose it above 0, up to 1")
        if not 0 <= self.greedy <= 1:
            raise ConfigError(f"greedy is {self.greedy:g}, a share of the lanes: choose it from 0 to 1")
        if not 0 <= self.final_rate <= 1:
            raise ConfigError(f"final_rate is {self.final_rate:g}, a share of rates: choose it from 0 to 1")
        if self.storage not in replay.STORAGE_DTYPES:
            raise unknown("storage dtype", self.storage, replay.STORAGE_DTYPES)
        if self.unroll_length > MAX_UNROLL:
            raise ConfigError(f"unroll_length {self.unroll_length} is too long; at most {MAX_UNROLL}")
        if self.replay_rows < self.unroll_length:
            raise ConfigError(
                f"replay_rows {self.replay_rows} cannot hold one unroll of {self.unroll_length} rows; "
                f"raise replay_rows to {self.unroll_length} or lower unroll_length to {self.replay_rows}"
            )
        if self.prefill_rows > self.replay_rows:
            raise ConfigError(
                f"prefill_rows {self.prefill_rows} do not fit in replay_rows {self.replay_rows}; "
                f"lower the first to {self.replay_rows} or raise the second"
            )


@dataclasses.dataclass(frozen=True)
class Plan(Schedule):
    """The integers of an off-policy run."""

    config: TrainConfig

    def __post_init__(self) -> None:
        if self.train_iterations < 1:
            prefill = self.prefill_iterations * self.steps_per_iteration
            raise ConfigError(
                f"total_steps {self.config.total_steps} is used up by the prefill of {prefill} steps; "
                f"raise it to {prefill + self.steps_per_iteration} or more, or lower prefill_rows or num_envs"
            )
        if self.total_updates < 1:
            raise ConfigError(
                f"updates_per_step {self.config.updates_per_step:g} makes no update "
                f"in {self.train_iterations} iterations; "
                f"raise it to {1 / (self.train_iterations * self.steps_per_iteration):.3g} or more"
            )
        self.check_counts()

    @property
    def prefill_iterations(self) -> int:
        return -(-self.config.prefill_rows // self.config.unroll_length)

    # Updates.

    @property
    def updates_ratio(self) -> Fraction:
        """Updates for each iteration, as a fraction; within 1e-8 of what was asked."""
        asked = Fraction(self.config.updates_per_step).limit_denominator(10**9) * self.steps_per_iteration
        return asked.limit_denominator(MAX_DENOMINATOR)

    @property
    def updates_per_iteration(self) -> int:
        """⌊r⌋: what every iteration makes; some make one more."""
        return self.updates_ratio.numerator // self.updates_ratio.denominator

    @property
    def batch_bytes(self) -> int:
        """One relabelled batch, float32."""
        sizes = self.sizes
        row = 2 * sizes.state_dim + 2 * sizes.goal_dim + sizes.action_dim + 3
        return 4 * row * self.config.batch_size

    @property
    def chunk_updates(self) -> int:
        """Updates whose batches are prepared at once: near the byte limit, best without a remainder."""
        updates = max(self.updates_per_iteration, 1)
        most = min(max(self.config.chunk_bytes // self.batch_bytes, 1), updates)
        divisors = [n for n in range(most, 0, -1) if updates % n == 0]
        # A remainder costs a second compiled update, a small chunk costs time.
        return divisors[0] if 2 * divisors[0] >= most else most

    @property
    def leftover_updates(self) -> int:
        """The most updates of an iteration that fill no chunk."""
        odd_one = int(self.updates_ratio.denominator > 1)
        return min(self.updates_per_iteration % self.chunk_updates + odd_one, self.chunk_updates - 1)

    # Memory.

    @property
    def ring_shape(self) -> replay.RingShape:
        config, sizes = self.config, self.sizes
        return replay.RingShape(
            slots=config.replay_rows // config.unroll_length,
            segment_length=config.unroll_length,
            lanes=config.num_envs,
            state_dim=sizes.state_dim,
            action_dim=sizes.action_dim,
            goal_dim=sizes.goal_dim,
            storage=config.storage,
        )

    @property
    def bytes_by_part(self) -> dict[str, int]:
        """Memory that one seed keeps, and that its largest temporary results take."""
        segment = dataclasses.replace(self.ring_shape, slots=1, storage="float32")
        return {
            "replay": replay.size_in_bytes(self.ring_shape),
            "learner": self.sizes.learner_bytes,
            "environments": self.sizes.env_bytes,
            "evaluation": self.sizes.env_bytes * self.config.eval_envs // self.config.num_envs,
            "segment": replay.size_in_bytes(segment),
            "batches": self.chunk_updates * self.batch_bytes,
        }

    def fitting(self, free_bytes: int) -> dict[str, Plan]:
        """Plans that fit, by the one setting changed: narrow storage, less replay, fewer seeds."""
        if self.fits(free_bytes):
            return {"as asked": self}
        narrow = dataclasses.replace(self, config=dataclasses.replace(self.config, storage="bfloat16"))
        candidates = {
            "storage": narrow if self.config.storage == "float32" and narrow.fits(free_bytes) else None,
            "replay_rows": self._with_less_replay(free_bytes),
            "seeds": self.with_fewer_seeds(free_bytes),
        }
        return {name: plan for name, plan in candidates.items() if plan is not None}

    def _with_less_replay(self, free_bytes: int) -> Plan | None:
        slot = replay.size_in_bytes(dataclasses.replace(self.ring_shape, slots=1))
        room = free_bytes // self.seeds - (self.bytes_per_seed - self.bytes_by_part["replay"])
        rows = room // slot * self.config.unroll_length
        if rows < max(self.config.prefill_rows, self.config.unroll_length):
            return None
        return dataclasses.replace(self, config=dataclasses.replace(self.config, replay_rows=rows))

    def __str__(self) -> str:
        config, ratio, shape = self.config, self.updates_ratio, self.ring_shape
        exact = self.steps_per_iteration / float(ratio)
        return "\n".join(
            [
                f"steps    {self.total_steps:,} in {self.iterations} iterations of {config.num_envs} envs × "
                f"{config.unroll_length} steps ({self.prefill_iterations} of them prefill)",
                f"updates  {self.total_updates:,} of {config.batch_size} rows, {float(ratio):g} an iteration "
                f"(one for {exact:.4g} steps), prepared {self.chunk_updates} at a time",
                self.evaluation_line(),
                f"replay   {shape.slots * shape.segment_length:,} rows of each env, {config.storage}",
                self.memory_line(),
            ]
        )


__all__ = ["MAX_COUNT", "WORKSPACE", "Plan", "Sizes", "TrainConfig", "human_bytes"]
