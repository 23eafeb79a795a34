"""Contrastive objectives against loops in float64, finite differences and extreme logits."""

import functools
import math

import jax
import numpy as np
import pytest

from homing.losses.contrastive import OBJECTIVES, describe, logsumexp_penalty


def _mean(xs):
    xs = list(xs)
    return sum(xs) / len(xs)


def _sigmoid(x):
    return 1 / (1 + math.exp(-x))


def _log_sum(xs):
    return math.log(sum(math.exp(x) for x in xs))


def _infonce(f):
    return _mean(-(f[i][i] - _log_sum(f[i])) for i in range(len(f)))


def _transposed(f):
    return [list(column) for column in zip(*f, strict=True)]


def _binary(f):
    n = range(len(f))
    return _mean(-math.log(_sigmoid(f[i][j]) if i == j else 1 - _sigmoid(f[i][j])) for i in n for j in n)


def _flat(f, detached):
    n = range(len(f))

    def s(f, i):
        return sum(math.exp(f[i][j] - f[i][i]) for j in n)

    return _mean(s(f, i) / s(detached, i) for i in n)


def _forward_backward(f):
    n = range(len(f))
    return _mean(
        -math.exp(f[i][i]) + sum(math.exp(f[i][j]) ** 2 for j in n if j != i) / (2 * (len(f) - 1)) for i in n
    )


def _dpo(f):
    n = range(len(f))
    return _mean(-math.log(_sigmoid(f[i][i] - f[i][j])) for i in n for j in n)


def _ipo(f):
    n = range(len(f))
    return _mean((f[i][i] - f[i][j] - 1) ** 2 for i in n for j in n)


def _sppo(f):
    n, b = range(len(f)), len(f)
    return sum(b * (f[i][i] - 1) ** 2 if i == j else (f[i][j] + 1) ** 2 for i in n for j in n) / b**2


# (logits, logits where the gradient is detached) -> loss
BY_HAND = {
    "infonce": lambda f, _: _infonce(f),
    "infonce_backward": lambda f, _: _infonce(_transposed(f)),
    "infonce_symmetric": lambda f, _: _infonce(f) + _infonce(_transposed(f)),
    "binary_nce": lambda f, _: _binary(f),
    "flatnce": _flat,
    "flatnce_backward": lambda f, detached: _flat(_transposed(f), _transposed(detached)),
    "forward_backward": lambda f, _: _forward_backward(f),
    "dpo": lambda f, _: _dpo(f),
    "ipo": lambda f, _: _ipo(f),
    "sppo": lambda f, _: _sppo(f),
}

LOGITS = np.random.default_rng(0).normal(size=(5, 5))


@functools.cache
def _program(name):
    return jax.jit(jax.value_and_grad(OBJECTIVES[name]))


def value_and_grad(name, logits):
    """Of an objective, of as many logits in all tests, for one program."""
    return tuple(map(np.asarray, _program(name)(np.asarray(logits, np.float32))))


def test_every_objective_of_the_paper_is_there():
    assert set(OBJECTIVES) == set(BY_HAND)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_value_equals_a_loop(name):
    expected = BY_HAND[name](LOGITS.tolist(), LOGITS.tolist())
    np.testing.assert_allclose(value_and_grad(name, LOGITS)[0], expected, rtol=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradient_equals_finite_differences_of_the_loop(name):
    _, grad = value_and_grad(name, LOGITS)
    for i in range(5):
        for j in range(5):
            step = np.zeros((5, 5))
            step[i, j] = 1e-5
            up, down = (BY_HAND[name]((LOGITS + s).tolist(), LOGITS.tolist()) for s in (step, -step))
            np.testing.assert_allclose(grad[i, j], (up - down) / 2e-5, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("scale", [-1e3, 1e3])
def test_extreme_logits_give_finite_losses_and_gradients(name, scale):
    value, grad = value_and_grad(name, scale * LOGITS)
    assert np.isfinite(value)
    assert np.isfinite(grad).all()


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_raised_positive_lowers_the_loss_and_a_raised_negative_does_not(name):
    _, grad = value_and_grad(name, np.zeros((5, 5)))
    assert np.all(np.diagonal(grad) < 0)
    assert np.all(grad[~np.eye(5, dtype=bool)] >= 0)


def test_logsumexp_penalty_is_over_goals():
    expected = _mean(_log_sum(row) ** 2 for row in LOGITS.tolist())
    np.testing.assert_allclose(jax.jit(logsumexp_penalty)(LOGITS.astype(np.float32)), expected, rtol=1e-5)


def test_description_of_logits():
    logits = np.asarray([[2.0, 1, 0], [5, 3, 4], [0, 0, 1]], np.float32)
    told = {name: float(value) for name, value in jax.jit(describe)(logits).items()}
    assert told["categorical_accuracy"] == pytest.approx(2 / 3)
    assert told["logits_pos"] == pytest.approx(2.0)
    assert told["logits_neg"] == pytest.approx(10 / 6)
    assert told["logsumexp"] == pytest.approx(_mean(_log_sum(row) for row in logits.tolist()), rel=1e-5)
