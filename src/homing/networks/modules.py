"""Network modules: MLPs, plain or with residual blocks, in float32 or bfloat16."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from homing.compile import xla
from homing.networks import fused, kernel_layout, trunk
from homing.networks.net_config import ACTIVATIONS, COMPUTE_DTYPES, LAYERS_PER_BLOCK, NetConfig
from homing.types import Array

# U(±1/√fan_in), as a variance: that of U(±b) is b²/3.
KERNEL_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")

MAX_UNROLLED_BLOCKS = 16


@jax.custom_vjp
def affine(x: Array, kernel: Array, bias: Array) -> Array:
    """x [..., in] · kernel [in, out] + bias [out].

    The custom gradient prevents XLA from fusing the activation's derivative with the reduction for the bias
    gradient, which is several times slower on a GPU than the two separately.
    """
    return jnp.dot(x, kernel) + bias


def _affine_forward(x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(x, kernel, bias), (x, kernel)


def _affine_backward(saved: tuple[Array, Array], grad: Array) -> tuple[Array, Array, Array]:
    x, kernel = saved
    grad = jax.lax.optimization_barrier(grad)
    inputs, grads = x.reshape(-1, x.shape[-1]), grad.reshape(-1, grad.shape[-1])
    return jnp.dot(grad, kernel.T), jnp.dot(inputs.T, grads), jnp.sum(grads, axis=0)


affine.defvjp(_affine_forward, _affine_backward)


class Dense(nn.Module):
    """A linear layer with float32 parameters, computed in `dtype`."""

    features: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", KERNEL_INIT, (x.shape[-1], self.features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return affine(x.astype(self.dtype), kernel.astype(self.dtype), bias.astype(self.dtype))


class Layer(nn.Module):
    """Dense, optional LayerNorm, activation."""

    config: NetConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        dtype = COMPUTE_DTYPES[self.config.dtype]
        x = Dense(self.config.width, dtype)(x)
        if self.config.layer_norm:
            x = nn.LayerNorm(dtype=dtype)(x)
        return ACTIVATIONS[self.config.activation](x)


class Block(nn.Module):
    """Four layers with a skip connection; the body of a scan, hence the second output."""

    config: NetConfig

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, None]:
        y = x
        for _ in range(LAYERS_PER_BLOCK):
            y = Layer(self.config)(y)
        return x + y, None


class MLP(nn.Module):
    """Hidden layers, then a linear float32 head of `outputs` units."""

    config: NetConfig
    outputs: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        if self._by_kernels(x):
            shape = kernel_layout.fused_shape(self.config, x.shape[-1], self.outputs)
            if (whole := fused.passes(shape, xla.seeds() * _rows(x))) is not None:
                params = self.variables["params"]
                return fused.apply(whole, shape, x, kernel_layout.fused_parameters(shape, params))
        return Dense(self.outputs, name="head")(self._features(x))

    def _by_kernels(self, x: Array) -> bool:
        """Whether kernels of our own may compute it: in bfloat16, with swish, and for a batch that is worth it."""
        config = self.config
        fits = config.dtype == "bfloat16" and config.activation == "swish" and _rows(x) >= trunk.MIN_ROWS
        return fits and not self.is_initializing()

    def _features(self, x: Array) -> Array:
        if self._by_kernels(x):
            shape = kernel_layout.trunk_shape(self.config, x.shape[-1])
            if (hidden := trunk.passes(shape)) is not None:
                packed = kernel_layout.trunk_parameters(shape, self.variables["params"])
                return trunk.apply(hidden, shape, x, *packed)
        x = x.astype(COMPUTE_DTYPES[self.config.dtype])
        if self.config.residual == "blocks":
            return self._blocks(Layer(self.config, name="stem")(x))
        for i in range(self.config.depth):
            x = Layer(self.config, name=f"Layer_{i}")(x)
        return x

    def _blocks(self, x: Array) -> Array:
        # A scan over blocks: a thousand layers compile as fast as four. Up to 64 layers the scan is unrolled,
        # since a loop launches nearly three times as many kernels on a GPU.
        count = self.config.depth // LAYERS_PER_BLOCK
        scanned = nn.scan(
            Block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=count,
            unroll=count if count <= MAX_UNROLLED_BLOCKS else 1,
        )
        return scanned(self.config, name="blocks")(x)[0]


def _rows(x: Array) -> int:
    return x.size // x.shape[-1]
