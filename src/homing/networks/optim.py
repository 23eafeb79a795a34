"""The Adam step that all learners share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax
from flax import struct

from homing.types import Array, Metrics

ADAM = optax.scale_by_adam()  # without the learning rate, an argument of `adam`


class Fit(struct.PyTreeNode):
    """Parameters and optimiser state of a network; arrays only, so that any two have the same tree structure."""

    params: Any
    opt_state: Any

    @classmethod
    def start(cls, params: Any) -> Fit:
        """Parameters before their first step of Adam."""
        return cls(params=params, opt_state=ADAM.init(params))


def parameters(learner: Any) -> Any:
    """A learner without optimiser states: enough to act and to evaluate the critic."""
    is_fit = lambda x: isinstance(x, Fit)
    return jax.tree.map(lambda x: x.replace(opt_state=()) if is_fit(x) else x, learner, is_leaf=is_fit)


def with_parameters(learner: Any, params: Any) -> Any:
    """A learner with the parameters of another one, as `parameters` gives them, and its own optimiser states."""
    is_fit = lambda x: isinstance(x, Fit)
    keep = lambda old, new: new.replace(opt_state=old.opt_state) if is_fit(old) else new
    return jax.tree.map(keep, learner, params, is_leaf=is_fit)


def adam(fit: Fit, loss: Callable[[Any], tuple[Array, Metrics]], rates: Any) -> tuple[Fit, Metrics]:
    """One Adam step on `loss(params)`; `rates` is a tree prefix of the parameters with learning rates [] or [M].

    An agent has one optimiser for all its networks, so that its step is a single pass over the parameters.
    """
    grads, metrics = jax.grad(loss, has_aux=True)(fit.params)
    directions, opt_state = ADAM.update(grads, fit.opt_state)

    def move(rate: Array, params: Any, directions: Any) -> Any:
        def leaf(x: Array, direction: Array) -> Array:
            return x - rate.reshape(rate.shape + (1,) * (x.ndim - rate.ndim)) * direction

        return jax.tree.map(leaf, params, directions)

    params = jax.tree.map(move, rates, fit.params, directions)
    return Fit(params=params, opt_state=opt_state), metrics
