"""Seeds side by side: each as if it were alone, one trace of each program, one broken seed harmless."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import Probe, walk
from run_helpers import NET, TRAIN

from homing.agents import OffPolicyAgent, make_agent
from homing.agents.crl import CRL, CRLConfig
from homing.compile import xla
from homing.config.presets import preset
from homing.training.build import make_loop
from homing.training.build import make_plan as make_any_plan
from homing.training.offpolicy import OffPolicy, make_plan
from homing.training.seeds import (
    Variants,
    one_by_one,
    over_seeds,
    programs,
    seed_keys,
    train_axes,
    with_values,
)
from homing.types import bytes_of

CONFIG = dataclasses.replace(TRAIN, total_steps=1_000)


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # The check takes a vmapped scan over split keys for reuse; test_offpolicy has it on, for one seed.
    with jax.debug_key_reuse(False):
        yield


SIZES = dict.fromkeys(("critic_net", "actor_net", "value_net"), NET) | {
    "representation_dim": 8,
    "minibatches": 2,
}


def tiny(settings):
    """An agent's settings with networks as small as can be."""
    names = {field.name for field in dataclasses.fields(settings)}
    return dataclasses.replace(settings, **{name: value for name, value in SIZES.items() if name in names})


class Counted(CRL):
    """CRL that counts how often its update is traced."""

    traces = 0

    def update(self, *args):
        self.traces += 1
        return super().update(*args)


@pytest.fixture(scope="module")
def setup():
    """The vmapped twin of `exact_setup("crl", …)`."""
    env = walk(num_envs=8)
    agent = Counted(tiny(preset("crl", "quickstart").agent), env.spec)
    plan = make_plan(CONFIG, env, agent)
    return plan, agent, programs(OffPolicy(env, agent, plan), env)


def run(setup, seeds, spoil=None):
    plan, _, made = setup
    train = made.init(seed_keys(seeds))
    if spoil is not None:
        params = jax.tree.map(lambda x: x.at[spoil].set(jnp.nan), train.learner.params)
        train = train.replace(learner=train.learner.replace(params=params))
    told = []
    for epoch in range(plan.epochs):
        start, stop = plan.epoch_bounds(epoch)
        train, metrics = made.epoch(train, start, stop)
        told.append(jax.tree.map(np.asarray, metrics | made.evaluate(train, stop)))
    return train, told


def leaves(train, seed=None):
    rest = train.replace(key=jax.random.key_data(train.key))
    rest = rest.replace(env=rest.env.replace(key=jax.random.key_data(rest.env.key), clock=()))
    return [np.asarray(x) if seed is None else np.asarray(x)[seed] for x in jax.tree.leaves(rest)]


@pytest.fixture(scope="module")
def three(setup):
    return run(setup, [3, 4, 5])


def test_one_of_three_seeds_equals_the_same_seed_alone(setup, three):
    train, told = three
    alone, told_alone = run(setup, [4])
    for together, single in zip(leaves(train, 1), leaves(alone, 0), strict=True):
        np.testing.assert_allclose(together, single, rtol=1e-4, atol=1e-5)
    for a, b in zip(told, told_alone, strict=True):
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_allclose(a[name][1], b[name][0], rtol=1e-3, atol=1e-4)


def test_seeds_differ(three):
    train, told = three
    kernels = np.asarray(jax.tree.leaves(train.learner.params["nets"])[-1])
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(*np.asarray(train.replay.state)[:2])
    assert len(set(told[-1]["train/critic_loss"].tolist())) == 3


def test_the_same_seeds_give_the_same_bits(setup, three):
    train, told = three
    again, told_again = run(setup, [3, 4, 5])
    for a, b in zip(leaves(train), leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(told, told_again, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a, b)


def test_a_broken_seed_is_reported_and_spoils_no_other(setup, three):
    _, healthy = three
    _, told = run(setup, [3, 4, 5], spoil=1)
    assert told[-1]["finite"].tolist() == [True, False, True]
    for name in ("train/critic_loss", "train/entropy", "success_any"):
        np.testing.assert_array_equal(told[-1][name][[0, 2]], healthy[-1][name][[0, 2]])


def test_each_program_is_traced_once_for_a_number_of_seeds(setup, three):
    plan, agent, made = setup
    assert len({stop - start for start, stop in map(plan.epoch_bounds, range(plan.epochs))}) > 1
    before, sizes = agent.traces, [made.epoch.jitted._cache_size(), made.evaluate.jitted._cache_size()]
    run(setup, [7, 8, 9])
    assert agent.traces == before
    assert [made.epoch.jitted._cache_size(), made.evaluate.jitted._cache_size()] == sizes
    assert sizes == [2, 2]  # three seeds, and one alone


def test_an_operation_knows_for_how_many_seeds_it_is_computed():
    seen = []

    def one(x, clock):
        seen.append(xla.seeds())
        return x + clock

    given = jnp.zeros((3, 2)), jnp.int32(1)
    jax.jit(over_seeds(one, (0, None)))(*given)
    one_by_one(one, (0, None))(*given)
    assert seen == [3, 1]
    assert xla.seeds() == 1


def test_the_clock_is_shared(three):
    train, _ = three
    assert train.env.clock.shape == ()
    assert int(train.env.clock) * 8 >= CONFIG.total_steps


def test_states_of_two_runs_share_structure_and_types(setup, three):
    train, _ = three
    fresh = setup[2].init(seed_keys([0, 1, 2]))
    assert jax.tree.structure(fresh) == jax.tree.structure(train)
    for a, b in zip(jax.tree.leaves(fresh), jax.tree.leaves(train), strict=True):
        assert a.aval == b.aval
        assert not b.aval.weak_type


class Gate(Probe):
    """A probe that does something costly on every fourth tick of the shared clock."""

    def step(self, state, action):
        after = super().step(state, action)
        return jax.lax.cond(
            after.clock % 4 == 0, lambda s: s.replace(reward=s.reward + 1), lambda s: s, after
        )


def test_branches_on_the_clock_and_slot_writes_stay_unbatched(setup):
    plan, agent, _ = setup
    env = Gate(**vars(walk(num_envs=8)))
    loop = OffPolicy(env, agent, plan)
    axes = train_axes(env)
    shapes = jax.eval_shape(programs(loop, env).init, seed_keys([0, 1]))
    count = jax.ShapeDtypeStruct((), jnp.int32)
    text = str(jax.make_jaxpr(over_seeds(loop.epoch, (axes, None, None), (axes, 0)))(shapes, count, count))
    assert "cond[" in text
    ring = ",".join(map(str, shapes.replay.state.shape))
    writes = [line for line in text.splitlines() if f":f32[{ring}]" in line.split("=")[0]]
    assert any("dynamic_update_slice" in line for line in writes)
    assert not any("scatter" in line for line in writes)


# Exact seeds: one after the other, by the same instructions.


@functools.cache
def exact_setup(agent, seeds):
    """Plan, agent and programs of a tiny run of so many seeds on the walk; compiled once for all tests."""
    chosen, env = preset(agent, "quickstart"), walk(num_envs=8)
    known = {field.name for field in dataclasses.fields(chosen.train)}
    small = {name: value for name, value in vars(CONFIG).items() if name in known}
    made_agent = make_agent(tiny(chosen.agent), env.spec)
    config = dataclasses.replace(chosen.train, **small | {"exact_seeds": True})
    plan = make_any_plan(config, env, made_agent, seeds=seeds)
    return plan, made_agent, programs(make_loop(env, made_agent, plan), env)


def exact_run(agent, seeds):
    """A tiny run: its last state, and what it measured."""
    return run(exact_setup(agent, len(seeds)), seeds)


@pytest.mark.parametrize(
    "agent", ["crl", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sac", "td3", "ppo"))]
)
def test_an_exact_seed_has_the_same_bits_alone_and_beside_others(agent, request):
    if request.node.get_closest_marker("slow"):  # of other agents the quick emitters round differently
        request.getfixturevalue("default_emitters")
    train, told = exact_run(agent, [0, 1, 7])
    alone, told_alone = exact_run(agent, [1])
    for together, single in zip(leaves(train, 1), leaves(alone, 0), strict=True):
        np.testing.assert_array_equal(together, single)
    for a, b in zip(told, told_alone, strict=True):
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name][1], b[name][0])
    assert train.env.clock.shape == () and int(train.env.clock) == int(alone.env.clock)
    assert not np.array_equal(*np.asarray(train.env.obs.state)[:2]), "seeds differ"


def test_exact_seeds_learn_what_vmapped_ones_do(three):
    vmapped, told = three
    exact, told_exact = exact_run("crl", [3, 4, 5])
    assert jax.tree.structure(exact) == jax.tree.structure(vmapped)
    for a, b in zip(leaves(exact), leaves(vmapped), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    assert set(told[-1]) == set(told_exact[-1])


class Idle(OffPolicyAgent):
    """It learns nothing: of its training only the replay buffer has a size."""

    def __init__(self, spec):
        self.spec = spec

    def init(self, key):
        return jnp.zeros((), jnp.float32)

    def act(self, learner, obs, key, *, explore):
        return jnp.zeros((*obs.state.shape[:-1], self.spec.action_dim), jnp.float32)

    def update(self, learner, batch, draws, context):
        return learner + jnp.mean(batch.reward), {}


def test_exact_epochs_change_the_state_in_place():
    """One seed's copy is temporary, not that of all."""
    env = walk(num_envs=8)
    agent = Idle(env.spec)
    plan = make_plan(dataclasses.replace(CONFIG, exact_seeds=True, replay_size=5_000), env, agent, 4)
    made = programs(OffPolicy(env, agent, plan), env)
    train = made.init(seed_keys([0, 1, 2, 3]))
    size = bytes_of(train.replay)
    count = jax.ShapeDtypeStruct((), jnp.int32)
    memory = made.epoch.jitted.lower(train, {}, count, count).compile().memory_analysis()
    assert memory.alias_size_in_bytes > size
    assert memory.temp_size_in_bytes < 0.75 * size
    moved, _ = made.epoch(train, 0, 1)
    assert train.replay.state.is_deleted() and not moved.replay.state.is_deleted()


def test_exact_members_of_a_population_have_their_own_values():
    env = walk(num_envs=8)
    config = CRLConfig(critic_net=NET, actor_net=NET, representation_dim=8)
    # As many updates in each iteration, so that there is no program of remaining ones.
    train_config = dataclasses.replace(CONFIG, exact_seeds=True, updates_per_step=1 / 40)
    plan = make_plan(train_config, env, CRL(config, env.spec), 2)
    loop_of = lambda values: OffPolicy(env, CRL(with_values(config, values), env.spec), plan)

    def trained(rates):
        made = programs(loop_of({}), env, Variants({"critic_lr": np.asarray(rates)}, loop_of))
        train, _ = made.epoch(made.init(seed_keys([4] * len(rates))), 0, 6)
        return leaves(train)

    pair, single = trained([1e-3, 3e-3]), trained([3e-3])
    for both, one in zip(pair, single, strict=True):
        np.testing.assert_array_equal(both[1], one[0])
    assert any(not np.array_equal(both[0], both[1]) for both in pair)
