"""Network modules: MLPs, plain or with residual blocks, in float32 or bfloat16."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from homing import bounds
from homing.errors import ConfigError, unknown
from homing.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swish": nn.swish,
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "tanh": jnp.tanh,
}

COMPUTE_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}

# U(±1/√fan_in): a uniform law has variance bound²/3.
KERNEL_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")

LAYERS_PER_BLOCK = 4
BLOCKS_LAID_OUT = 16
MAX_PLAIN = 256  # layers without skips


@dataclasses.dataclass(frozen=True)
class NetConfig:
    """Shape of one network."""

    width: int = 256
    """Units of each hidden layer."""
    depth: int = 2
    """Hidden layers; with residual blocks a multiple of four, and the stem comes on top."""
    activation: str = "swish"
    """One of swish, relu, elu, gelu, tanh."""
    layer_norm: bool = False
    """LayerNorm before every activation."""
    residual: Literal["none", "blocks"] = "none"
    """Blocks: a stem, then a skip around every four layers, as in the 1000-layer networks."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of the layers; parameters stay float32."""

    def __post_init__(self) -> None:
        bounds.check(self)
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)
        if self.residual == "none" and self.depth > MAX_PLAIN:
            raise ConfigError(
                f"depth must be at most {MAX_PLAIN} without residual blocks, not {self.depth}; "
                "each layer is compiled by itself, and gradients vanish long before: use residual blocks"
            )
        if self.residual == "blocks" and self.depth % LAYERS_PER_BLOCK:
            near = max(LAYERS_PER_BLOCK, round(self.depth / LAYERS_PER_BLOCK) * LAYERS_PER_BLOCK)
            raise ConfigError(
                f"residual blocks have four layers: depth {self.depth} is not a multiple; nearest: {near}"
            )


def nets_of(settings: Any) -> dict[str, NetConfig]:
    """The networks among an agent's settings, by name."""
    found = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {name: value for name, value in found.items() if isinstance(value, NetConfig)}


def depth_of(agent: Any) -> int:
    """Hidden layers of an agent's deepest network; 0 if its settings name none."""
    settings = getattr(agent, "config", None)
    nets = nets_of(settings) if dataclasses.is_dataclass(settings) else {}
    return max((net.depth for net in nets.values()), default=0)


@jax.custom_vjp
def affine(x: Array, kernel: Array, bias: Array) -> Array:
    """x [..., in] · kernel [in, out] + bias [out].

    Its gradient says in which steps it is computed: left to itself, XLA joins the slope of the activation to
    the sum over rows that the bias needs, which on a GPU takes several times as long as the two apart.
    """
    return jnp.dot(x, kernel) + bias


def _affine_forward(x: Array, kernel: Array, bias: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(x, kernel, bias), (x, kernel)


def _affine_backward(saved: tuple[Array, Array], slope: Array) -> tuple[Array, Array, Array]:
    x, kernel = saved
    slope = jax.lax.optimization_barrier(slope)
    rows, slopes = x.reshape(-1, x.shape[-1]), slope.reshape(-1, slope.shape[-1])
    return jnp.dot(slope, kernel.T), jnp.dot(rows.T, slopes), jnp.sum(slopes, axis=0)


affine.defvjp(_affine_forward, _affine_backward)


class Dense(nn.Module):
    """A linear layer; parameters are float32, arithmetic is `dtype`."""

    features: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        kernel = self.param("kernel", KERNEL_INIT, (x.shape[-1], self.features), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return affine(x.astype(self.dtype), kernel.astype(self.dtype), bias.astype(self.dtype))


class Layer(nn.Module):
    """Dense, LayerNorm if asked, activation."""

    config: NetConfig

    @nn.compact
    def __call__(self, x: Array) -> Array:
        dtype = COMPUTE_DTYPES[self.config.dtype]
        x = Dense(self.config.width, dtype)(x)
        if self.config.layer_norm:
            x = nn.LayerNorm(dtype=dtype)(x)
        return ACTIVATIONS[self.config.activation](x)


class Block(nn.Module):
    """Four layers and the skip around them; a scan's body, hence the second result."""

    config: NetConfig

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, None]:
        y = x
        for _ in range(LAYERS_PER_BLOCK):
            y = Layer(self.config)(y)
        return x + y, None


class MLP(nn.Module):
    """Hidden layers, then a linear head of `outputs` units in float32."""

    config: NetConfig
    outputs: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        x = x.astype(COMPUTE_DTYPES[self.config.dtype])
        if self.config.residual == "blocks":
            x = self._blocks(Layer(self.config, name="stem")(x))
        else:
            for _ in range(self.config.depth):
                x = Layer(self.config)(x)
        return Dense(self.outputs, name="head")(x)

    def _blocks(self, x: Array) -> Array:
        # One traced block for all of them: a thousand layers compile as fast as four. Up to 64 they are laid
        # out one after the other: in a loop a GPU starts nearly three times as many kernels.
        count = self.config.depth // LAYERS_PER_BLOCK
        scanned = nn.scan(
            Block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=count,
            unroll=count if count <= BLOCKS_LAID_OUT else 1,
        )
        return scanned(self.config, name="blocks")(x)[0]
