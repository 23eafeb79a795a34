"""What a user asks of off-policy training (`TrainConfig`), and the whole numbers that follow (`Plan`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, Self

from homing import bounds
from homing.config.plan import MAX_COUNT, WORKSPACE, Schedule, Sizes, human_bytes
from homing.data import replay
from homing.errors import ConfigError

MAX_DENOMINATOR = 10_000  # keeps counts of updates on the device inside int32
OFFLINE_UPDATES = 100  # of an iteration of offline training
OFFLINE_SEGMENT = 1_000  # transitions of a dataset in a slot of replay
# Settings of collection and of a replay buffer that fills up; a dataset needs none of them.
COLLECTION = (
    "num_envs",
    "unroll_length",
    "updates_per_step",
    "replay_size",
    "prefill_steps",
    "train_episode_length",
    "greedy_env_fraction",
    "replay_recent_fraction",
)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """Settings of off-policy training; the defaults are the paper's. Any numbers go together."""

    total_steps: int = 50_000_000
    """Environment steps of each seed, all environments together; the run ends on or just past it."""
    num_envs: int = 1024
    """Parallel environments of each seed."""
    unroll_length: int = 62
    """Steps of every environment between two rounds of updates."""
    batch_size: int = 256
    """Transitions in a batch."""
    updates_per_step: float = 1 / 16
    """Gradient steps for each environment step (the update-to-data ratio)."""
    replay_size: int = 10_000
    """Transitions kept per environment."""
    prefill_steps: int = 1_000
    """Steps per environment that the untrained policy collects before the first update."""
    train_episode_length: int | None = None
    """Time limit of training episodes, if shorter than that of evaluation: they then see more of the approach."""
    greedy_env_fraction: float = 0.0
    """Fraction of environments that act greedily during collection."""
    replay_recent_fraction: float = 1.0
    """Batches are drawn from this most recent fraction of the replay buffer; 1 uses all of it."""
    lr_final_scale: float = 1.0
    """Linearly anneal learning rates to this fraction; 1 keeps them constant."""
    policy_ema: float = 0.0
    """Decay per iteration of the averaged policy that is evaluated, saved and exported; 0 uses the policy itself."""
    evaluations: int = 100
    """Evaluations in the run, evenly spread; the last is at its end."""
    eval_envs: int = 256
    """Episodes of one evaluation."""
    exact_seeds: bool = False
    """Train seeds one after the other, each with the same bits whichever seeds are beside it; slower."""
    replay_dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """Number format of states and actions in replay; goals stay float32."""
    prefetch_bytes: int = 16 * 2**20
    """Memory for batches prepared at once; results do not depend on it."""

    def __post_init__(self) -> None:
        bounds.check(self)
        if self.replay_size < self.unroll_length:
            raise ConfigError(
                f"replay_size {self.replay_size} cannot hold one unroll of {self.unroll_length} steps; "
                f"raise replay_size to {self.unroll_length} or lower unroll_length to {self.replay_size}"
            )
        if self.prefill_steps > self.replay_size:
            raise ConfigError(
                f"prefill_steps {self.prefill_steps} do not fit in replay_size {self.replay_size}; "
                f"lower the first to {self.replay_size} or raise the second"
            )


def offline(config: TrainConfig, updates: int | None = None) -> TrainConfig:
    """The settings for a dataset instead of collection: a step is an update, as many as online unless given."""
    asked = Fraction(config.updates_per_step).limit_denominator(10**9) * config.total_steps
    total = max(round(asked), 1) if updates is None else updates
    return dataclasses.replace(
        config,
        total_steps=total,
        num_envs=1,
        unroll_length=min(OFFLINE_UPDATES, total) if isinstance(total, int) and total > 0 else 1,
        updates_per_step=1.0,
        replay_size=OFFLINE_SEGMENT,
        prefill_steps=0,
        train_episode_length=None,
        greedy_env_fraction=0.0,
        replay_recent_fraction=1.0,
    )


@dataclasses.dataclass(frozen=True)
class Plan(Schedule):
    """The integers of an off-policy run."""

    config: TrainConfig
    transitions: int = 0
    """Transitions of the dataset that is learned from; 0 for training that collects its own."""

    def __post_init__(self) -> None:
        if self.train_iterations < 1:
            prefill = self.prefill_iterations * self.steps_per_iteration
            raise ConfigError(
                f"total_steps {self.config.total_steps} is used up by the prefill of {prefill} steps; "
                f"raise it to {prefill + self.steps_per_iteration} or more, or lower prefill_steps or num_envs"
            )
        if self.total_updates < 1:
            least = 1 / (min(self.train_iterations, MAX_DENOMINATOR) * self.steps_per_iteration)
            raise ConfigError(
                f"updates_per_step {self.config.updates_per_step:g} makes no update "
                f"in {self.train_iterations} iterations; raise it to {least:.3g} or more"
            )
        self.check_counts()

    @property
    def collects(self) -> bool:
        return self.transitions == 0

    @property
    def prefill_iterations(self) -> int:
        return -(-self.config.prefill_steps // self.config.unroll_length)

    # Updates.

    @property
    def updates_ratio(self) -> Fraction:
        """Updates for each iteration, as a fraction; within 1 / (2 · MAX_DENOMINATOR) of what was asked."""
        asked = Fraction(self.config.updates_per_step).limit_denominator(10**9) * self.steps_per_iteration
        return asked.limit_denominator(MAX_DENOMINATOR)

    @property
    def updates_per_iteration(self) -> int:
        """⌊r⌋: what every iteration makes; some make one more."""
        return self.updates_ratio.numerator // self.updates_ratio.denominator

    @property
    def prefetch_updates(self) -> int:
        """Updates whose batches are prepared at once: near the byte limit, best without a remainder."""
        updates = max(self.updates_per_iteration, 1)
        most = min(max(self.config.prefetch_bytes // max(self.sizes.batch_bytes, 1), 1), updates)
        divisors = [n for n in range(most, 0, -1) if updates % n == 0]
        # A remainder costs a second compiled update, a small chunk costs time.
        return divisors[0] if 2 * divisors[0] >= most else most

    @property
    def leftover_updates(self) -> int:
        """The most updates of an iteration that fill no chunk."""
        odd_one = int(self.updates_ratio.denominator > 1)
        return min(self.updates_per_iteration % self.prefetch_updates + odd_one, self.prefetch_updates - 1)

    # Memory.

    @property
    def buffer_shape(self) -> replay.BufferShape:
        shape = self.shape_of_buffer(self.config, self.sizes)
        if self.collects:
            return shape
        slots = -(-self.transitions // OFFLINE_SEGMENT)
        return dataclasses.replace(shape, slots=slots, segment_length=OFFLINE_SEGMENT, num_envs=1)

    @staticmethod
    def shape_of_buffer(config: TrainConfig, sizes: Sizes) -> replay.BufferShape:
        """The replay buffer of one seed."""
        return replay.BufferShape(
            slots=config.replay_size // config.unroll_length,
            segment_length=config.unroll_length,
            num_envs=config.num_envs,
            state_dim=sizes.state_dim,
            action_dim=sizes.action_dim,
            goal_dim=sizes.goal_dim,
            replay_dtype=config.replay_dtype,
        )

    @property
    def bytes_by_part(self) -> dict[str, int]:
        """Memory that one seed keeps, and that its largest temporary results take."""
        segment = dataclasses.replace(self.buffer_shape, slots=1, replay_dtype="float32")
        parts = {
            "replay": replay.size_in_bytes(self.buffer_shape),
            "learner": self.sizes.learner_bytes,
            "environments": self.sizes.env_bytes,
            "evaluation": self.sizes.env_bytes * self.config.eval_envs // self.config.num_envs,
            "segment": replay.size_in_bytes(segment),
            "batches": self.prefetch_updates * max(self.sizes.batch_bytes, 1),
        }
        needless = () if self.collects else ("replay", "environments", "segment")
        return {name: size for name, size in parts.items() if name not in needless}

    @property
    def shared_bytes(self) -> int:
        return 0 if self.collects else replay.size_in_bytes(self.buffer_shape)

    def fitting(self, free_bytes: int) -> Mapping[str, Self]:
        """Plans that fit, by the one setting changed: narrow storage, less replay, fewer seeds."""
        if self.fits(free_bytes):
            return {"as asked": self}
        less = self._with_less_replay(free_bytes) if self.collects else None
        narrow = dataclasses.replace(self, config=dataclasses.replace(self.config, replay_dtype="bfloat16"))
        candidates = {
            "replay_dtype": narrow
            if self.config.replay_dtype == "float32" and narrow.fits(free_bytes)
            else None,
            "replay_size": less,
            "seeds": self.with_fewer_seeds(free_bytes),
        }
        return {name: plan for name, plan in candidates.items() if plan is not None}

    def _with_less_replay(self, free_bytes: int) -> Self | None:
        slot = replay.size_in_bytes(dataclasses.replace(self.buffer_shape, slots=1))
        room = free_bytes // self.seeds - (self.bytes_per_seed - self.bytes_by_part["replay"])
        rows = room // slot * self.config.unroll_length
        if rows < max(self.config.prefill_steps, self.config.unroll_length):
            return None
        return dataclasses.replace(self, config=dataclasses.replace(self.config, replay_size=rows))

    def __str__(self) -> str:
        config, ratio, shape = self.config, self.updates_ratio, self.buffer_shape
        if not self.collects:
            return "\n".join(
                [
                    f"updates  {self.total_updates:,} of {config.batch_size} transitions, nothing is collected",
                    self.evaluation_line(),
                    f"data     {self.transitions:,} transitions, {human_bytes(self.shared_bytes)} in "
                    f"{config.replay_dtype}, shared by all seeds",
                    self.memory_line(),
                ]
            )
        exact = self.steps_per_iteration / float(ratio)
        return "\n".join(
            [
                f"steps    {self.total_steps:,} in {self.iterations} iterations of {config.num_envs} envs × "
                f"{config.unroll_length} steps ({self.prefill_iterations} of them prefill)",
                f"updates  {self.total_updates:,} of {config.batch_size} transitions, {float(ratio):g} an iteration "
                f"(one for {exact:.4g} steps), prepared {self.prefetch_updates} at a time",
                self.evaluation_line(),
                f"replay   {shape.slots * shape.segment_length:,} transitions of each env, {config.replay_dtype}",
                self.memory_line(),
            ]
        )


__all__ = ["MAX_COUNT", "WORKSPACE", "Plan", "Sizes", "TrainConfig", "human_bytes"]
