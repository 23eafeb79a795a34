"""Log-sums of the L2 energy and their hand-written gradient, against float64 and all distances one by one."""

import functools

import jax
import numpy as np
import pytest

from homing.losses import contrastive
from homing.losses.log_sums import LOWEST, l2_log_sums

OF_SUMS = [name for name, objective in contrastive.OBJECTIVES.items() if objective.from_log_sums is not None]


def some(spread, far=0.0, rows=24, dim=6, seed=0):
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(rows, dim)) + far
    psi = phi + spread * rng.normal(size=phi.shape)
    return phi.astype(np.float32), psi.astype(np.float32)


def exactly(phi, psi, objective, weight=0.1):
    """Loss and gradients in float64, with every difference taken by itself."""
    phi, psi = phi.astype(np.float64), psi.astype(np.float64)
    rows = len(phi)
    difference = phi[:, None] - psi[None]
    f = -np.sqrt(np.sum(difference**2, axis=-1) + 1e-6)
    forward = np.exp(f - np.logaddexp.reduce(f, axis=1)[:, None])
    backward = np.exp(f - np.logaddexp.reduce(f, axis=0)[None, :])
    sums = np.logaddexp.reduce(f, axis=1), np.logaddexp.reduce(f, axis=0)
    slope, loss = 2 * weight * sums[0][:, None] * forward / rows, weight * np.mean(sums[0] ** 2)
    for name, part, total in (("infonce", forward, sums[0]), ("infonce_backward", backward, sums[1])):
        if objective in (name, "infonce_symmetric"):
            slope = slope + (part - np.eye(rows)) / rows
            loss = loss + np.mean(total - np.diagonal(f))
    on_pairs = (slope / f)[..., None] * difference
    return loss, on_pairs.sum(axis=1), -on_pairs.sum(axis=0)


@functools.cache
def program(objective):
    def loss(phi, psi):
        return contrastive.loss_of_sums(l2_log_sums(phi, psi), contrastive.OBJECTIVES[objective], 0.1)

    return jax.jit(jax.value_and_grad(loss, (0, 1)))


def found(phi, psi, objective):
    value, (on_phi, on_psi) = program(objective)(phi, psi)
    return tuple(map(np.asarray, (value, on_phi, on_psi)))


@pytest.mark.parametrize("objective", OF_SUMS)
@pytest.mark.parametrize(("spread", "far"), [(0.3, 0.0), (1e-3, 0.0), (4.0, 0.0), (0.3, 300.0)])
def test_loss_and_gradient_are_exact_where_positives_are_near_far_and_off_the_origin(objective, spread, far):
    phi, psi = some(spread, far)
    for mine, true in zip(found(phi, psi, objective), exactly(phi, psi, objective), strict=True):
        np.testing.assert_allclose(mine, true, rtol=1e-4, atol=2e-4 * np.abs(true).max())


def test_they_are_the_losses_of_logits():
    phi, psi = some(0.5)
    f = -np.sqrt(np.sum((phi[:, None] - psi[None]) ** 2, axis=-1) + 1e-6)
    losses = jax.jit(lambda f: [contrastive.loss(f, contrastive.OBJECTIVES[name], 0.1) for name in OF_SUMS])
    for objective, plain in zip(OF_SUMS, losses(f), strict=True):
        assert float(found(phi, psi, objective)[0]) == pytest.approx(float(plain), rel=1e-5)


def hopeless():
    """Six goals far from everything."""
    phi, psi = some(0.0)
    psi[:6] += -3 * LOWEST * np.eye(6, dtype=np.float32)
    return phi, psi


def test_rows_with_hopeless_positives_are_exact_too():
    phi, psi = hopeless()
    for mine, true in zip(found(phi, psi, "infonce"), exactly(phi, psi, "infonce"), strict=True):
        np.testing.assert_allclose(mine, true, rtol=1e-3, atol=2e-3 * np.abs(true).max())


def test_hopeless_goals_stay_finite_and_are_drawn_back():
    phi, psi = hopeless()
    loss, on_phi, on_psi = found(phi, psi, "infonce_symmetric")
    assert all(np.isfinite(x).all() for x in (loss, on_phi, on_psi))
    assert (np.sum((psi - phi) * on_psi, axis=-1)[:6] > 0).all()


def test_a_batch_that_has_run_away_stays_finite():
    phi, psi = some(1000.0)
    assert all(np.isfinite(x).all() for x in found(phi, psi, "infonce_symmetric"))


def test_seeds_side_by_side_are_each_alone():
    phi, psi = map(np.stack, zip(*(some(0.5, seed=seed) for seed in (0, 1)), strict=True))
    together, alone = (
        jax.jit(jax.vmap(lambda p, q: l2_log_sums(p, q)))(phi, psi),
        [jax.jit(l2_log_sums)(phi[seed], psi[seed]) for seed in (0, 1)],
    )
    each = jax.tree.map(lambda *parts: np.stack(parts), *alone)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), together, each)
