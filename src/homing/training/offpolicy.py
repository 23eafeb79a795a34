"""The off-policy loop: collect, store, sample, relabel, learn; written for one seed, run for many."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from homing.agents.base import OffPolicyAgent
from homing.compile import xla
from homing.config.offpolicy import Plan, TrainConfig
from homing.data import relabel, replay
from homing.data.replay import Ring, Timeline
from homing.data.rollout import unroll
from homing.networks import depth_of
from homing.training.loop import (
    MEASURE,
    TrainState,
    evaluate_greedy,
    first_state,
    iteration_key,
    run_epoch,
    sizes_of,
    watched,
)
from homing.types import Array, Batch, Key, Metrics, Moment, Obs

# Batches on which a learner is measured at an evaluation.
MEASURED_BATCHES = 32


@dataclasses.dataclass(frozen=True)
class OffPolicy:
    """One agent in one environment, by a plan. `iteration` counts from 0 and goes on through the prefill."""

    env: Any
    agent: OffPolicyAgent
    plan: Plan

    def init(self, key: Key) -> TrainState:
        return first_state(self.env, self.agent, replay.empty(self.plan.ring_shape), key)

    def epoch(self, train: TrainState, start: Array, stop: Array) -> tuple[TrainState, Metrics]:
        """Iterations start..stop−1; what they learn is measured at the evaluation that follows."""
        return run_epoch(self.iterate, {}, train, start, stop, self.plan)

    def iterate(self, train: TrainState, iteration: Array) -> tuple[TrainState, Metrics]:
        """Collect one unroll, then, past the prefill, learn from all that is stored."""
        k_collect, k_learn = jax.random.split(iteration_key(train, iteration))
        train = self.collect(train, iteration, k_collect)
        line = replay.timeline(train.ring, iteration + 1)
        return train.replace(learner=self.learn(train, line, iteration, k_learn)), {}

    def collect(self, train: TrainState, iteration: Array, key: Key) -> TrainState:
        """One unroll of the exploring policy, into the ring; the first lanes may act greedily."""
        config = self.plan.config
        greedy = jnp.arange(config.num_envs)[:, None] < round(config.greedy * config.num_envs)

        def policy(obs: Obs, k_action: Key) -> Array:
            action = self.agent.act(train.learner, obs, k_action, explore=True)
            if config.greedy == 0:
                return action
            return jnp.where(greedy, self.agent.act(train.learner, obs, k_action, explore=False), action)

        env, segment = unroll(self.env, train.env, policy, key, config.unroll_length)
        learner = watched(self.agent, train.learner, segment.obs, segment.reached)
        return train.replace(env=env, ring=replay.insert(train.ring, segment, iteration), learner=learner)

    def learn(self, train: TrainState, line: Timeline, iteration: Array, key: Key) -> Any:
        """The updates of one iteration: whole chunks, then what is left over; none during the prefill.

        What an update measures is dropped here, so that no update spends kernels on it; see `measure`.
        """
        size, leftover = self.plan.chunk_updates, self.plan.leftover_updates
        before = updates_before(self.plan, iteration)
        count = updates_before(self.plan, iteration + 1) - before

        def prepare(first: Array, updates: int) -> tuple[Batch, Any, Moment]:
            return self._prepare(train.ring, line, key, first, before, updates)

        turns = xla.turns(depth_of(self.agent))

        def chunk(i: Array, learner: Any) -> Any:
            # Of fixed length, unlike the loop around it: an accelerator runs it without asking the host.
            return lax.scan(self._step, learner, prepare(i * size, size), unroll=turns)[0]

        learner = lax.fori_loop(0, count // size, chunk, train.learner)
        if leftover:
            last = prepare(count // size * size, leftover)
            learner = lax.fori_loop(
                0, count % size, lambda i, learner: self._step(learner, _take(last, i))[0], learner
            )
        return learner

    def evaluate(self, train: TrainState, iteration: Array, env: Any) -> Metrics:
        """The greedy policy on fresh starts and goals of `env`, and, as `train/…`, what was learned."""
        told = self.measure(train, iteration)
        return evaluate_greedy(self.agent, train, iteration, env) | {f"train/{k}": v for k, v in told.items()}

    def measure(self, train: TrainState, iteration: Array) -> Metrics:
        """Means of what updates would measure on some batches; NaN before the first update."""
        line = replay.timeline(train.ring, jnp.maximum(iteration, 1))
        updates = updates_before(self.plan, iteration)

        def one(key: Key) -> Metrics:
            k_batch, k_update = jax.random.split(key)
            batch = self._batch(train.ring, line, k_batch)
            return self.agent.update(train.learner, batch, self._draw(k_update), self._moment(updates))[1]

        keys = jax.random.split(iteration_key(train, iteration, MEASURE), MEASURED_BATCHES)
        return jax.tree.map(
            lambda x: jnp.where(updates > 0, jnp.mean(x, axis=0), jnp.nan), lax.map(one, keys)
        )

    def _batch(self, ring: Ring, line: Timeline, key: Key) -> Batch:
        """One batch of relabelled rows [B]."""
        k_rows, k_goals = jax.random.split(key)
        config = self.plan.config
        rows = replay.sample(ring, line, k_rows, config.batch_size, config.newest)
        agent, others = self.agent, getattr(self.agent, "goal_others", 0.0)
        way = agent.goal_sampler, agent.goal_share
        goal = relabel.goals(*way, ring, line, rows, k_goals, agent.gamma, others)
        return relabel.batch(ring, line, rows, goal, self.env.reward, self.env.shaping)

    def _prepare(
        self, ring: Ring, line: Timeline, key: Key, first: Array, before: Array, count: int
    ) -> tuple[Batch, Any, Moment]:
        """Batches, draws and moments [U, ...]. Each update has a key of its own: chunking changes nothing."""
        index = first + jnp.arange(count, dtype=jnp.int32)
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(index)
        batches = jax.vmap(lambda k_batch: self._batch(ring, line, k_batch))(keys[:, 0])
        return batches, jax.vmap(self._draw)(keys[:, 1]), self._moment(before + index)

    def _moment(self, updates: Array) -> Moment:
        """After so many updates: rates go down in a straight line to their last share."""
        done = updates.astype(jnp.float32) / self.plan.total_updates
        return Moment(updates, 1 - (1 - self.plan.config.final_rate) * done)

    def _draw(self, key: Key) -> Any:
        return draws(self.agent, key, self.plan.config.batch_size)

    def _step(self, learner: Any, prepared: tuple[Batch, Any, Moment]) -> tuple[Any, None]:
        return self.agent.update(learner, *prepared)[0], None


def make_plan(config: TrainConfig, env: Any, agent: OffPolicyAgent, seeds: int = 1) -> Plan:
    """The plan of a run; shapes are traced, nothing is allocated."""
    return Plan(config=config, sizes=sizes_of(env, agent), seeds=seeds)


def draws(agent: OffPolicyAgent, key: Key, rows: int) -> Any:
    """The random numbers of one update: what the agent draws, or a key. Many updates draw theirs at once."""
    return agent.draw(key, rows) if hasattr(agent, "draw") else key


def updates_before(plan: Plan, iteration: Array) -> Array:
    """`plan.updates_at(iteration)` in int32 without overflow."""
    trained = jnp.maximum(iteration - plan.prefill_iterations, 0)
    numerator, denominator = plan.updates_ratio.numerator, plan.updates_ratio.denominator
    whole, part = divmod(numerator, denominator)
    return trained * whole + trained // denominator * part + trained % denominator * part // denominator


def _take(tree: Any, i: Array) -> Any:
    return jax.tree.map(lambda x: x[i], tree)
