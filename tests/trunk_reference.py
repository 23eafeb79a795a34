"""The arithmetic of the whole-network kernels in JAX, which they are held to."""

import jax
import jax.numpy as jnp
from jax import lax

from homing.networks.trunk_passes import Passes, Products, Saved, TrunkShape, Wanted, Weights
from homing.types import Array

EPSILON = 1e-6  # of the LayerNorm


def _forward(shape: TrunkShape, wanted: Wanted, x: Array, weights: Weights) -> tuple[Array, Saved | None]:
    inputs, normed, inverse = [], [], []
    skip = None
    vectors, bias = _vectors(shape, weights)
    for layer, kernel in enumerate(_kernels(shape, weights)):
        first, scale, shift = (vectors[:, layer, i, None] for i in range(3))
        z = _product("nbi,nio->nbo", x, kernel) + first
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
        inputs.append(x)
    out = sum(_product("nbi,nio->nbo", x, weights.head[:, i]) for i in range(2)) + bias[:, None]
    if not any(wanted):
        return out, None
    stack = lambda each: jnp.stack(each, axis=1)
    return out, Saved(stack(normed), stack(inverse), stack(inputs) if wanted.weights else None)


def _backward(
    shape: TrunkShape, wanted: Wanted, gradient: Array, weights: Weights, saved: Saved
) -> tuple[Array | None, Products | None]:
    kernels, rounded = _kernels(shape, weights), gradient.astype(jnp.bfloat16)
    vectors, _ = _vectors(shape, weights)
    g = _product("nbo,nio->nbi", rounded, weights.head[:, 0])
    products, sums, skip = [], [], g
    for layer in range(shape.layers, -1, -1):
        _, scale, shift = (vectors[:, layer, i, None] for i in range(3))
        if shape.block and layer > 0 and layer % shape.block == 0:
            skip = g.astype(jnp.bfloat16).astype(jnp.float32)
        n = saved.normed[:, layer, :, : shape.width].astype(jnp.float32)
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
        g = _product("nbo,nio->nbi", products[-1], kernels[layer])
        if shape.block and layer > 0 and (layer - 1) % shape.block == 0:
            g = g + skip
    of_layers = jnp.stack(sums[::-1], axis=1).reshape(g.shape[0], -1)
    of_head = jnp.sum(rounded.astype(jnp.float32), axis=1)
    made = Products(
        jnp.stack(products[::-1], axis=1), rounded, jnp.concatenate([of_layers, of_head], axis=1)[:, None]
    )
    return g.astype(jnp.bfloat16) if wanted.inputs else None, made if wanted.weights else None


def _weight_gradients(
    shape: TrunkShape, x: Array, saved: Saved, products: Products
) -> tuple[Array, Array, Array]:
    assert saved.inputs is not None
    first = _product("nbi,nbo->nio", x, products.layers[:, 0])
    others = _product("nlbi,nlbo->nlio", saved.inputs[:, :-1], products.layers[:, 1:])
    head = _product("nbi,nbo->nio", saved.inputs[:, -1], products.head)
    layers = jnp.concatenate([first, others.reshape(x.shape[0], -1, shape.width)], axis=1)
    return layers, head, jnp.sum(products.vectors, axis=1)


def _kernels(shape: TrunkShape, weights: Weights) -> list[Array]:
    """Weights of each layer [N, in, W]."""
    ends = [shape.inputs + layer * shape.width for layer in range(shape.layers)]
    return jnp.split(weights.layers, ends, axis=1)


def _vectors(shape: TrunkShape, weights: Weights) -> tuple[Array, Array]:
    """Those of the layers [N, 1 + layers, 3, W], and the bias of the head [N, outputs]."""
    of_layers, bias = jnp.split(weights.vectors, [shape.vectors - shape.outputs], axis=1)
    return of_layers.reshape(-1, 1 + shape.layers, 3, shape.width), bias


def _product(spec: str, a: Array, b: Array) -> Array:
    return jnp.einsum(spec, a, b, preferred_element_type=jnp.float32)


REFERENCE = Passes(_forward, _backward, _weight_gradients)
