"""The case of a learner benchmark: an agent with its plan, without physics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import jax

from homing.agents import make_agent
from homing.agents.base import Agent, AgentConfig, OffPolicyAgent, OnPolicyAgent
from homing.config.offpolicy import Plan, TrainConfig
from homing.config.onpolicy import OnPolicyConfig, OnPolicyPlan
from homing.config.plan import WORKSPACE, Sizes, human_bytes
from homing.config.run import RunConfig, run_config
from homing.envs.info import EnvInfo
from homing.errors import ConfigError
from homing.networks import nets_of, with_nets
from homing.system.doctor import free_bytes
from homing.training.build import environment
from homing.training.offpolicy import batch_bytes
from homing.types import bytes_of


class Case(NamedTuple):
    """An agent and its plan, for an environment's sizes."""

    config: RunConfig
    agent: Any  # an OffPolicyAgent or OnPolicyAgent, of the kind of the plan
    plan: Any  # a Plan or OnPolicyPlan
    spec: EnvInfo
    net_dtype: str

    @property
    def updates(self) -> int:
        """Updates of each seed in one round: the prefetched ones, or those of one rollout."""
        return self.plan.updates_per_iteration if self.on_policy else self.plan.prefetch_updates

    @property
    def on_policy(self) -> bool:
        return isinstance(self.plan, OnPolicyPlan)


def config_of(
    env: str,
    seeds: int,
    agent: str = "crl",
    preset: str = "paper",
    net: Mapping[str, Any] | None = None,
    physics: str | None = None,
    **changes: Any,
) -> RunConfig:
    """The run config of a benchmark; `net` overrides fields of every network, `changes` other settings."""
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; it must be at least 1")
    numbers = tuple(range(seeds))
    config = run_config(agent, env, preset_name=preset, seeds=numbers, changes=changes, physics=physics)
    return dataclasses.replace(config, settings=with_nets(config.settings, net or {}))


def make_case(env: str, seeds: int, *given: Any, **changes: Any) -> Case:
    """The case of a `config_of` with these arguments."""
    config = config_of(env, seeds, *given, **changes)
    one = environment(config, config.env, 1)
    spec = one.spec
    made = make_agent(config.settings, spec)
    learner = jax.eval_shape(made.init, jax.eval_shape(lambda: jax.random.key(0)))
    # As many batches in a round as training prepares at once.
    each = 0
    if isinstance(config.train, TrainConfig):
        each = batch_bytes(config.train, one, cast(OffPolicyAgent, made))
    sizes = Sizes(
        spec.state_dim, spec.action_dim, spec.goal_dim, learner_bytes=bytes_of(learner), batch_bytes=each
    )
    return Case(config, made, _plan(config.train, made, sizes, seeds), spec, net_dtype(config.settings))


def _plan(
    config: TrainConfig | OnPolicyConfig, agent: Agent, sizes: Sizes, seeds: int
) -> Plan | OnPolicyPlan:
    if isinstance(config, OnPolicyConfig):
        return OnPolicyPlan(
            config, sizes, seeds, cast(OnPolicyAgent, agent).updates_per_rollout(config.num_envs)
        )
    return Plan(config, sizes, seeds)


def net_dtype(settings: AgentConfig) -> str:
    """The dtype of most networks, which selects the compute roofline."""
    dtypes = [net.dtype for net in nets_of(settings).values()] or ["float32"]
    return max(dict.fromkeys(dtypes), key=dtypes.count)


def needed_bytes(case: Case) -> int:
    """Bytes of the learners and batches or rollouts of all seeds."""
    parts = case.plan.bytes_by_part
    each = sum(parts.get(name, 0) for name in ("learner", "batches", "rollout"))
    return int(WORKSPACE * each * case.plan.seeds)


def check_fits(case: Case) -> None:
    """Raise if the case does not fit into the free memory."""
    free, needed = free_bytes(), needed_bytes(case)
    if free is None or needed <= free:
        return
    most = free * case.plan.seeds // needed
    fix = f"--seeds {most}" if most else "smaller batches or networks"
    raise ConfigError(f"the learners need {human_bytes(needed)} but {human_bytes(free)} are free; use {fix}")
