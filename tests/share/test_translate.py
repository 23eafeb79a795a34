"""Every kind of primitive that is translated, run by Node and compared with JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from share_helpers import check_same, needs_node, run_program, translated

from homing.errors import HomingError
from homing.share.translate import Translator

pytestmark = needs_node


def numbers(*shape, seed=0, scale=1.5):
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


X, Y = numbers(10), numbers(10, seed=1)


def test_arithmetic_of_every_length():
    """Loops are written out for short arrays, and the last vector may be partly filled."""
    every = lambda a, b: (a + b, a - b, a * b, a / b, jnp.maximum(a, b), jnp.minimum(a, b), -a, abs(a))
    check_same(*((every, numbers(n), numbers(n, seed=1)) for n in (1, 3, 4, 9, 16, 17, 40)))


def test_functions_of_one_number():
    functions = [jnp.exp, jnp.sin, jnp.cos, jnp.tan, jnp.arctan, jnp.sinh, jnp.cosh, jnp.tanh, jnp.arcsinh]
    functions += [
        jnp.expm1,
        jnp.cbrt,
        jnp.exp2,
        jax.nn.sigmoid,
        lax.erf,
        jnp.sign,
        jnp.floor,
        jnp.ceil,
        jnp.round,
    ]
    functions += [jnp.square, jnp.isfinite, lax.round, lambda x: x**3, lambda x: x**-2, lambda x: x**0]
    positive = [jnp.log, jnp.sqrt, lax.rsqrt, jnp.log1p, lambda x: jnp.arccosh(1 + x)]
    check_same(
        (lambda x: [f(x) for f in functions], X),
        (lambda x: [f(x) for f in positive], np.abs(X) + 0.1),
        (lambda x: [jnp.arcsin(x), jnp.arccos(x), jnp.arctanh(x)], np.tanh(X)),
        (lax.round, np.array([0.5, 1.5, -0.5, -2.5], np.float32)),
        (jnp.round, np.array([0.5, 1.5, -0.5, -2.5], np.float32)),
        atol=2e-6,
    )


def test_functions_of_two_numbers():
    check_same(
        (lambda a, b: (jnp.arctan2(a, b), lax.rem(a, b), jnp.power(abs(a), b)), X, Y),
        (lambda a: (lax.clamp(-1.0, a, 0.5), jnp.clip(a, -0.2, 0.3)), X),
    )


def test_integers_and_bools():
    i, j = np.array([7, -7, 3, 12, -1], np.int32), np.array([2, 2, -3, 5, 4], np.int32)
    check_same(
        (lambda a, b: (a + b, a * b, lax.div(a, b), lax.rem(a, b), a // b, a % b, a & b, a | b, a ^ b), i, j),
        (lambda a, b: (a < b, a >= b, a == b, jnp.minimum(a, b), abs(a), -a, jnp.sign(a), a**3), i, j),
        (lambda a, b: (a < b, ~(a < b), (a < b) & (a > 0), (a <= b) | (a != b)), X, Y),
        (lambda a, b: (jnp.where(a < b, a, b), (a > b).astype(jnp.float32), (a > b).astype(jnp.int32)), X, Y),
        (
            lambda a, b: (
                (4 * a).astype(jnp.int32),
                a.astype(bool),
                b.astype(jnp.float32),
                jnp.clip(b, 0, 5),
            ),
            X,
            i,
        ),
    )


def test_values_that_are_no_numbers():
    x = np.array([1.0, np.inf, -np.inf, np.nan, 0.0], np.float32)
    check_same((lambda a: (jnp.isfinite(a), jnp.isnan(a), a == a, jnp.where(jnp.isfinite(a), a, 7.0)), x))


def test_bfloat16_is_rounded_to_even():
    x = np.array([1.0, 1.00390625, 1.01171875, 3.1415927, -2.7182817, 1e-8, 0.1], np.float32)
    check_same(
        (lambda a: a.astype(jnp.bfloat16).astype(jnp.float32), x),
        (lambda a: a.astype(jnp.bfloat16) * jnp.bfloat16(1.1), x),
        atol=0,
    )


def test_views():
    x = numbers(2, 3, 4)
    check_same(
        (
            lambda a: (a.reshape(6, 4), a.transpose(2, 0, 1), a[:, 1:, ::2], a[:, :, ::-1], a[None, 1, :, 2]),
            x,
        ),
        (lambda a: (jnp.broadcast_to(a[:1], (5, 3, 4)), jnp.split(a, [1], axis=1), jnp.squeeze(a[:1])), x),
        (lambda a: (jnp.concatenate([a, 2 * a], axis=1), jnp.stack([a, a + 1], axis=-1)), x),
        (lambda a: (jnp.pad(a[0], ((1, 2), (0, 3))), lax.pad(a[0], 7.0, ((-1, 2, 0), (1, -1, 2)))), x),
        (lambda a: jnp.swapaxes(a, 0, 2) + 1, numbers(12, 2, 16)),  # copied by a table of addresses
    )


def test_gather_and_scatter_at_known_indices():
    x, index = numbers(5, 4), np.array([3, 0, 3])
    check_same(
        (
            lambda a: (
                a[index],
                a[:, index],
                a[index, np.arange(3)],
                a.at[np.array([1, 3])].get(mode="clip"),
            ),
            x,
        ),
        (lambda a: jnp.nan_to_num(a.at[np.array([1, 9])].get(mode="fill"), nan=-1.0), x),
        (
            lambda a: (
                a.at[1].set(0.0),
                a.at[:, np.array([0, 2])].set(a[:, :2]),
                a.at[np.array([0, 2])].add(a[1]),
            ),
            x,
        ),
        (lambda a: a.at[np.array([1, 9])].set(3.0, mode="drop"), x),
    )


def test_gather_at_computed_indices():
    x, index = numbers(5, 4), np.array([3, 0, 11, -2], np.int32)
    check_same(
        (lambda a, i: (a.at[i].get(mode="clip"), a[:, jnp.clip(i, 0, 3)], a[i[0], i[1]]), x, index),
        (lambda a, i: jnp.take_along_axis(a, jnp.clip(i, 0, 4)[None, :], axis=0), x, index),
        (lambda a, i: lax.dynamic_slice(a, (i[0], i[1]), (2, 3)), x, index),
        (lambda a, i: lax.dynamic_update_slice(a, a[:2, :2] + 5, (i[0], i[1])), x, index),
    )


def test_reductions():
    x = numbers(3, 7, 5)
    check_same(
        (lambda a: (a.sum(), a.sum(axis=1), a.max(axis=(0, 2)), a.min(axis=-1), a.prod(axis=0)), x),
        (lambda a: (jnp.all(a > -1, axis=1), jnp.any(a > 1, axis=0), jnp.sum(a > 0, axis=2)), x),
        (
            lambda a: (
                jnp.argmax(a, axis=1),
                jnp.argmin(a, axis=-1),
                jnp.argmax((9 * a).astype(jnp.int32), 0),
            ),
            x,
        ),
        (lambda a: (jnp.cumsum(a, axis=1), jnp.mean(a), jnp.std(a, axis=0), jnp.linalg.norm(a, axis=-1)), x),
        atol=1e-5,
    )


def test_matrix_products():
    sizes = [(1, 1, 1), (1, 5, 16), (3, 7, 9), (4, 6, 8), (9, 3, 24), (6, 8, 20)]
    weights = numbers(6, 8, seed=2)
    check_same(
        *((jnp.matmul, numbers(m, k), numbers(k, n, seed=1)) for m, k, n in sizes),
        (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), numbers(2, 3, 4), numbers(2, 5, 4, seed=1)),
        (lambda a: (a @ weights, jnp.tensordot(a, a, axes=2)), numbers(5, 6)),
        atol=1e-5,
    )


def test_loops():
    def summed(x):
        carry, ys = lax.scan(lambda c, row: (c * 0.5 + row, c + 1), x[0], x)
        return carry, ys, lax.scan(lambda c, row: (c + row, c), x[0], x, reverse=True)

    nested = lambda x: lax.scan(
        lambda c, _: (lax.fori_loop(0, 3, lambda k, d: d * 1.01 + k, c), None), x, None, 4
    )[0]
    check_same(
        (summed, numbers(6, 5)),
        (lambda x: lax.fori_loop(0, 7, lambda k, c: (c[1], c[0] + 0.1 * k), (x, 2 * x)), numbers(5)),
        (lambda x: lax.while_loop(lambda c: jnp.sum(c) < 50, lambda c: c * 1.5 + 1, x), numbers(3)),
        (nested, numbers(9)),
    )


def test_branches():
    choose = lambda x: lax.cond(x[0] > 0, lambda y: (y * 2, y[0]), lambda y: (y - 1, y[1]), x)
    check_same((choose, np.array([1.0, 2.0], np.float32)), (choose, np.array([-1.0, 2.0], np.float32)))


def test_long_code_is_cut_into_functions():
    """Compared with NumPy: XLA takes minutes to compile this."""

    def long(x):
        for k in range(400):
            x = x * 0.9 + x[::-1] * (0.1 + 1e-4 * k)
        return x

    x = numbers(9)
    np.testing.assert_allclose(translated((long, x))[0], long(x.astype(np.float64)), rtol=1e-3)


def test_state_is_updated_in_place():
    """Outputs may be the inputs' own buffers, also in another order."""
    translator = Translator()
    translator.buffer("a", (3,))
    translator.buffer("b", (3,))
    translator.function("swap", lambda a, b: (b, a + 1), ("a", "b"), ("a", "b"))
    start = {"a": np.zeros(3, np.float32), "b": np.full(3, 10, np.float32)}
    rounds = run_program(translator.program(), start, ["swap"], ["a", "b"], times=3)
    assert [(r["a"][0], r["b"][0]) for r in rounds] == [(10, 1), (1, 11), (11, 2)]


def test_what_cannot_be_translated_is_named():
    with pytest.raises(HomingError, match="sort"):
        translated((jnp.sort, X))
    with pytest.raises(HomingError, match="float16"):
        translated((lambda x: x.astype(jnp.float16) * 2, X))
