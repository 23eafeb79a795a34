"""The policies that a page can be made of."""

from __future__ import annotations

from pathlib import Path

from homing.envs.registry import is_env
from homing.errors import ConfigError
from homing.policies import find_policies, shipped_names
from homing.policies.export import rounded
from homing.policies.store import Which, locate
from homing.training.build import check_alike
from homing.viz.video import Actor, greedy


def check_source(source: str) -> None:
    """Refuse what is no policy; computes nothing."""
    if is_env(source) and source not in shipped_names() and not Path(source).exists():
        raise ConfigError(
            f"no policy for {source} comes with Homing; name a run's folder or a policy file "
            f"(`homing train crl {source}` makes one)"
        )
    locate(source)


def make_actor(source: str, seed: int | None = None, which: Which = "last", env: str | None = None) -> Actor:
    """The policy of one seed in one environment, with weights of 16 bits and float32 arithmetic, as in a page."""
    check_source(source)
    found = find_policies(source, which)
    chosen = found.seeds[found.place(seed)]
    policies = rounded(found.only((chosen,))).in_float32()
    where = policies.choice.make(1, env)
    check_alike(policies, where)
    return Actor(
        f"{policies.agent_name}, seed {chosen}",
        where,
        greedy(policies.agent),
        policies.one(chosen),
        policies,
        chosen,
    )
