"""Trained policies as the start of another run (`init_from`)."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.config.run import RunConfig
from homing.errors import ConfigError
from homing.networks import nets_of
from homing.policies.store import Policies, find_policies
from homing.runs.policy_files import finite_seeds, mismatch, named_arrays
from homing.runs.strict_json import flat
from homing.runs.tensors import Tensor
from homing.training.build import Parts, check_alike

MOST_NAMED = 6  # settings in a message


def initial_learner(config: RunConfig, parts: Parts) -> Any:
    """Parameters [S, ...] for the seeds of a run, from what `init_from` names; refuses what does not fit."""
    source = str(config.init_from)
    policies = find_policies(source)
    if policies.agent_name != config.agent:
        raise ConfigError(
            f"{source} holds policies of {policies.agent_name}, and {config.agent} cannot start from them; "
            f"train {policies.agent_name}, or leave out init_from"
        )
    check_alike(policies, parts.env)
    learner = _of_seeds(policies, config.seeds)
    found = {name: Tensor(x.dtype, x.shape) for name, x in named_arrays(learner).items()}
    shapes = jax.eval_shape(parts.agent.init, jax.random.key(0))
    if wrong := mismatch(shapes, found, len(config.seeds)):
        raise ConfigError(
            f"the networks of {source} are not those of this run: {wrong}. "
            f"Give the settings that it was trained with: {_differences(config.settings, policies.settings)}"
        )
    return learner


def _of_seeds(policies: Policies, seeds: tuple[int, ...]) -> Any:
    """Each seed's own parameters; those of the only seed for all."""
    if len(policies.seeds) == 1:
        chosen = jax.tree.map(lambda x: jnp.repeat(x, len(seeds), axis=0), policies.learner)
    elif set(seeds) <= set(policies.seeds):
        chosen = policies.only(seeds).learner
    else:
        known = ", ".join(map(str, policies.seeds))
        raise ConfigError(
            f"{policies.source} has the seeds {known}, and this run has others: name some of them, or start all from "
            f"one: homing export {shlex.quote(policies.source)} --seed {policies.seeds[0]} --out FILE.safetensors"
        )
    if not np.all(finite_seeds(chosen)):
        raise ConfigError(f"{policies.source} has diverged in some of these seeds; start from others")
    return chosen


def _differences(ours: Any, theirs: Any) -> str:
    """Flags that make networks as they are there: those of the networks, or else any setting but a rate."""
    here, there = (flat(dataclasses.asdict(settings)) for settings in (ours, theirs))
    differ = {k: v for k, v in there.items() if here.get(k) != v and isinstance(v, (bool, int, str))}
    of_nets = {k: v for k, v in differ.items() if k.split(".")[0] in nets_of(theirs)}
    flags = [_flag(name, value) for name, value in (of_nets or differ).items()]
    return " ".join(flags[:MOST_NAMED]) + (" …" if len(flags) > MOST_NAMED else "")


def _flag(name: str, value: Any) -> str:
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no-{name}"
    return f"--{name} {value}"
