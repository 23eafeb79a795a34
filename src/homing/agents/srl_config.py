"""Settings of survival RL; there are too many to stand at the top of the agent."""

from __future__ import annotations

import dataclasses
import math

from homing import bounds
from homing.errors import ConfigError
from homing.networks import NetConfig

DEEP = NetConfig(width=256, depth=4, layer_norm=True, residual="blocks")


@dataclasses.dataclass(frozen=True)
class SRLConfig:
    """Settings of survival RL; each part of the critic has a weight and can be switched off with 0."""

    gamma: float = 0.999
    """Discount of the value −Σ γ^k P(goal not reached after k steps)."""
    goal_gamma: float = 0.99
    """Future goals lie k steps ahead with probability ∝ γ^k."""
    future_ratio: float = 0.85
    """Fraction of goals from the transition's own future."""
    current_ratio: float = 0.05
    """Fraction of goals that are achieved already."""
    far_ratio: float = 0.0
    """Fraction of goals achieved at a uniformly drawn later step of the episode: farther ones than γ^k draws."""
    episode_ratio: float = 0.0
    """Fraction of goals achieved at any step of the transition's episode, earlier ones included; the rest are goals
    achieved by random transitions."""
    waypoint_ratio: float = 0.0
    """Fraction of transitions whose policy is given a goal of the own future and judged by the time to a nearer one
    on the way there."""
    waypoint_gamma: float = 0.99
    """Waypoints lie k steps ahead with probability ∝ γ^k."""
    horizon: int = 1000
    """Steps after which an unreached goal counts as not reached."""
    hazard_bins: int = 128
    """Bins of time with constant hazard, growing geometrically; as many as the horizon gives one for each step."""
    occupancy_bins: int = 32
    """Bins of time whose occupancy is learned, growing geometrically."""
    chunk: int = 2
    """Actions that the policy plans at once and executes open-loop."""
    dwell: int = 1
    """Consecutive steps at the goal that count as reaching it."""
    goal_points: int = 1
    """Points of the critic's goals: 1 is one place, to be held for `dwell` steps; more are a sequence that an episode
    achieved, evenly spaced over `dwell` steps, to be followed step by step."""
    true_censoring: bool = False
    """Censor an unreached goal where its episode was cut; else it counts as not reached within the horizon. Episodes
    that fell always do: with many falls and early cuts this makes goals look farther than they are."""
    time_weight: float = 1.0
    """Weight of the regression of ‖φ − ψ‖ to the time until the goal."""
    separation_weight: float = 1.0
    """Weight of the hinge that keeps pairs apart that do not reach each other."""
    occupancy_weight: float = 1.0
    """Weight of the occupancy of the goal, as a loss and, times the fraction of failing episodes, as a value."""
    survival_weight: float = 0.0
    """Weight of ln Z(s, a), the log-probability to survive a geometric horizon, in the policy's objective."""
    representation_dim: int = 64
    """Size of φ(s, a) and ψ(g)."""
    encoder_net: NetConfig = DEEP
    """φ(s, a) and ψ(g)."""
    head_net: NetConfig = DEEP
    """The head from both encodings to hazards and occupancies."""
    actor_net: NetConfig = DEEP
    """The policy."""
    critic_lr: float = 3e-4
    """Learning rate of encoders and head."""
    actor_lr: float = 3e-4
    """Learning rate of the policy."""
    alpha_lr: float = 3e-4
    """Learning rate of the temperature α."""
    entropy_target: float = -0.5
    """Target entropy of the policy for each action dimension."""
    normalise_observations: bool = False
    """Normalise states and goals by their running mean and standard deviation."""

    def __post_init__(self) -> None:
        bounds.check(self)
        names = ("future_ratio", "current_ratio", "far_ratio", "episode_ratio")
        ratios = {name: getattr(self, name) for name in names}
        # In a population some of them are traced; they were checked as plain numbers before.
        if all(isinstance(ratio, float) for ratio in ratios.values()) and math.fsum(ratios.values()) > 1:
            named = ", ".join(f"{name} {ratio}" for name, ratio in ratios.items())
            raise ConfigError(f"{named}: together they are more than 1; lower some of them")
        if self.dwell > self.horizon:
            raise ConfigError(
                f"dwell {self.dwell} does not fit into horizon {self.horizon}: no goal would ever count as reached; "
                f"lower dwell to {self.horizon} or less, or raise horizon"
            )
        if self.goal_points > self.dwell:
            raise ConfigError(
                f"goal_points {self.goal_points} do not fit into a dwell of {self.dwell} steps; "
                f"raise dwell to {self.goal_points} or more, or lower goal_points"
            )
