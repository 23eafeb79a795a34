"""What can be played: policies and environments, and the choices that a page may offer."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from homing.envs.registry import ALIASES, env_ids, get_spec, is_env
from homing.errors import ConfigError, unknown
from homing.policies import find_policies, shipped_names
from homing.policies.store import Which, locate
from homing.training.build import check_alike
from homing.viz import video
from homing.viz.video import Actor

NO_TIME_LIMIT = 1_000_000_000  # steps
CHECKPOINTS: tuple[Which, ...] = get_args(Which)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A policy, or an environment without one, and where it acts; None is the policy's own environment."""

    source: str
    seed: int | None = None
    which: Which = "last"
    env: str | None = None


def check_source(source: str) -> None:
    """Refuse what is neither a policy nor an environment."""
    if is_environment(source):
        return
    if len(Path(source).parts) == 1 and not Path(source).suffix and not Path(source).exists():
        names = (*env_ids(), *ALIASES, *shipped_names())
        if source not in names:
            raise unknown("environment or shipped policy", source, names)
    locate(source)


def is_environment(source: str) -> bool:
    """Whether a name stands for an environment without a policy."""
    named = is_env(source)
    return named and source not in shipped_names() and not Path(source).exists()


def make_actor(choice: Choice) -> Actor:
    """An actor in one environment without a time limit."""
    if is_environment(choice.source):
        return _without_policy(choice.env or choice.source)
    policies = find_policies(choice.source, choice.which)
    where = dataclasses.replace(policies.choice, episode_length=NO_TIME_LIMIT)
    env = where.make(1, choice.env)
    check_alike(policies, env)
    seed = policies.seeds[policies.place(choice.seed)]
    label = f"{policies.agent_name}, seed {seed}"
    return Actor(label, env, video.greedy(policies.agent), policies.one(seed), policies, seed)


def _without_policy(id: str) -> Actor:
    from homing.envs import make
    from homing.viz.render import zero_policy

    env = make(id, num_envs=1, episode_length=NO_TIME_LIMIT)
    rest = zero_policy(env)
    return Actor("no policy: push it", env, lambda _, obs, key: rest(obs, key), ())


def compatible_environments(env: str) -> tuple[str, ...]:
    """Environments where a policy of this one can act: same body, objects and kind of goal."""
    own = get_spec(env)
    alike = lambda other: (
        other.body.name == own.body.name
        and other.task.goal == own.task.goal
        and len(other.task.props) == len(own.task.props)
        and other.pipelines()[0] == own.pipelines()[0]
    )
    return (env, *(id for id in env_ids() if id != env and alike(get_spec(id))))


def offered_environments(source: str, actor: Actor) -> tuple[str, ...]:
    """Environments that the page offers for what is played now, which may be in one of the command line."""
    home = actor.policies.choice.env if actor.policies else source
    return tuple(dict.fromkeys((*compatible_environments(home), actor.env.spec.id)))


def check_offered(choice: Choice, source: str, actor: Actor, sources: Sequence[str]) -> None:
    """Refuse a choice that the page does not offer, so that no browser names a file to open."""
    if choice.source not in sources:
        raise ConfigError("this policy is neither shipped nor was it given on the command line")
    if choice.source != source:
        if choice != Choice(choice.source):
            raise ConfigError("choose the policy first, then its seed, checkpoint and environment")
        return
    if choice.seed is not None and (actor.policies is None or choice.seed not in actor.policies.seeds):
        raise ConfigError(f"this policy has no seed {choice.seed}")
    if choice.which not in CHECKPOINTS:
        raise ConfigError(f"a checkpoint is one of {', '.join(CHECKPOINTS)}")
    if choice.env is not None and choice.env not in offered_environments(source, actor):
        raise ConfigError(f"this policy cannot act in {choice.env!r}")
