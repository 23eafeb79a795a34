"""Populations: runs that differ only in float settings, trained in one program along the seed axis."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.agents import make_agent
from homing.config.run import RunConfig
from homing.training.build import Parts, build, make_loop
from homing.training.loop import Loop, TrainState
from homing.training.seeds import Variants, with_values
from homing.types import Array, Metrics


def value_settings(config: Any) -> list[str]:
    """Settings of an agent that are plain numbers: the candidates for a population."""
    return [field.name for field in dataclasses.fields(config) if type(getattr(config, field.name)) is float]


def differing(configs: Sequence[RunConfig]) -> list[str]:
    """The values that are not the same in all configs."""
    names = value_settings(configs[0].settings)
    return [name for name in names if len({getattr(config.settings, name) for config in configs}) > 1]


def shape_of(config: RunConfig) -> RunConfig:
    """The config without its seeds and its values: runs that agree in it can share a program."""
    blank = {name: 0.0 for name in value_settings(config.settings)}
    return dataclasses.replace(config, seeds=(0,), settings=with_values(config.settings, blank))


def loop_of(config: RunConfig, parts: Parts, values: Mapping[str, Array]) -> Loop:
    """The training loop of a member with these values, which may be traced."""
    agent = make_agent(with_values(config.settings, values), parts.env.spec)
    return make_loop(parts.env, agent, parts.plan, parts.data)


def variants(configs: Sequence[RunConfig], parts: Parts) -> Variants | None:
    """What differs between runs, spread over their seeds; None where nothing does."""
    names = differing(configs)
    if not names:
        return None
    values = {
        name: np.repeat(
            np.asarray([getattr(config.settings, name) for config in configs], np.float32),
            [len(config.seeds) for config in configs],
        )
        for name in names
    }
    return Variants(values, lambda values: loop_of(configs[0], parts, values))


def joined_parts(configs: Sequence[RunConfig]) -> Parts:
    """The parts that the runs of a population share, with a plan for all their seeds."""
    parts = build(configs[0])
    seeds = sum(len(config.seeds) for config in configs)
    return parts._replace(plan=dataclasses.replace(parts.plan, seeds=seeds))


def can_vary(config: RunConfig, parts: Parts, name: str) -> bool:
    """Whether a value may differ inside one program; one that decides how it is built may not."""
    plain = parts.loop
    train = jax.eval_shape(plain.init, jax.random.key(0))
    count = jax.ShapeDtypeStruct((), jnp.int32)

    def epoch(train: TrainState, value: Array, start: Array, stop: Array) -> tuple[TrainState, Metrics]:
        return loop_of(config, parts, {name: value}).epoch(train, start, stop)

    try:
        jax.eval_shape(epoch, train, jax.ShapeDtypeStruct((), jnp.float32), count, count)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerBoolConversionError, TypeError):
        return False
    return True
