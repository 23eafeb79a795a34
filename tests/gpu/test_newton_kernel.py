"""Newton's method for MJX as a kernel, on a real GPU: `make test-gpu`."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from solving_helpers import positive_definite, random_rules, single

from homing.compile import xla
from homing.envs import make
from homing.physics import newton, solvers

pytestmark = pytest.mark.skipif(
    jax.default_backend() != "gpu" or not xla.cuda_kernels(oldest=xla.OLDEST),
    reason="needs a recent NVIDIA GPU",
)


@pytest.mark.parametrize(("rows", "size"), [(8, 7), (70, 15), (106, 15), (33, 23), (200, 30)])
def test_accelerations_are_those_of_the_twin(rows, size):
    rng = np.random.default_rng(0)
    masses = np.stack([positive_definite(rng, size) for _ in range(64)])
    mass, force, warm = single(masses, rng.normal(size=(64, size)), rng.normal(size=(64, size)))
    rules = jax.tree.map(lambda *x: jnp.stack(x), *(random_rules(seed, rows, size) for seed in range(64)))
    run = lambda solver: jax.jit(jax.vmap(functools.partial(solver, iterations=16)))(mass, force, rules, warm)
    with jax.default_matmul_precision("highest"):
        expected = run(solvers.constrained)
    for found, plain in zip(run(newton.constrained), expected, strict=True):
        np.testing.assert_allclose(found, plain, atol=2e-3 * float(jnp.abs(plain).max()))


@pytest.mark.parametrize("id", ["arm_push_easy", "ant_push"])
def test_an_environment_moves_as_without_the_kernel(id):
    env = make(id, num_envs=64)
    state = jax.jit(env.reset)(jax.random.key(0))
    actions = jax.random.uniform(jax.random.key(1), (10, 64, env.spec.action_dim), jnp.float32, -1.0, 1.0)

    def positions(state, actions):
        def step(state, action):
            after = env.advance(state, action)
            return after, after.obs.state

        return jax.lax.scan(step, state, actions)[1]

    found = jax.jit(lambda *given: positions(*given))(state, actions)
    with xla.without_kernels():
        plain = jax.jit(lambda *given: positions(*given))(state, actions)
    apart = jnp.max(jnp.abs(found - plain), axis=-1)
    assert float(jnp.median(apart[4])) < 1e-3, "contacts tell them apart later"
    assert float(jnp.median(apart[-1])) < 2e-2
