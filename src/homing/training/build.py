"""From a run's settings to its parts: environments, agent, plan and training loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax

from homing.agents import Agent, OffPolicyAgent, agent_types, make_agent
from homing.config.offpolicy import TrainConfig
from homing.config.onpolicy import OnPolicyConfig, OnPolicyPlan
from homing.config.plan import Schedule
from homing.config.run import DataFile, RunConfig
from homing.data.replay import Stored
from homing.datasets import check_dataset, read_dataset, stored
from homing.envs import make
from homing.envs.base import GoalEnv
from homing.envs.registry import canonical
from homing.errors import ConfigError
from homing.training import offpolicy, onpolicy
from homing.training.loop import Loop
from homing.training.seeds import cpu_device


class Parts(NamedTuple):
    """What a run is made of; nothing is compiled yet, and only a dataset is allocated, on the host."""

    env: GoalEnv
    eval_env: GoalEnv
    agent: Agent
    plan: Schedule
    data: Stored | None = None
    """What there is to learn from, where nothing is collected."""
    data_file: DataFile | None = None
    """The file that it was read from, with its digest."""
    initial: Any = None
    """Parameters [S, ...] that the learners start with, instead of random ones."""

    @property
    def loop(self) -> Loop:
        """The training loop of one seed."""
        return make_loop(self.env, self.agent, self.plan, self.data)


def build(config: RunConfig) -> Parts:
    """Environments, agent and plan; every impossible setting is found here."""
    env = environment(config, config.env, config.train.num_envs)
    if config.eval_env is None or canonical(config.eval_env) == canonical(config.env):
        eval_env = env
    else:
        eval_env = environment(config, config.eval_env, config.train.eval_envs)
    eval_env = eval_env.of_size(config.train.eval_envs, restarts=False)
    check_alike(env, eval_env)
    env = _cut_short(env, config)
    agent = make_agent(config.settings, env.spec)
    check_together(config, env, agent)
    seeds = len(config.seeds)
    if config.data is None:
        return Parts(env, eval_env, agent, make_plan(config.train, env, agent, seeds))
    dataset = read_dataset(config.data.path, config.data.sha256)
    check_dataset(dataset, env, agent)
    plan = offpolicy.make_plan(config.train, env, agent, seeds, dataset.transitions)  # type: ignore[arg-type]
    # Where memory is short, the plan says so before the device is filled.
    with jax.default_device(cpu_device()):
        data = stored(dataset, env, plan.buffer_shape)
    return Parts(env, eval_env, agent, plan, data, DataFile(config.data.path, dataset.sha256))


def check_together(config: RunConfig, env: GoalEnv, agent: Agent) -> None:
    """Refuse settings that are right each by itself, but not for this agent in this environment."""
    check_relabelled_reward(config, env, agent)
    if config.data is None:
        check_needs_no_data(config)
        check_split_goals(config, env, agent)


def check_needs_no_data(config: RunConfig) -> None:
    """Refuse to train an agent without the dataset that it needs."""
    agent = agent_types(config.agent)[1]
    if issubclass(agent, OffPolicyAgent) and agent.needs_data:
        raise ConfigError(
            f"{config.agent} learns from a dataset and collects nothing: pass --data FILE.npz; "
            "`homing data export POLICY` writes one"
        )


def _cut_short(env: GoalEnv, config: RunConfig) -> GoalEnv:
    """The environment to train in, whose episodes may end sooner than the evaluation's."""
    length = config.train.train_episode_length if isinstance(config.train, TrainConfig) else None
    if length is None or length >= config.episode_length:
        return env
    return env.of_size(config.train.num_envs, episode_length=length)


class HasSpaces(Protocol):
    """An environment or a policy: its `spec` has the sizes of states, goals and actions, and an id."""

    @property
    def spec(self) -> Any: ...


class InEnvironment(Protocol):
    """The settings by which an environment is made; a RunConfig has them."""

    @property
    def env(self) -> str: ...
    @property
    def episode_length(self) -> int: ...
    @property
    def physics(self) -> str | None: ...
    @property
    def reward(self) -> str: ...
    @property
    def env_options(self) -> Mapping[str, Any]: ...


def environment(config: InEnvironment, id: str, num_envs: int) -> GoalEnv:
    """An environment of the run; its options hold for the one that is trained in."""
    return make(
        id,
        num_envs=num_envs,
        episode_length=config.episode_length,
        physics=config.physics,
        reward=config.reward,
        options=config.env_options if canonical(id) == canonical(config.env) else None,
    )


def check_relabelled_reward(config: RunConfig, env: GoalEnv, agent: Agent) -> None:
    """Dense rewards of relabelled goals are computed from stored states: 16-bit ones would round them away."""
    storage = config.train.replay_dtype if isinstance(config.train, TrainConfig) else "float32"
    kind = agent_types(config.agent)[1]
    rewarded = issubclass(kind, OffPolicyAgent) and kind.uses_rewards
    relabels = isinstance(agent, OffPolicyAgent) and agent.relabel.sampler != "commanded"
    if env.shaping is not None and rewarded and relabels and storage != "float32":
        raise ConfigError(
            f"a dense reward for other goals needs --replay-dtype float32, not {storage}; "
            "or train with the sparse reward, or without --her"
        )


def check_split_goals(config: RunConfig, env: GoalEnv, agent: Agent) -> None:
    """Where an episode of replay ends with the step that reaches its goal, that step has no next state and no target:
    sparse rewards for commanded goals would never be learned from."""
    if not isinstance(agent, OffPolicyAgent) or not agent_types(config.agent)[1].uses_rewards:
        return
    commanded = agent.relabel.sampler == "commanded" or agent.relabel.ratio < 1
    unlearned = env.splits_episodes and env.scene.spec.goals.split_when_reached and env.shaping is None
    if unlearned and commanded:
        raise ConfigError(
            f"with goals.split=true and goals.renew=reached {config.agent} learns nothing from the steps that reach "
            "commanded goals: leave out goals.split, set goals.hold to more than 1, "
            "or take all goals in hindsight (--her --her-ratio 1)"
        )


def check_alike(env: HasSpaces, other: HasSpaces) -> None:
    """Refuse to evaluate a policy where its states, goals or actions have other sizes."""
    for name in ("state_dim", "goal_dim", "action_dim"):
        ours, theirs = getattr(env.spec, name), getattr(other.spec, name)
        if ours != theirs:
            raise ConfigError(
                f"a policy of {env.spec.id} cannot act in {other.spec.id}: "
                f"{name} is {theirs} there and {ours} here"
            )


def make_plan(config: TrainConfig | OnPolicyConfig, env: GoalEnv, agent: Any, seeds: int = 1) -> Schedule:
    """The plan of a run, by the kind of its settings; shapes are traced, nothing is allocated."""
    if isinstance(config, OnPolicyConfig):
        return onpolicy.make_plan(config, env, agent, seeds)
    return offpolicy.make_plan(config, env, agent, seeds)


def make_loop(env: GoalEnv, agent: Agent, plan: Schedule, data: Stored | None = None) -> Loop:
    """The loop that carries out a plan: `init`, `epoch` and `evaluate` for one seed."""
    kind = onpolicy.OnPolicy if isinstance(plan, OnPolicyPlan) else offpolicy.OffPolicy
    return kind(env, agent, plan, data)  # type: ignore[arg-type]
