"""A custom contrastive loss: a function of logits, registered by name."""

import sys

import jax.numpy as jnp

import homing
from homing.losses.contrastive import positives_of, register_objective


def hinge(logits):
    """mean_ij max(0, 1 − f_ii + f_ij): a margin of 1 for the positive pair of every row."""
    return jnp.mean(jnp.maximum(0.0, 1.0 - positives_of(logits)[:, None] + logits))


register_objective("hinge", hinge)

if __name__ == "__main__":
    run = homing.train(
        "crl",
        "point_u_maze",
        preset="quickstart",
        objective="hinge",
        energy="l2",
        episode_length=100,
        steps=int(sys.argv[1]) if len(sys.argv) > 1 else 200_000,
        out=sys.argv[2] if len(sys.argv) > 2 else None,
        cpu=True,
    )
    # The first row evaluates the untrained policy, before any update.
    first, *_, last = (row["train/categorical_accuracy"] for row in run.rows() if row["updates"])
    print(f"the critic finds the own goal among others: {first:.1%} at first, {last:.1%} at the end")
