"""The off-policy loop of one seed: its counts, its goals and its memory."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from probes import turnstile

from homing.agents import OffPolicyAgent
from homing.config.offpolicy import TrainConfig
from homing.data import replay
from homing.training.offpolicy import OffPolicy, make_plan
from homing.types import Array, Relabel

CONFIG = TrainConfig(
    total_steps=3_000,
    num_envs=5,
    unroll_length=7,
    batch_size=16,
    updates_per_step=0.1,
    replay_size=60,
    prefill_steps=20,
    evaluations=3,
    eval_envs=5,
)


class Seen(struct.PyTreeNode):
    updates: Array  # made so far
    counts_wrong: Array  # updates whose announced number was not that
    strangers: Array  # transitions whose goal was from another episode, or from before
    past_border: Array  # transitions whose goal was more than an unroll ahead


class Witness(OffPolicyAgent):
    """An agent that learns nothing and counts what it is given on the turnstile."""

    spec = turnstile().spec
    relabel = Relabel("future")

    def init(self, key):
        zero = jnp.zeros((), jnp.int32)
        return Seen(zero, zero, zero, zero)

    def act(self, learner, obs, key, *, explore):
        return jnp.zeros((obs.state.shape[0], 1), jnp.float32)

    def update(self, learner, batch, key, context):
        ahead = batch.obs.goal[:, 1] - batch.obs.state[:, 1]
        strange = (batch.obs.goal[:, 0] != batch.obs.state[:, 0]) | (ahead < 1)
        learner = Seen(
            updates=learner.updates + 1,
            counts_wrong=learner.counts_wrong + (context.updates != learner.updates).astype(jnp.int32),
            strangers=learner.strangers + jnp.sum(strange, dtype=jnp.int32),
            past_border=learner.past_border + jnp.sum(ahead > 7, dtype=jnp.int32),
        )
        return learner, {"one": jnp.ones((), jnp.float32), "update": context.updates.astype(jnp.float32)}


@functools.cache
def run(config, agent=None):
    """Plan, last state and measurements of a whole run."""
    env = turnstile(num_envs=5, episode_length=30)
    agent = agent or Witness()
    plan = make_plan(config, env, agent)
    loop = OffPolicy(env, agent, plan)
    epoch, measure = jax.jit(loop.epoch, donate_argnums=0), jax.jit(loop.measure)
    train = jax.jit(loop.init)(jax.random.key(0))
    measured = []
    for e in range(plan.epochs):
        start, stop = plan.epoch_bounds(e)
        train, metrics = epoch(train, jnp.int32(start), jnp.int32(stop))
        metrics |= measure(train, jnp.int32(stop))
        measured.append({name: np.asarray(value) for name, value in metrics.items()})
    return plan, train, measured


# Updates an iteration: 3.5 (chunk and spare one), 0.7 (some make none), 8.75 in chunks of two.
@pytest.mark.parametrize(
    ("ratio", "prefetch_bytes"), [(0.1, CONFIG.prefetch_bytes), (0.02, 2**20), (0.25, 2_000)]
)
def test_updates_are_as_planned_and_goals_from_the_transitions_own_episode(ratio, prefetch_bytes):
    config = dataclasses.replace(CONFIG, updates_per_step=ratio, prefetch_bytes=prefetch_bytes)
    plan, train, measured = run(config)
    seen = train.learner
    assert int(seen.updates) == plan.total_updates
    assert int(seen.counts_wrong) == 0
    assert int(seen.strangers) == 0
    assert int(seen.past_border) > 0 or plan.total_updates < 100
    assert int(train.env.clock) * 5 == plan.total_steps
    assert all(metrics["one"] == 1 for metrics in measured)
    stops = [plan.epoch_bounds(e)[1] for e in range(plan.epochs)]
    assert [metrics["update"] for metrics in measured] == [plan.updates_at(stop) for stop in stops]
    assert all(metrics["finite"] for metrics in measured)


def test_before_the_first_update_nothing_is_measured():
    env = turnstile(num_envs=5, episode_length=30)
    loop = OffPolicy(env, Witness(), make_plan(CONFIG, env, Witness()))
    train, measure = jax.jit(loop.init)(jax.random.key(0)), jax.jit(loop.measure)
    for iteration in (0, loop.plan.prefill_iterations):
        assert all(np.isnan(value) for value in measure(train, jnp.int32(iteration)).values())


def test_rates_fall_in_a_straight_line_to_their_last_share():
    config = dataclasses.replace(CONFIG, lr_final_scale=0.25)
    env = turnstile(num_envs=5, episode_length=30)
    loop = OffPolicy(env, Witness(), make_plan(config, env, Witness()))
    total = loop.plan.total_updates
    lr_scale = [float(loop._context(jnp.int32(made)).lr_scale) for made in (0, total // 2, total)]
    assert lr_scale == pytest.approx([1, 1 - 0.75 * (total // 2) / total, 0.25])
    same = OffPolicy(env, Witness(), make_plan(CONFIG, env, Witness()))
    assert float(same._context(jnp.int32(total - 1)).lr_scale) == 1


class TwoMinded(Witness):
    """Acts with 1 where it explores and with −1 where it does not."""

    def act(self, learner, obs, key, *, explore):
        return jnp.full((*obs.state.shape[:-1], 1), 1.0 if explore else -1.0)


@pytest.mark.parametrize(("greedy", "envs"), [(0.0, 0), (0.4, 2), (1.0, 5)])
def test_a_fraction_of_the_environments_acts_greedily(greedy, envs):
    env, config = (
        turnstile(num_envs=5, episode_length=30),
        dataclasses.replace(CONFIG, greedy_env_fraction=greedy),
    )
    loop = OffPolicy(env, TwoMinded(), make_plan(config, env, TwoMinded()))
    unrolls = loop.plan.prefill_iterations + 1

    @jax.jit
    def collected(key):
        k_init, k_collect = jax.random.split(key)
        one = lambda train, i: (loop.collect(train, i, jax.random.fold_in(k_collect, i)), None)
        return jax.lax.scan(one, loop.init(k_init), jnp.arange(unrolls))[0]

    stored = np.asarray(collected(jax.random.key(0)).replay.action)[:unrolls]
    np.testing.assert_array_equal(stored[:, :envs], -1)
    np.testing.assert_array_equal(stored[:, envs:], 1)


class HindsightWitness(Witness):
    """Counts transitions whose goal is neither the commanded one nor of their own episode."""

    def __init__(self, **relabel):
        self.relabel = Relabel(**relabel)

    def update(self, learner, batch, key, context):
        number, goal = batch.obs.state[:, 0], batch.obs.goal
        commanded = jnp.all(jnp.abs(goal) <= 1, axis=-1)
        # Numbers of episodes begin at 1, so that a transition never written would show as a stranger.
        strange = ~commanded & (goal[:, 0] != number) | (number < 1)
        learner = learner.replace(
            updates=learner.updates + 1,
            strangers=learner.strangers + jnp.sum(strange, dtype=jnp.int32),
            past_border=learner.past_border + jnp.sum(~commanded, dtype=jnp.int32),
        )
        return learner, {"one": jnp.ones((), jnp.float32)}


@pytest.mark.parametrize(
    "sampler",
    ["final", *(pytest.param(name, marks=pytest.mark.slow) for name in ("uniform_future", "episode"))],
)
def test_hindsight_takes_half_of_the_goals_and_none_from_another_episode(sampler):
    """A12; and A14: without a prefill, no batch holds a transition that was never written."""
    config = dataclasses.replace(CONFIG, prefill_steps=0, updates_per_step=0.2)
    plan, train, _ = run(config, HindsightWitness(sampler=sampler, ratio=0.5))
    seen = train.learner
    assert int(seen.updates) == plan.total_updates
    assert int(seen.strangers) == 0
    share = int(seen.past_border) / (plan.total_updates * config.batch_size)
    assert share == pytest.approx(0.5 if sampler != "final" else 0.42, abs=0.08)


def test_an_agent_that_asks_for_goals_of_other_transitions_gets_them():
    witness = HindsightWitness(sampler="uniform_future", random_ratio=0.3)
    plan, train, _ = run(dataclasses.replace(CONFIG, prefill_steps=0, updates_per_step=0.2), witness)
    transitions = plan.total_updates * CONFIG.batch_size
    assert int(train.learner.past_border) == transitions, "no goal is a commanded one"
    # The neighbour is now and then of the same episode.
    assert 0.1 < int(train.learner.strangers) / transitions < 0.3


def test_the_buffer_holds_the_newest_transitions_after_many_iterations():
    plan, train, _ = run(CONFIG)

    @jax.jit
    def read(buffer):
        episodes = replay.episode_index(buffer, jnp.int32(plan.iterations))
        position = jnp.arange(plan.buffer_shape.slots * 7, dtype=jnp.int32)
        return replay.read(buffer.state, episodes, position, jnp.zeros_like(position))

    state = np.asarray(read(train.replay))
    same = state[1:, 0] == state[:-1, 0]
    np.testing.assert_array_equal(state[1:, 1], np.where(same, state[:-1, 1] + 1, 0))
    number, step = np.asarray(train.env.obs.state[0])
    if step > 0:
        assert tuple(state[-1]) == (number, step - 1)


def test_an_epoch_copies_no_replay_buffer():
    env = turnstile(num_envs=16, episode_length=30)
    config = dataclasses.replace(CONFIG, num_envs=16, replay_size=70_000, total_steps=10**6)
    loop = OffPolicy(env, Witness(), make_plan(config, env, Witness()))
    train = jax.eval_shape(loop.init, jax.random.key(0))
    count = jax.ShapeDtypeStruct((), jnp.int32)
    memory = jax.jit(loop.epoch, donate_argnums=0).lower(train, count, count).compile().memory_analysis()
    buffer = replay.size_in_bytes(loop.plan.buffer_shape)
    assert memory.alias_size_in_bytes >= buffer
    # What depends on the buffer's length is one number for each slot, here a seventh of a transition.
    assert memory.temp_size_in_bytes < 0.1 * buffer


def test_no_key_is_used_twice():
    env = turnstile(num_envs=5, episode_length=30)
    loop = OffPolicy(env, Witness(), make_plan(CONFIG, env, Witness()))
    with jax.debug_key_reuse(True), jax.numpy_dtype_promotion("strict"):
        train = jax.jit(loop.init)(jax.random.key(0))
        jax.jit(loop.epoch, donate_argnums=0)(train, jnp.int32(3), jnp.int32(4))


def test_memory_of_learner_and_environments_is_measured():
    env = turnstile(num_envs=5, episode_length=30)
    plan = make_plan(CONFIG, env, Witness(), seeds=3)
    assert plan.sizes.learner_bytes == 16
    state = jax.eval_shape(env.reset, jax.random.key(0))
    plain = [x for x in jax.tree.leaves(state) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    assert plan.sizes.env_bytes == pytest.approx(sum(x.size * x.dtype.itemsize for x in plain), abs=16)
    assert plan.seeds == 3


class OwnBatch(NamedTuple):
    states: Array  # [B, 3, state_dim]
    near: Array  # [B] bool


class OwnBatchWitness(Witness):
    """Makes a batch of its own type, and draws its own random numbers."""

    def sample(self, replay, index, key):
        return OwnBatch(
            jnp.stack([replay.states(index, k) for k in range(3)], axis=1), replay.whole(index, 3)
        )

    def draw(self, key, batch_size):
        return jax.random.normal(key, (batch_size, 5), jnp.float32)


def test_memory_of_batches_is_that_of_the_agents_own_type():
    env = turnstile(num_envs=5, episode_length=30)
    sizes = make_plan(CONFIG, env, OwnBatchWitness()).sizes
    assert sizes.batch_bytes == CONFIG.batch_size * (3 * 2 * 4 + 1 + 5 * 4)
    # (s, g), a, (s′, g), r, discount, weight, steps to termination; a key is no memory to speak of.
    assert make_plan(CONFIG, env, Witness()).sizes.batch_bytes == CONFIG.batch_size * 4 * (4 + 1 + 4 + 4)
    config = dataclasses.replace(CONFIG, updates_per_step=1.0, prefetch_bytes=4 * sizes.batch_bytes)
    plan = make_plan(config, env, OwnBatchWitness())
    assert plan.prefetch_updates == 4
    assert plan.bytes_by_part["batches"] == 4 * sizes.batch_bytes
