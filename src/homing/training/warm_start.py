"""Learners that start with given parameters instead of random ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax

from homing.errors import HomingError
from homing.networks import with_parameters
from homing.runs.policy_files import INITIAL, load_policy, policy_path
from homing.training.loop import TrainState, first_average


def warm_started(train: TrainState, run: Path) -> TrainState:
    """The first state of seeds [S, ...], with the parameters that the run's folder has for them."""
    path = policy_path(run, INITIAL)
    if not path.exists():
        raise HomingError(
            f"{path} is missing, with which this run begins; put it back from a copy, or start another run"
        )
    of_one_seed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), train.learner)
    params, _ = load_policy(path, of_one_seed, len(jax.tree.leaves(train.learner)[0]))
    learner = _placed_as(train.learner, with_parameters(train.learner, params))
    if not jax.tree.leaves(train.average):
        return train.replace(learner=learner)
    return train.replace(learner=learner, average=_placed_as(train.average, first_average(learner)))


def _placed_as(old: Any, new: Any) -> Any:
    """New arrays on the devices of the old ones."""
    return jax.tree.map(lambda x, y: jax.device_put(y, x.sharding), old, new)
