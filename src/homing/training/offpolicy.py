"""The off-policy loop: collect, store, sample, relabel, learn; written for one seed, run for many."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.agents import OffPolicyAgent
from homing.compile import xla
from homing.config.offpolicy import Plan, TrainConfig
from homing.config.plan import Sizes
from homing.data import replay
from homing.data.replay import EpisodeIndex, ReplayBuffer, Stored
from homing.data.rollout import split_transition, transition, unroll
from homing.data.view import EnvRewards, ReplayView
from homing.envs.base import GoalEnv
from homing.networks import depth_of
from homing.training.loop import (
    MEASURE,
    TrainState,
    averaged,
    evaluate_greedy,
    first_average,
    first_state,
    iteration_key,
    run_epoch,
    sizes_of,
)
from homing.types import Array, Key, Metrics, Obs, UpdateContext, bytes_of

# Batches on which a learner is measured at an evaluation.
MEASURED_BATCHES = 32


@dataclasses.dataclass(frozen=True)
class OffPolicy:
    """One agent in one environment, by a plan. `iteration` counts from 0, the prefill included.

    With `data`, all seeds learn from the same stored transitions, and no environment is stepped but to evaluate.
    """

    env: GoalEnv
    agent: OffPolicyAgent
    plan: Plan
    data: Stored | None = None

    def init(self, key: Key) -> TrainState:
        keeps_average = self.plan.config.policy_ema > 0
        if self.data is None:
            return first_state(self.env, self.agent, replay.empty(self.plan.buffer_shape), key, keeps_average)
        train = first_state(None, self.agent, (), key)
        buffer = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[3:])[: self.plan.transitions], self.data.buffer
        )
        seen = Obs(buffer.state.astype(jnp.float32), buffer.goal)
        learner = self.agent.observe(train.learner, seen, buffer.achieved_goal)
        return train.replace(learner=learner, average=first_average(learner) if keeps_average else ())

    def epoch(self, train: TrainState, start: Array, stop: Array) -> tuple[TrainState, Metrics]:
        """Iterations start..stop−1; their metrics are measured at the evaluation that follows."""
        return run_epoch(self.iterate, {}, train, start, stop, self.plan)

    def iterate(self, train: TrainState, iteration: Array) -> tuple[TrainState, Metrics]:
        """Collect one unroll, then, past the prefill, learn from all that is stored."""
        k_collect, k_learn = jax.random.split(iteration_key(train, iteration))
        if self.data is None:
            train = self.collect(train, iteration, k_collect)
        learner = self.learn(train.learner, self.stored(train, iteration + 1), iteration, k_learn)
        average, decay = train.average, self.plan.config.policy_ema
        if decay > 0:
            average = averaged(average, learner, decay)
        return train.replace(learner=learner, average=average), {}

    def collect(self, train: TrainState, iteration: Array, key: Key) -> TrainState:
        """One unroll of the exploring policy, into replay; the first environments may act greedily."""
        config = self.plan.config
        fraction = config.greedy_env_fraction
        greedy = jnp.arange(config.num_envs)[:, None] < round(fraction * config.num_envs)

        def policy(obs: Obs, k_action: Key) -> Array:
            action = self.agent.act(train.learner, obs, k_action, explore=True)
            if fraction == 0:
                return action
            return jnp.where(greedy, self.agent.act(train.learner, obs, k_action, explore=False), action)

        length, chunk = config.unroll_length, self.agent.chunk
        record = split_transition if self.env.splits_episodes else transition
        env, segment = unroll(self.env, train.env, policy, key, length, record, chunk=chunk)
        learner = self.agent.observe(train.learner, segment.obs, segment.achieved_goal)
        buffer = replay.insert(train.replay, segment, iteration)
        return train.replace(env=env, replay=buffer, learner=learner)

    def stored(self, train: TrainState, collected: Array) -> Stored:
        """What there is to learn from after so many unrolls."""
        if self.data is not None:
            return self.data
        return Stored(train.replay, replay.episode_index(train.replay, collected))

    def learn(self, learner: Any, stored: Stored, iteration: Array, key: Key) -> Any:
        """The updates of one iteration: whole prefetched groups, then the remainder; none in the prefill.

        Metrics of an update are dropped here, so that no update spends kernels on them; see `measure`.
        """
        size, leftover = self.plan.prefetch_updates, self.plan.leftover_updates
        before = updates_before(self.plan, iteration)
        count = updates_before(self.plan, iteration + 1) - before

        def prepare(first: Array, updates: int) -> tuple[Any, Any, UpdateContext]:
            return self._prepare(stored, key, first, before, updates)

        unroll = xla.unroll_factor(depth_of(self.agent))

        def group(i: Array, learner: Any) -> Any:
            # Of fixed length, unlike the loop around it: an accelerator runs it without asking the host.
            return self.agent.updates(learner, *prepare(i * size, size), unroll=unroll)

        learner = lax.fori_loop(0, count // size, group, learner)
        if leftover:
            last = prepare(count // size * size, leftover)
            learner = lax.fori_loop(
                0, count % size, lambda i, learner: self.agent.update(learner, *_take(last, i))[0], learner
            )
        return learner

    def evaluate(self, train: TrainState, iteration: Array, env: GoalEnv) -> Metrics:
        """The greedy policy on fresh starts and goals of `env`, and, as `train/…`, what was learned."""
        measured = {f"train/{name}": value for name, value in self.measure(train, iteration).items()}
        return evaluate_greedy(self.agent, train, self.plan, iteration, env) | measured

    def measure(self, train: TrainState, iteration: Array) -> Metrics:
        """Means of the update's metrics on some batches; NaN before the first update."""
        stored = self.stored(train, jnp.maximum(iteration, 1))
        updates = updates_before(self.plan, iteration)

        def one(key: Key) -> Metrics:
            k_batch, k_update = jax.random.split(key)
            batch = self._batch(stored, k_batch)
            return self.agent.update(train.learner, batch, self._draw(k_update), self._context(updates))[1]

        keys = jax.random.split(iteration_key(train, iteration, MEASURE), MEASURED_BATCHES)
        return jax.tree.map(
            lambda x: jnp.where(updates > 0, jnp.mean(x, axis=0), jnp.nan), lax.map(one, keys)
        )

    def _batch(self, stored: Stored, key: Key) -> Any:
        """The agent's batch for one update."""
        return sample_batch(self.env, self.agent, self.plan.config, stored.buffer, stored.episodes, key)

    def _prepare(
        self, stored: Stored, key: Key, first: Array, before: Array, count: int
    ) -> tuple[Any, Any, UpdateContext]:
        """Batches, draws and contexts [U, ...]. Each update has a key of its own: prefetching changes nothing."""
        index = first + jnp.arange(count, dtype=jnp.int32)
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(index)
        batches = jax.vmap(lambda k_batch: self._batch(stored, k_batch))(keys[:, 0])
        return batches, jax.vmap(self._draw)(keys[:, 1]), self._context(before + index)

    def _context(self, updates: Array) -> UpdateContext:
        """After so many updates: learning rates are annealed linearly to their final scale."""
        done = updates.astype(jnp.float32) / self.plan.total_updates
        return UpdateContext(updates, self.plan.lr_scale(done))

    def _draw(self, key: Key) -> Any:
        return self.agent.draw(key, self.plan.config.batch_size)


def rewards_of(env: GoalEnv) -> EnvRewards:
    """What relabelling asks of an environment."""
    return EnvRewards(env.reward, env.achieved, env.distance, env.shaping)


def sample_batch(
    env: GoalEnv,
    agent: OffPolicyAgent,
    config: TrainConfig,
    buffer: ReplayBuffer,
    episodes: EpisodeIndex,
    key: Key,
) -> Any:
    """Transitions drawn uniformly, and the agent's batch made from them."""
    k_index, k_goals = jax.random.split(key)
    fraction = config.replay_recent_fraction
    index = replay.sample(buffer, episodes, k_index, config.batch_size, fraction)
    return agent.sample(ReplayView(buffer, episodes, rewards_of(env)), index, k_goals)


def make_plan(
    config: TrainConfig, env: GoalEnv, agent: OffPolicyAgent, seeds: int = 1, transitions: int = 0
) -> Plan:
    """The plan of a run; shapes are traced, nothing is allocated."""
    sizes = dataclasses.replace(sizes_of(env, agent), batch_bytes=batch_bytes(config, env, agent))
    return Plan(config=config, sizes=sizes, seeds=seeds, transitions=transitions)


def batch_bytes(config: TrainConfig, env: GoalEnv, agent: OffPolicyAgent) -> int:
    """One batch of the agent's and its draws, of whatever type they are."""
    sizes = Sizes(env.spec.state_dim, env.spec.action_dim, env.spec.goal_dim)
    shape = Plan.shape_of_buffer(config, sizes)

    def prepared(key: Key) -> Any:
        k_batch, k_draw = jax.random.split(key)
        buffer = replay.empty(dataclasses.replace(shape, slots=1))
        episodes = replay.episode_index(buffer, jnp.int32(1))
        batch = sample_batch(env, agent, config, buffer, episodes, k_batch)
        draws = agent.draw(k_draw, config.batch_size)
        is_key = jnp.issubdtype(getattr(draws, "dtype", jnp.float32), jax.dtypes.prng_key)
        return batch, () if is_key else draws

    return bytes_of(jax.eval_shape(prepared, jax.random.key(0)))


def updates_before(plan: Plan, iteration: Array) -> Array:
    """`plan.updates_at(iteration)` in int32 without overflow."""
    trained = jnp.maximum(iteration - plan.prefill_iterations, 0)
    numerator, denominator = plan.updates_ratio.numerator, plan.updates_ratio.denominator
    whole, part = divmod(numerator, denominator)
    return trained * whole + trained // denominator * part + trained % denominator * part // denominator


def _take(tree: Any, i: Array) -> Any:
    return jax.tree.map(lambda x: x[i], tree)
