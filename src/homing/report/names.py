"""What metrics are called on a page and what they mean."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Metric:
    """A metric as a reader sees it."""

    label: str
    about: str = ""
    share: bool = False
    """Lies between 0 and 1 and is shown in per cent."""
    better: str = "none"
    """high, low or none"""


EVALUATION = {
    "eval/success_any": Metric(
        "success rate", "share of episodes that reach the goal at least once", True, "high"
    ),
    "eval/time_near_goal": Metric(
        "time near goal", "share of the episode's time limit spent within the threshold", True, "high"
    ),
    "eval/success_end": Metric(
        "success at the end", "share of episodes that are at the goal in their last step", True, "high"
    ),
    "eval/final_distance": Metric("final distance", "distance to the goal in the last step", False, "low"),
    "eval/mean_distance": Metric(
        "mean distance", "distance to the goal, mean over the episode", False, "low"
    ),
    "eval/return": Metric("return", "sum of rewards of an episode", False, "high"),
    "eval/episode_length": Metric("episode length", "steps until the episode ended"),
    "eval/success_easy_any": Metric(
        "success rate, wide threshold", "reached at least once, by a more generous threshold", True, "high"
    ),
    "eval/success_easy_end": Metric(
        "success at the end, wide threshold", "at the goal in the last step, generously", True, "high"
    ),
    "eval/time_near_goal_easy": Metric(
        "time near goal, wide threshold", "share of the time limit within it", True, "high"
    ),
}
TRAINING = {
    "train/critic_loss": Metric("critic loss"),
    "train/actor_loss": Metric("actor loss"),
    "train/alpha": Metric("entropy weight α", "falls when the policy is more random than asked for"),
    "train/alpha_loss": Metric("loss of the entropy weight"),
    "train/entropy": Metric("policy entropy", "how random the actions are; higher is more random"),
    "train/categorical_accuracy": Metric(
        "categorical accuracy",
        "how often the critic finds the true goal among those of the batch",
        True,
        "high",
    ),
    "train/logits_pos": Metric("logits of true pairs", "should rise above those of other pairs"),
    "train/logits_neg": Metric("logits of other pairs", "state–action pairs with goals of other rows"),
    "train/q": Metric("value Q", "what the critics expect of the batch's actions, mean"),
    "train/value": Metric("value", "what the critic is trained towards, mean over a rollout"),
    "train/reward": Metric("reward", "mean over the rows learned from, relabelled goals included"),
    "train/value_loss": Metric("value loss"),
    "train/policy_loss": Metric("policy loss"),
    "train/kl": Metric("KL divergence", "how far an update moves the policy from the one that collected"),
    "train/clipped": Metric("clipped rows", "share of rows on which the policy has moved to the limit", True),
    "train/logsumexp": Metric("log-sum-exp of logits", "the penalty keeps it near 0"),
}
KNOWN = EVALUATION | TRAINING
# Scores in [0, 1] that agents are compared by, best first.
SCORES = ("eval/success_any", "eval/time_near_goal", "eval/success_end")


def metric(name: str) -> Metric:
    """A metric by its column; one that is not known is called by its own name."""
    if name in KNOWN:
        return KNOWN[name]
    return Metric(name.partition("/")[2].replace("_", " ") or name)
