"""Stages of a physics step: the same numbers, and conditionals where a CPU's compiler would compute things again."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing import envs
from homing.compile import xla
from homing.physics.spring.stages import stage, stages_of

IDS = ("ant_u_maze", "reacher")


@functools.cache
def started(id):
    env = envs.make(id, num_envs=4)
    state = jax.jit(env.reset)(jax.random.key(0))
    return env, state, jax.random.uniform(jax.random.key(1), (4, env.spec.action_dim), minval=-1.0)


def traced(id, seeds=None):
    """The program of a step, of some seeds at once."""
    env, state, action = started(id)
    step = env.advance if seeds is None else jax.vmap(env.advance, in_axes=(None, 0))
    given = action if seeds is None else jnp.stack([action] * seeds)
    return str(jax.make_jaxpr(lambda given: step(state, given))(given))


@pytest.mark.parametrize("id", IDS)
def test_stages_change_nothing_but_rounding(id):
    env, state, action = started(id)
    staged = jax.jit(lambda state: env.advance(state, action))(state)
    with xla.without_kernels():
        whole = jax.jit(lambda state: env.advance(state, action))(state)
    for left, right in zip(jax.tree.leaves(staged.physics), jax.tree.leaves(whole.physics), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("id", IDS)
def test_stages_stay_conditionals_of_many_seeds(id):
    """A condition with a seed axis would select: both branches are computed then."""
    count = traced(id).count("cond[")
    assert count >= 1
    assert traced(id, seeds=3).count("cond[") == count


def test_other_devices_and_translations_have_none(monkeypatch):
    with xla.without_kernels():
        assert "cond[" not in traced("ant_u_maze")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "cond[" not in traced("ant_u_maze")


def test_constants_stay_constants():
    table = np.ones(3, np.float32)

    def program(x):
        with stages_of(jnp.int32(0)):
            return stage((x, 2.0, table))

    _, number, array = program(jnp.zeros(3))
    assert number == 2.0 and array is table
    assert stage((table, 1.0)) == (table, 1.0)
