"""The training loop for an agent's kind of settings."""

from __future__ import annotations

from typing import Any

from homing.config_onpolicy import OnPolicyConfig, OnPolicyPlan
from homing.schedule import Schedule
from homing.training import offpolicy, onpolicy


def make_plan(config: Any, env: Any, agent: Any, seeds: int = 1) -> Any:
    """The plan of a run, by the kind of its settings; shapes are traced, nothing is allocated."""
    if isinstance(config, OnPolicyConfig):
        return onpolicy.make_plan(config, env, agent, seeds)
    return offpolicy.make_plan(config, env, agent, seeds)


def make_loop(env: Any, agent: Any, plan: Schedule) -> Any:
    """The loop that carries out a plan: `init`, `epoch` and `evaluate` for one seed."""
    kind = onpolicy.OnPolicy if isinstance(plan, OnPolicyPlan) else offpolicy.OffPolicy
    return kind(env, agent, plan)  # type: ignore[arg-type]
