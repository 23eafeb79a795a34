"""The arithmetic of fused networks in JAX, which the kernels are held to."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from homing.networks.fused_passes import FusedShape, Gradients, Packed, Passes, Weights
from homing.types import Array

EPSILON = 1e-6  # of the LayerNorm


class Kept(NamedTuple):
    """`fused_passes.Saved` in plain order."""

    normed: Array  # [N, 1 + layers, B, W]
    inverse: Array  # [N, 1 + layers, B]
    inputs: Array  # [N, B, inputs]
    activations: Array  # [N, 1 + layers, B, W]


def layers_of(shape: FusedShape, weights: Weights) -> list[Array]:
    """Weights of each layer, in the order of their use; the first padded."""
    first = jnp.pad(weights.first, [(0, 0), (0, shape.inputs - shape.input), (0, 0)])
    each = [weights.others[i % shape.leaves][:, i // shape.leaves] for i in range(shape.layers)]
    return [first, *each]


def _pack(shape: FusedShape, weights: Weights) -> Packed:
    rows = jnp.concatenate(layers_of(shape, weights), axis=1).astype(jnp.bfloat16)
    head = jnp.pad(weights.head, [(0, 0), (0, 0), (0, shape.outputs - shape.output)])
    rounded = lax.reduce_precision(head, exponent_bits=8, mantissa_bits=7)
    return Packed(rows, jnp.stack([rounded, head - rounded], axis=1).astype(jnp.bfloat16))


def _kernels(shape: FusedShape, packed: Packed) -> list[Array]:
    ends = [shape.inputs + layer * shape.width for layer in range(shape.layers)]
    return jnp.split(packed.weights, ends, axis=1)


def _product(spec: str, a: Array, b: Array) -> Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


def _forward(
    shape: FusedShape, weights: bool, x: Array, packed: Packed, vectors: Array, bias: Array
) -> tuple[Array, Kept]:
    inputs, activations, normed, inverse, skip = x, [], [], [], None
    for layer, kernel in enumerate(_kernels(shape, packed)):
        own, scale, shift = (by * vectors[:, layer, i, None] for i, by in enumerate((1, 2, 2)))
        z = _product("nbi,nio->nbo", x, kernel) + own
        inv = jnp.ones(z.shape[:-1], jnp.float32)
        if shape.norm:
            inv = lax.rsqrt(jnp.var(z, axis=-1) + EPSILON)
            z = (z - jnp.mean(z, axis=-1, keepdims=True)) * inv[..., None]
        normed.append(z.astype(jnp.bfloat16))
        inverse.append(inv)
        y = jax.nn.swish(z * scale + shift if shape.norm else z)
        if shape.block and layer % shape.block == 0:
            x = skip = (y if skip is None else y + skip.astype(jnp.float32)).astype(jnp.bfloat16)
        else:
            x = y.astype(jnp.bfloat16)
        activations.append(x)
    out = sum(_product("nbi,nio->nbo", x, packed.heads[:, part]) for part in range(2))
    kept = [jnp.stack(each, axis=1) for each in (normed, inverse, activations)]
    return out[..., : shape.output] + bias[:, None], Kept(kept[0], kept[1], inputs, kept[2])


def _apply(shape: FusedShape, x: Array, packed: Packed, vectors: Array, bias: Array) -> Array:
    return _forward(shape, False, x, packed, vectors, bias)[0]


def _backward(
    shape: FusedShape,
    weights: bool,
    d_input: bool,
    gradient: Array,
    packed: Packed,
    vectors: Array,
    kept: Kept,
) -> tuple[Array | None, Gradients | None]:
    kernels = _kernels(shape, packed)
    d_output = jnp.pad(gradient, [(0, 0), (0, 0), (0, shape.outputs - shape.output)]).astype(jnp.bfloat16)
    g = _product("nbo,nio->nbi", d_output, packed.heads[:, 0])
    products, sums, skip = [], [], g
    for layer in range(shape.layers, -1, -1):
        scale, shift = (2 * vectors[:, layer, i, None] for i in (1, 2))
        if shape.block and layer < shape.layers and layer % shape.block == 0:
            g = g + skip
        if shape.block and layer > 0 and layer % shape.block == 0:
            skip = g.astype(jnp.bfloat16).astype(jnp.float32)
        n = kept.normed[:, layer].astype(jnp.float32)
        u = n * scale + shift if shape.norm else n
        s = jax.nn.sigmoid(u)
        d = g * s * (1 + u * (1 - s))
        scaled = jnp.zeros_like(d), jnp.zeros_like(d)
        if shape.norm:
            scaled = d * n, d
            d = d * scale
            along = jnp.mean(d * n, axis=-1, keepdims=True)
            d = kept.inverse[:, layer, :, None] * (d - jnp.mean(d, axis=-1, keepdims=True) - n * along)
        products.append(d.astype(jnp.bfloat16))
        each = (products[-1], *scaled)
        sums.append(jnp.stack([jnp.sum(part, axis=1, dtype=jnp.float32) for part in each], axis=1))
        if layer > 0:
            g = _product("nbo,nio->nbi", products[-1], kernels[layer])
    dx = _product("nbo,nio->nbi", products[-1], kernels[0])[..., : shape.input] if d_input else None
    if not weights:
        return dx, None
    products, sums = products[::-1], sums[::-1]
    before = [kept.inputs, *(kept.activations[:, layer] for layer in range(shape.layers))]
    made = [_product("nbi,nbo->nio", x, d) for x, d in zip(before, products, strict=True)]
    others = tuple(jnp.stack(made[1 + i :: shape.leaves], axis=1) for i in range(shape.leaves))
    head = _product("nbi,nbo->nio", kept.activations[:, -1], d_output)[..., : shape.output]
    of_weights = Weights(made[0][:, : shape.input], others, head)
    return dx, Gradients(of_weights, jnp.stack(sums, axis=1))


REFERENCE = Passes(_pack, _apply, _forward, _backward)
