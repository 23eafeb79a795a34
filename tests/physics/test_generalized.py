"""The solvers of the generalized pipeline: forces that only push, and the inverse of the mass matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import scene
from scipy.optimize import nnls
from solving_helpers import positive_definite

from homing.envs import make
from homing.errors import ConfigError
from homing.physics import brax_pipelines, generalized
from homing.physics.solvers import inverse, non_negative


def random_system(seed, rows=12, coordinates=6):
    """A = J W Jᵀ + D and b as contacts give them, some of which do not touch."""
    rng = np.random.default_rng(seed)
    jac = rng.normal(size=(rows, coordinates)) * rng.uniform(0.1, 10, size=(rows, 1))
    jac[rng.random(rows) < 0.4] = 0.0
    weights = np.diag(rng.uniform(0.1, 3.0, size=coordinates))
    soft = np.where(jac.any(axis=1), rng.uniform(0.05, 0.5, size=rows), 0.0)
    matrix = jac @ weights @ jac.T + np.diag(soft * np.maximum((jac @ weights @ jac.T).diagonal(), 1e-3))
    matrix[~jac.any(axis=1)] = 0.0
    offset = np.where(jac.any(axis=1), rng.normal(size=rows), 0.0)
    return matrix, offset


def test_forces_come_near_the_best_that_only_push():
    errors = []
    for seed in range(40):
        matrix, offset = random_system(seed)
        found = np.asarray(non_negative(jnp.asarray(matrix, jnp.float32), jnp.asarray(offset, jnp.float32)))
        assert (found >= 0).all()
        assert (found[~matrix.any(axis=1)] == 0).all(), "what does not touch does not push"
        best, least = nnls(matrix, -offset)
        assert np.linalg.norm(matrix @ found + offset) >= least - 1e-4
        errors.append(np.linalg.norm(matrix @ (found - best)) / (1e-6 + np.linalg.norm(matrix @ best)))
    assert np.mean(errors) < 0.25  # contacts of such different sizes are rare; an arm's come out below 0.01


def test_more_turns_come_nearer():
    errors = []
    for iterations in (4, 24, 120):
        each = []
        for seed in range(20):
            matrix, offset = random_system(seed)
            found = non_negative(
                jnp.asarray(matrix, jnp.float32), jnp.asarray(offset, jnp.float32), iterations
            )
            best = nnls(matrix, -offset)[0]
            each.append(np.linalg.norm(matrix @ (np.asarray(found) - best)))
        errors.append(np.mean(each))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 3e-2


def test_nothing_touches_nothing_pushes():
    assert (np.asarray(non_negative(jnp.zeros((5, 5)), jnp.zeros(5))) == 0).all()


@pytest.mark.parametrize("size", [1, 2, 9])
def test_inverses_are_exact(size):
    rng = np.random.default_rng(size)
    matrix = positive_definite(rng, size)
    found = np.asarray(inverse(jnp.asarray(matrix, jnp.float32)))
    np.testing.assert_allclose(found @ matrix, np.eye(size), atol=1e-3)


def test_braxs_own_pipelines_can_be_asked_for_where_ours_can():
    assert make("reacher", num_envs=1, physics="generalized_brax").spec.physics == "generalized_brax"
    assert type(scene("ant", "spring_brax").engine) is brax_pipelines.Spring
    with pytest.raises(ConfigError, match="runs on mjx, not on generalized_brax"):
        scene("ant_push", "generalized_brax")


@pytest.mark.slow
def test_forces_of_a_pushing_arm_are_more_exact_than_braxs():
    """On systems as they occur: lanes that act at random until some touch the puck or a limit."""
    ours, theirs = (scene("pusher_hard", name).engine for name in ("generalized", "generalized_brax"))
    layout, lanes = ours.layout, 64
    k_start, k_act = jax.random.split(jax.random.key(0))
    q = jnp.asarray(layout.init_q) + 0.1 * jax.random.normal(k_start, (lanes, layout.q_size))
    acts = jax.random.uniform(k_act, (40, lanes, layout.act_size), minval=-1.0, maxval=1.0)
    run = jax.jit(lambda q: jax.lax.scan(lambda s, a: (ours.step(s, a), None), ours.init(q, 0 * q), acts)[0])
    state = run(q)
    forces = {name: np.asarray(jax.jit(jax.vmap(how))(state)) for name, how in ways(theirs).items()}
    errors = {"ours": [], "brax": []}
    for i in range(lanes):
        jac, inv = np.asarray(state.con_jac[i], float), np.asarray(state.mass_mx_inv[i], float)
        if not jac.any():
            continue
        matrix = jac @ inv @ jac.T + np.diag(np.asarray(state.con_diag[i], float))
        offset = jac @ inv @ np.asarray(state.qf_smooth[i], float) - np.asarray(state.con_aref[i], float)
        best = jac.T @ nnls(matrix, -offset)[0]
        for name in errors:
            errors[name].append(np.linalg.norm(forces[name][i] - best) / (1e-6 + np.linalg.norm(best)))
    assert len(errors["ours"]) > 10
    assert np.mean(errors["ours"]) < 0.3 * np.mean(errors["brax"])


def ways(engine):
    from brax.generalized import constraint

    return {
        "ours": generalized._constraint_force,
        "brax": lambda state: constraint.force(engine.system, state),
    }
