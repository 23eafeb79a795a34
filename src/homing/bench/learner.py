"""Measuring an agent's updates alone, on random batches of an environment's sizes: no physics is compiled."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.agents import make_agent
from homing.bench.cost import flops, hlo, profiler, roofline
from homing.compile import xla
from homing.config.offpolicy import Plan
from homing.config.onpolicy import OnPolicyConfig, OnPolicyPlan
from homing.config.plan import WORKSPACE, Sizes, human_bytes
from homing.config.run import RunConfig, run_config
from homing.data import replay
from homing.data.view import EnvRewards, ReplayView
from homing.errors import ConfigError, unknown
from homing.networks import COMPUTE_DTYPES, Fit, depth_of, nets_of
from homing.system import hardware
from homing.system.doctor import free_bytes
from homing.training.build import environment
from homing.training.seeds import jitted, seed_keys
from homing.types import Array, Key, Obs, Rollout, UpdateContext, bytes_of

COUNTED_BY = {
    "kernels": "the profiler, where there is a GPU and programs are no graphs",
    "launches": "instructions of the compiled loop that start something",
    "bytes": "what those instructions read and write",
    "flops": "matrix products of the traced update",
}


class Case(NamedTuple):
    """What is measured: an agent, by a plan that knows nothing of physics."""

    config: RunConfig
    agent: Any
    plan: Any
    spec: Any
    net_dtype: str

    @property
    def updates(self) -> int:
        """Of each seed in one round: as many as are prepared at once, or one rollout's."""
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
    """`net` changes every network of the agent, as dtype="bfloat16" does; `changes` are other settings."""
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}; it must be at least 1")
    numbers = tuple(range(seeds))
    config = run_config(agent, env, preset_name=preset, seeds=numbers, changes=changes, physics=physics)
    return dataclasses.replace(config, settings=with_nets(config.settings, net or {}))


def make_case(env: str, seeds: int, *given: Any, **changes: Any) -> Case:
    """Of the settings that `config_of` gives."""
    config = config_of(env, seeds, *given, **changes)
    spec = environment(config, config.env, 1).spec
    made = make_agent(config.settings, spec)
    learner = jax.eval_shape(made.init, jax.eval_shape(lambda: jax.random.key(0)))
    sizes = Sizes(spec.state_dim, spec.action_dim, spec.goal_dim, learner_bytes=bytes_of(learner))
    return Case(config, made, _plan(config.train, made, sizes, seeds), spec, net_dtype(config.settings))


def _plan(config: Any, agent: Any, sizes: Sizes, seeds: int) -> Any:
    if isinstance(config, OnPolicyConfig):
        return OnPolicyPlan(config, sizes, seeds, agent.updates_per_rollout(config.num_envs))
    return Plan(config, sizes, seeds)


def with_nets(settings: Any, changes: Mapping[str, Any]) -> Any:
    """An agent's settings with all its networks changed alike."""
    if "dtype" in changes and changes["dtype"] not in COMPUTE_DTYPES:
        raise unknown("network dtype", changes["dtype"], COMPUTE_DTYPES)
    nets = {name: dataclasses.replace(net, **changes) for name, net in nets_of(settings).items()}
    return dataclasses.replace(settings, **nets)


def net_dtype(settings: Any) -> str:
    """In which most of the networks' products are computed: the one whose ceiling counts."""
    dtypes = [net.dtype for net in nets_of(settings).values()] or ["float32"]
    return max(dict.fromkeys(dtypes), key=dtypes.count)


def needed_bytes(case: Case) -> int:
    """Learners, and batches or rollouts, of all seeds."""
    parts = case.plan.bytes_by_part
    each = sum(parts.get(name, 0) for name in ("learner", "batches", "rollout"))
    return int(WORKSPACE * each * case.plan.seeds)


def check_fits(case: Case) -> None:
    """Refuse what cannot be allocated."""
    free, needed = free_bytes(), needed_bytes(case)
    if free is None or needed <= free:
        return
    most = free * case.plan.seeds // needed
    way = f"--seeds {most}" if most else "smaller batches or networks"
    raise ConfigError(f"the learners need {human_bytes(needed)} and {human_bytes(free)} are free; take {way}")


# What is run.


def rounds_of_updates(case: Case) -> Any:
    """Compiled for all seeds: (learner [S], prepared [S, …], rounds) -> learner, `case.updates` a round."""
    agent, updates = case.agent, case.updates
    unroll = xla.unroll_factor(depth_of(agent))

    def off_policy(learner: Any, prepared: Any, rounds: Array) -> Any:
        def step(learner: Any, given: tuple[Any, Array]) -> tuple[Any, None]:
            (batch, drawn), index = given
            return agent.update(learner, batch, drawn, UpdateContext(index))[0], None

        def one(i: Array, learner: Any) -> Any:
            index = i * updates + jnp.arange(updates, dtype=jnp.int32)
            return lax.scan(step, learner, (prepared, index), unroll=unroll)[0]

        return lax.fori_loop(0, rounds, one, learner)

    def on_policy(learner: Any, prepared: tuple[Rollout, Key], rounds: Array) -> Any:
        rollout, key = prepared
        one = lambda i, learner: agent.learn(learner, rollout, jax.random.fold_in(key, i))[0]
        return lax.fori_loop(0, rounds, one, learner)

    return jitted(on_policy if case.on_policy else off_policy, shared=1, arguments=3)


def prepared(case: Case, key: Key) -> Any:
    """What the updates of one seed learn from: normal random numbers of the right sizes."""
    return _rollout(case, key) if case.on_policy else _batches(case, key)


def _batches(case: Case, key: Key) -> tuple[Any, Any]:
    """Batches and draws [U, …]: those that the agent makes of a replay buffer of random transitions."""
    k_fill, k_batch, k_draws = jax.random.split(key, 3)
    config = case.plan.config
    buffer = _random_buffer(case, k_fill)
    episodes = replay.episode_index(buffer, jnp.int32(1))
    view = ReplayView(buffer, episodes, _plain_rewards(case))

    def batch(key: Key) -> Any:
        k_index, k_goals = jax.random.split(key)
        index = replay.sample(buffer, episodes, k_index, config.batch_size)
        return case.agent.sample(view, index, k_goals)

    batches = jax.vmap(batch)(jax.random.split(k_batch, case.updates))
    draw = lambda k: case.agent.draw(k, config.batch_size)
    return batches, jax.vmap(draw)(jax.random.split(k_draws, case.updates))


def _random_buffer(case: Case, key: Key) -> replay.ReplayBuffer:
    """One slot of transitions with normal states, goals and actions; no episode ends in it."""
    shape = dataclasses.replace(case.plan.buffer_shape, slots=1, num_envs=min(case.plan.config.num_envs, 256))
    empty = replay.empty(shape)
    k_state, k_action, k_goal, k_achieved = jax.random.split(key, 4)
    normal = lambda k, like: jax.random.normal(k, like.shape, jnp.float32).astype(like.dtype)
    return empty.replace(
        state=normal(k_state, empty.state),
        action=jnp.tanh(normal(k_action, empty.action)),
        goal=normal(k_goal, empty.goal),
        achieved_goal=normal(k_achieved, empty.achieved_goal),
        discount=jnp.ones_like(empty.discount),
    )


def _plain_rewards(case: Case) -> EnvRewards:
    """Distances of random goals: what an environment computes hardly matters to the time of an update."""
    distance = lambda achieved, goal: jnp.linalg.norm(achieved - goal, axis=-1)
    return EnvRewards(
        reward=lambda achieved, goal: (distance(achieved, goal) < 0.5).astype(jnp.float32),
        achieved=lambda state: state[..., : case.spec.goal_dim],
        distance=distance,
    )


def _rollout(case: Case, key: Key) -> tuple[Rollout, Key]:
    k_rows, k_choice, k_init, k_learn = jax.random.split(key, 4)
    config, spec = case.plan.config, case.spec
    lead = (config.unroll_length, config.num_envs)
    sizes = (spec.state_dim, spec.goal_dim, spec.state_dim, spec.goal_dim)
    state, goal, next_state, achieved = _normal(k_rows, lead, sizes)
    rollout = Rollout(
        obs=Obs(state, goal),
        choice=case.agent.choose(case.agent.init(k_init), Obs(state, goal), k_choice),
        next_obs=Obs(next_state, goal),
        achieved_goal=achieved,
        reward=jnp.zeros(lead, jnp.float32),
        discount=jnp.ones(lead, jnp.float32),
        last=jnp.zeros(lead, bool),
    )
    return rollout, k_learn


def _normal(key: Key, lead: tuple[int, ...], sizes: tuple[int, ...]) -> list[Array]:
    keys = jax.random.split(key, len(sizes))
    return [jax.random.normal(k, (*lead, size), jnp.float32) for k, size in zip(keys, sizes, strict=True)]


# Measuring.


class Ready(NamedTuple):
    """A case, compiled; nothing of it is allocated yet."""

    start: Any
    """(keys [S]) -> learner, prepared"""
    rounds: Any
    """`rounds_of_updates`"""
    seconds: float


def compiled(case: Case) -> Ready:
    check_fits(case)
    begin = time.perf_counter()
    start = jitted(lambda key: (case.agent.init(key), prepared(case, key)))
    keys = seed_keys(case.config.seeds)
    rounds = rounds_of_updates(case).lower(*jax.eval_shape(start, keys), jnp.int32(1))
    ready = start.lower(keys).compile(), xla.build(rounds)
    return Ready(*ready, time.perf_counter() - begin)


def bench(case: Case, seconds: float = 5.0, ready: Ready | None = None) -> dict[str, Any]:
    """Updates per second of all seeds, what they cost, and how near the machine's ceilings that is.

    `ready`: the case, if it was compiled before.
    """
    ready = ready or compiled(case)
    learner, given = ready.start(seed_keys(case.config.seeds))
    told = measured(case, ready.rounds, learner, given, seconds)
    ratio = float(case.plan.updates_ratio) / case.plan.steps_per_iteration
    return {
        "env": case.spec.id,
        "agent": case.config.agent,
        "preset": case.config.preset,
        "seeds": case.plan.seeds,
        "net_dtype": case.net_dtype,
        **({} if case.on_policy else {"batch_size": case.plan.config.batch_size}),
        "parameters": _parameters(learner) // case.plan.seeds,
        **told,
        "updates_per_step": ratio,
        "env_steps_per_second_at_most": told["updates_per_second"] / ratio,
        "compile_seconds": ready.seconds,
        **hardware.describe(),
    }


def _parameters(learner: Any) -> int:
    """Numbers that gradients change, of all seeds."""
    fits = jax.tree.leaves(learner, is_leaf=lambda node: isinstance(node, Fit))
    return sum(x.size for fit in fits if isinstance(fit, Fit) for x in jax.tree.leaves(fit.params))


def measured(case: Case, program: Any, learner: Any, given: Any, seconds: float) -> dict[str, Any]:
    """Time and cost of updates by a compiled `rounds_of_updates`, whatever batches they are given."""
    each, rounds = roofline.timed(lambda count: program(learner, given, jnp.int32(count)), seconds)
    seeds, updates = case.plan.seeds, case.updates
    rate = seeds * updates / each
    flops = _flops(case, *jax.tree.map(lambda x: x[0], (learner, given)))
    started = hlo.cost(program.as_text())
    # Inside a graph the profiler sees nothing.
    graphs = bool(xla.options())
    profiled = None if graphs else profiler.kernels(lambda: program(learner, given, jnp.int32(1)))
    told = {
        "updates_per_second": rate,
        "microseconds_per_update": 1e6 * each / updates,
        "microseconds_per_update_rounds": [1e6 * r / updates for r in rounds],
        "graphs": graphs,
        "launches_per_update": started.launches / updates,
        **({} if profiled is None else {"kernels_per_update": profiled / updates}),
        "flops_per_update": flops,
        "tflops_per_second": 1e-12 * rate * flops,
        "bytes_per_update": started.bytes / updates / seeds,
        "bytes_per_second": started.bytes / each,
        "counted_by": COUNTED_BY,
    }
    return told | roofline.shares(told["tflops_per_second"], told["bytes_per_second"], case.net_dtype)


def _flops(case: Case, learner: Any, given: Any) -> float:
    """Of one update of one seed."""
    if case.on_policy:
        learn = lambda learner, given: case.agent.learn(learner, *given)[0]
        return flops.product_flops(learn, learner, given) / case.updates
    update = lambda learner, given: case.agent.update(learner, *given, UpdateContext())[0]
    return flops.product_flops(update, learner, jax.tree.map(lambda x: x[0], given))


def line(row: dict[str, Any]) -> str:
    """A result as a person reads it."""
    who = f"{row['env']} {row['agent']}, {row['seeds']} seed{'s' if row['seeds'] > 1 else ''}"
    parts = [
        f"{who:28s} {row['updates_per_second']:12,.0f} updates/s  {row['microseconds_per_update']:10,.1f} µs "
        f"for one of all seeds  {row['launches_per_update']:.0f} launches",
        f"allows {row['env_steps_per_second_at_most']:,.0f} steps/s "
        f"at {row['updates_per_step']:.4g} updates a step",
        against_ceilings(row),
    ]
    return "\n    ".join(parts)


def against_ceilings(row: Mapping[str, Any]) -> str:
    """What updates reach of what the machine can do."""
    dtype, most = row["net_dtype"], row["ceilings"]
    return (
        f"{row['tflops_per_second']:.3g} of {most[f'{dtype}_tflops_per_second']:.3g} TFLOP/s in {dtype} "
        f"({row['flops_share']:.1%}), {row['bytes_per_second'] / 1e9:.3g} of "
        f"{most['bytes_per_second'] / 1e9:.3g} GB/s ({row['bytes_share']:.1%})"
    )
