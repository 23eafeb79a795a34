"""What metrics are called on a page or in a table, and what they mean."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric as a reader sees it."""

    label: str
    about: str = ""
    fraction: bool = False
    """Lies between 0 and 1 and is shown in per cent."""
    better: str = "none"
    """high, low or none"""


def _successes(suffix: str, which: str, threshold: str) -> dict[str, Metric]:
    """The three metrics that evaluation makes of one success threshold."""
    return {
        f"eval/success{suffix}_any": Metric(
            f"success rate{which}", f"fraction of episodes within {threshold} at least once", True, "high"
        ),
        f"eval/success{suffix}_end": Metric(
            f"success at the end{which}",
            f"fraction of episodes within {threshold} at the last step",
            True,
            "high",
        ),
        f"eval/time_near_goal{suffix}": Metric(
            f"time near goal{which}",
            f"fraction of the episode's time limit spent within {threshold}",
            True,
            "high",
        ),
    }


_MAIN = _successes("", "", "the goal's threshold")
EVALUATION = {
    "eval/success_any": _MAIN["eval/success_any"],
    "eval/time_near_goal": _MAIN["eval/time_near_goal"],
    "eval/success_end": _MAIN["eval/success_end"],
    "eval/final_distance": Metric(
        "final distance", "distance from achieved to desired goal at the last step", False, "low"
    ),
    "eval/mean_distance": Metric(
        "mean distance", "distance from achieved to desired goal, mean over the episode", False, "low"
    ),
    "eval/return": Metric("return", "sum of rewards of an episode, undiscounted", False, "high"),
    "eval/episode_length": Metric("episode length", "steps until termination or the time limit"),
    "eval/success_far_any": Metric(
        "success rate, far goals",
        "success_any of episodes with a goal that the maze's _eval layout has too",
        True,
        "high",
    ),
    "eval/time_near_goal_far": Metric(
        "time near far goals",
        "time_near_goal of episodes with a goal that the _eval layout has too",
        True,
        "high",
    ),
    **_successes("_easy", ", wide threshold", "a wider threshold"),
    **_successes("_hard", ", tight threshold", "a tighter threshold"),
}
TRAINING = {
    "train/critic_loss": Metric(
        "critic loss", "the loss that trains the critic: contrastive, or the TD error"
    ),
    "train/actor_loss": Metric(
        "actor loss", "the loss that trains the policy: minus the critic's value, plus entropy"
    ),
    "train/alpha": Metric("temperature α", "weight of the entropy; falls while entropy is above its target"),
    "train/alpha_loss": Metric("temperature loss", "α times the entropy's excess over its target"),
    "train/entropy": Metric("policy entropy", "estimated as −E log π(a | s, g); higher is more random"),
    "train/categorical_accuracy": Metric(
        "categorical accuracy", "how often the positive pair has the highest logit of the batch", True, "high"
    ),
    "train/logits_pos": Metric(
        "positive logits", "mean logit of positive pairs; should rise above the negatives"
    ),
    "train/logits_neg": Metric("negative logits", "mean logit of pairs with goals of other transitions"),
    "train/logsumexp": Metric("logsumexp of logits", "mean over the batch; the penalty keeps it near 0"),
    "train/survival_loss": Metric(
        "survival loss", "cross-entropy of the predicted probability to survive until the goal"
    ),
    "train/q": Metric("Q value", "mean of the critics' values of the batch's actions"),
    "train/value": Metric(
        "value", "mean value: of the policy's actions (SRL), or of a rollout's targets (PPO)"
    ),
    "train/hazard_loss": Metric(
        "hazard loss", "negative log-likelihood of when a goal is first reached, censored ones included"
    ),
    "train/time_loss": Metric("time loss", "Huber error of ‖φ − ψ‖ as the time until the goal"),
    "train/separation_loss": Metric(
        "separation loss", "hinge that keeps φ and ψ of unreached goals at least a horizon apart"
    ),
    "train/occupancy_loss": Metric(
        "occupancy loss", "cross-entropy of being at the goal in each bin of time"
    ),
    "train/reached": Metric("reached fraction", "fraction of a batch's goals that its episodes reach", True),
    "train/fails": Metric("failing fraction", "fraction of transitions whose episode terminates soon", True),
    "train/bc_loss": Metric(
        "behaviour cloning loss", "−log π of stored actions, for each action dimension (`bc_weight`)"
    ),
    "train/action_error": Metric(
        "action error", "root mean square of the dataset's actions minus the policy's", False, "low"
    ),
    "train/reward": Metric("reward", "mean over the transitions learned from, relabelled goals included"),
    "train/value_loss": Metric("value loss", "squared error of the value function"),
    "train/policy_loss": Metric("policy loss", "PPO's clipped surrogate objective, negated"),
    "train/kl": Metric("KL divergence", "from the policy that collected the rollout to the updated one"),
    "train/clipped": Metric(
        "clipped fraction", "fraction of samples whose probability ratio is clipped", True
    ),
}
BY_GOAL = {
    "by_goal/x": Metric("x of a goal", "where the goals of a group lie, in metres"),
    "by_goal/y": Metric("y of a goal", "where the goals of a group lie, in metres"),
    "by_goal/distance": Metric("distance of goals", "least distance from the start of a group's goals"),
    "by_goal/episodes": Metric("episodes by goal", "episodes of an evaluation, for each group of goals"),
    "by_goal/success_any": Metric(
        "success rate by goal",
        "fraction of a group's episodes that reach the goal at least once",
        True,
        "high",
    ),
    "by_goal/time_near_goal": Metric(
        "time near goal by goal",
        "fraction of the time limit within the threshold, for each group",
        True,
        "high",
    ),
}
CHAINS = {
    "eval/reached": Metric(
        "goals reached", "fraction of all goals of all chains that are reached", True, "high"
    ),
    "eval/reached_all": Metric(
        "whole chains reached", "fraction of chains whose goals are all reached", True, "high"
    ),
    "eval/reached_1": Metric(
        "first goals reached",
        "fraction of chains that reach their first goal; reached_2, … the second, …",
        True,
        "high",
    ),
    "eval/fell": Metric("falls", "fraction of chains that end in a fall", True, "low"),
}
COSTS = {
    "speed/env_steps_per_second": Metric(
        "environment steps per second", "all seeds together, without evaluation"
    ),
    "speed/updates_per_second": Metric(
        "updates per second", "all seeds together, without evaluation; where training collects nothing"
    ),
    "time/elapsed": Metric("elapsed time", "seconds of training and evaluation so far", False, "low"),
    "time/evaluation": Metric("evaluation time", "seconds of the last evaluation", False, "low"),
}
# What an environment reports at every step; evaluation turns them into those above.
STEP = {
    "distance": Metric("distance", "from achieved to desired goal", False, "low"),
    "success": Metric("success", "1 within the goal's threshold, else 0", True, "high"),
    "success_easy": Metric("success, wide threshold", "1 within a wider threshold, else 0", True, "high"),
    "success_hard": Metric("success, tight threshold", "1 within a tighter threshold, else 0", True, "high"),
    "points_reached": Metric(
        "points reached", "how many of a goal's several points are within the threshold"
    ),
}
KNOWN = EVALUATION | TRAINING | BY_GOAL | CHAINS | COSTS | STEP
# Scores in [0, 1] that agents are compared by, best first.
SCORES = ("eval/success_any", "eval/time_near_goal", "eval/success_end")


def metric(name: str) -> Metric:
    """A metric by its column; one that is not known is called by its own name."""
    if name in KNOWN:
        return KNOWN[name]
    return Metric(name.partition("/")[2].replace("_", " ") or name)


def by_importance(names: Iterable[str]) -> list[str]:
    """Evaluation metrics, which have no `eval/` before them, in the order of this module; others come last."""
    rank = {name: k for k, name in enumerate(KNOWN)}
    # reached_2, … stand where reached_1 does.
    place = lambda name: rank.get(f"eval/{re.sub(r'_[0-9]+$', '_1', name)}", len(rank))
    return sorted(names, key=lambda name: (place(name), len(name), name))


def legend(names: Iterable[str]) -> list[str]:
    """A line for each evaluation metric that is known and among `names`, which have no `eval/` before them."""
    known = [(name, metric(f"eval/{name}").about) for name in names]
    return [f"{name}: {about}" for name, about in known if about]
