"""act(x)·W + b in one kernel, and its gradient in two: no pass over the activations of its own.

XLA computes a layer as a product and then, in kernels of their own, the activation, its slope and the sum
over rows that the bias needs. For networks as small as ours these passes cost as much as the products. Here
the activation belongs to the layer that reads it: it is applied while the product's operands are loaded.

Parameters may be those of several networks, [M, I, O] and [M, O]: `Form.member` says whose are meant, so that
nobody has to cut them out first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from homing.types import Array

TILE, DEPTH = 64, 32  # a program computes TILE × TILE entries, DEPTH terms of the sums at a time
ROWS = 32  # of a program where rows are those of the batch: more programs, for few seeds

Activation = Callable[[Array], Array]


class Form(NamedTuple):
    """What is fixed when a kernel is compiled."""

    activation: Activation | None = None
    dtype: Any = jnp.float32  # of the products' operands
    interpret: bool = False
    member: int | None = None

    def act(self, x: Array) -> Array:
        return x if self.activation is None else self.activation(x)

    def slope(self, x: Array) -> Array | float:
        """Of the activation."""
        return 1.0 if self.activation is None else jax.jvp(self.activation, (x,), (jnp.ones_like(x),))[1]

    def product(self, a: Array, b: Array) -> Array:
        return jnp.dot(a.astype(self.dtype), b.astype(self.dtype), preferred_element_type=jnp.float32)


def supported(x: Array, kernel: Array) -> bool:
    """Whether the kernels take a product of these shapes: whole tiles of rows and outputs."""
    return x.ndim == 2 and len(x) % TILE == 0 and kernel.shape[-1] % TILE == 0 and x.dtype == jnp.float32


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def dense(x: Array, kernel: Array, bias: Array, form: Form) -> Array:
    """act(x [B, I])·kernel [I, O] + bias [O]; see `supported`."""
    rows, outputs = len(x), kernel.shape[-1]
    call = _Call("dense_outputs", _outputs_kernel, (rows // ROWS, outputs // TILE), [(rows, outputs)], form)
    return call([x], [kernel, bias])[0]


def _forward(x: Array, kernel: Array, bias: Array, form: Form) -> tuple[Array, tuple[Array, Array]]:
    return dense(x, kernel, bias, form), (x, kernel)


def _backward(form: Form, saved: tuple[Array, Array], slopes: Array) -> tuple[Array, Array, Array]:
    x, kernel = saved
    (rows, inputs), outputs = x.shape, kernel.shape[-1]
    blocks = pl.cdiv(inputs, TILE)
    call = _Call("dense_input_slopes", _inputs_kernel, (rows // ROWS, blocks), [(rows, inputs)], form)
    (to_inputs,) = call([slopes, x], [kernel])
    shapes = [(inputs, outputs), (outputs,)]
    call = _Call("dense_parameter_slopes", _parameters_kernel, (blocks, outputs // TILE), shapes, form)
    to_kernel, to_bias = call([x, slopes], [])
    if form.member is None:
        return to_inputs, to_kernel, to_bias
    none = jnp.zeros_like(kernel), jnp.zeros((len(kernel), outputs), jnp.float32)
    return to_inputs, none[0].at[form.member].set(to_kernel), none[1].at[form.member].set(to_bias)


dense.defvjp(_forward, _backward)


class _Call(NamedTuple):
    """One of the kernels below, on whole arrays: what its programs read they choose themselves."""

    name: str
    body: Callable[..., None]
    grid: tuple[int, int]
    shapes: list[tuple[int, ...]]
    form: Form

    def __call__(self, data: list[Array], parameters: list[Array]) -> Any:
        return pl.pallas_call(
            functools.partial(self.body, form=self.form),
            out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in self.shapes],
            grid=self.grid,
            in_specs=[_whole(x) for x in data] + [_whole(x, self.form.member) for x in parameters],
            compiler_params=triton.CompilerParams(num_warps=4, num_stages=3),
            interpret=self.form.interpret,
            name=self.name,
        )(*data, *parameters)


def _whole(x: Array, member: int | None = None) -> pl.BlockSpec:
    """All of an operand, or all of it that belongs to one member."""
    if member is None:
        return pl.BlockSpec(x.shape, lambda *_: (0,) * x.ndim)
    return pl.BlockSpec((None, *x.shape[1:]), lambda *_: (member, *(0,) * (x.ndim - 1)))


def _outputs_kernel(x, kernel, bias, out, *, form: Form) -> None:
    rows, columns = pl.ds(pl.program_id(0) * ROWS, ROWS), pl.ds(pl.program_id(1) * TILE, TILE)

    def terms(k: Array, total: Array) -> Array:
        a = form.act(_load(x, rows, _part(k), x.shape[1], 1))
        return total + form.product(a, _load(kernel, _part(k), columns, x.shape[1], 0))

    total = lax.fori_loop(0, pl.cdiv(x.shape[1], DEPTH), terms, jnp.zeros((ROWS, TILE), jnp.float32))
    out[rows, columns] = total + bias[columns][None, :]


def _inputs_kernel(slopes, x, kernel, out, *, form: Form) -> None:
    rows, columns = pl.ds(pl.program_id(0) * ROWS, ROWS), pl.ds(pl.program_id(1) * TILE, TILE)

    def terms(k: Array, total: Array) -> Array:
        part = _part(k)
        return total + form.product(slopes[rows, part], _load(kernel, columns, part, x.shape[1], 0).T)

    total = lax.fori_loop(0, slopes.shape[1] // DEPTH, terms, jnp.zeros((ROWS, TILE), jnp.float32))
    if form.activation is not None:
        total *= form.slope(_load(x, rows, columns, x.shape[1], 1))
    _store(out, rows, columns, x.shape[1], 1, total)


def _parameters_kernel(x, slopes, to_kernel, to_bias, *, form: Form) -> None:
    inputs, columns = pl.ds(pl.program_id(0) * TILE, TILE), pl.ds(pl.program_id(1) * TILE, TILE)

    def terms(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        total, sums = carry
        part = slopes[_part(k), columns]
        a = form.act(_load(x, _part(k), inputs, x.shape[1], 1))
        return total + form.product(a.T, part), sums + jnp.sum(part, axis=0)

    start = jnp.zeros((TILE, TILE), jnp.float32), jnp.zeros((TILE,), jnp.float32)
    total, sums = lax.fori_loop(0, slopes.shape[0] // DEPTH, terms, start)
    _store(to_kernel, inputs, columns, x.shape[1], 0, total)

    @pl.when(pl.program_id(0) == 0)
    def _():
        to_bias[columns] = sums


def _part(k: Array) -> Any:
    return pl.ds(k * DEPTH, DEPTH)


def _inside(at: Any, limit: int, axis: int) -> Array | None:
    """Mask of the entries of a slice that exist, along `axis` of two; None where all sizes divide."""
    if limit % at.size == 0:
        return None
    places = at.start + jnp.arange(at.size, dtype=jnp.int32)
    return jnp.expand_dims(places < limit, 1 - axis)


def _load(ref, rows: Any, columns: Any, limit: int, axis: int) -> Array:
    """A block in which entries past `limit` along `axis` are zero."""
    mask = _inside((rows, columns)[axis], limit, axis)
    if mask is None:
        return ref[rows, columns]
    mask = jnp.broadcast_to(mask, (rows.size, columns.size))
    return triton.load(ref.at[rows, columns], mask=mask, other=0.0)


def _store(ref, rows: Any, columns: Any, limit: int, axis: int, value: Array) -> None:
    mask = _inside((rows, columns)[axis], limit, axis)
    if mask is None:
        ref[rows, columns] = value
    else:
        triton.store(ref.at[rows, columns], value, mask=jnp.broadcast_to(mask, value.shape))
