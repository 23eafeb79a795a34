"""The optimiser step that all learners take: `adam` on a `Fit`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import struct

from homing.types import Array, Metrics

ADAM = optax.scale_by_adam()  # without a learning rate, which `adam` takes


class Fit(struct.PyTreeNode):
    """What a network has learned: arrays only, so that any two have the same tree."""

    params: Any
    opt_state: Any


def parameters(learner: Any) -> Any:
    """A learner without its optimisers: enough to act and to value."""
    is_fit = lambda x: isinstance(x, Fit)
    return jax.tree.map(lambda x: x.replace(opt_state=()) if is_fit(x) else x, learner, is_leaf=is_fit)


def adam(fit: Fit, loss: Callable[[Any], tuple[Array, Metrics]], rates: Any) -> tuple[Fit, Metrics]:
    """One step of Adam on `loss(params)`; `rates` is a prefix of the parameters' tree, [] or [M] each.

    One optimiser for all that an agent learns: its step is a single pass over the parameters.
    """
    grads, metrics = jax.grad(loss, has_aux=True)(fit.params)
    directions, opt_state = ADAM.update(grads, fit.opt_state)

    def move(rate: Array, params: Any, directions: Any) -> Any:
        def leaf(x: Array, direction: Array) -> Array:
            return x - rate.reshape(rate.shape + (1,) * (x.ndim - rate.ndim)) * direction

        return jax.tree.map(leaf, params, directions)

    params = jax.tree.map(move, rates, fit.params, directions)
    return Fit(params=params, opt_state=opt_state), metrics
