"""The arithmetic of the whole-network kernels in JAX, which they are held to."""

import jax
import jax.numpy as jnp
from jax import lax

from homing.networks.trunk_passes import Passes, Saved, TrunkShape
from homing.types import Array

EPSILON = 1e-6  # of the LayerNorm


def _reference_forward(shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> tuple[Array, Saved]:
    inputs, normed, inverse = [], [], []
    skip = None
    for layer, kernel in enumerate(_kernels(shape, weights)):
        bias, scale, shift = (vectors[:, layer, i, None] for i in range(3))
        if layer > 0:
            inputs.append(x)
        z = _product("nbi,nio->nbo", x, kernel) + bias
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
    empty = jnp.zeros((x.shape[0], 0, *x.shape[1:]), jnp.bfloat16)
    stacked = jnp.stack(inputs, axis=1) if inputs else empty
    return x, Saved(stacked, jnp.stack(normed, axis=1), jnp.stack(inverse, axis=1))


def _reference_apply(shape: TrunkShape, x: Array, weights: Array, vectors: Array) -> Array:
    return _reference_forward(shape, x, weights, vectors)[0]


def _reference_backward(
    shape: TrunkShape, gradient: Array, weights: Array, vectors: Array, saved: Saved
) -> tuple[Array, Array, Array]:
    kernels = _kernels(shape, weights)
    g = gradient.astype(jnp.float32)
    products, sums, skip = [], [], g
    for layer in range(shape.layers, -1, -1):
        _, scale, shift = (vectors[:, layer, i, None] for i in range(3))
        if shape.block and layer > 0 and layer % shape.block == 0:
            skip = g.astype(jnp.bfloat16).astype(jnp.float32)
        n = saved.normed[:, layer].astype(jnp.float32)
        u = n * scale + shift if shape.norm else n
        s = jax.nn.sigmoid(u)
        d = g * s * (1 + u * (1 - s))
        scaled = d * n, d
        if shape.norm:
            d = d * scale
            along = jnp.mean(d * n, axis=-1, keepdims=True)
            d = saved.inverse[:, layer, :, None] * (d - jnp.mean(d, axis=-1, keepdims=True) - n * along)
        else:
            scaled = jnp.zeros_like(d), jnp.zeros_like(d)
        sums.append(jnp.stack([jnp.sum(each, axis=1) for each in (d, *scaled)], axis=1))
        products.append(d.astype(jnp.bfloat16))
        if layer > 0:
            g = _product("nbo,nio->nbi", products[-1], kernels[layer])
            if shape.block and (layer - 1) % shape.block == 0:
                g = g + skip
    *others, first = products
    return first, jnp.stack(others[::-1], axis=1), jnp.stack(sums[::-1], axis=1)


def _kernels(shape: TrunkShape, weights: Array) -> list[Array]:
    """Weights of each layer [N, in, W]."""
    ends = [shape.inputs + layer * shape.width for layer in range(shape.layers)]
    return jnp.split(weights, ends, axis=1)


def _product(spec: str, a: Array, b: Array) -> Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


REFERENCE = Passes(_reference_apply, _reference_forward, _reference_backward)
