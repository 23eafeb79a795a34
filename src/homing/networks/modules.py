"""Network modules: MLPs, plain or with residual blocks, in float32 or bfloat16."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from homing import bounds
from homing.errors import ConfigError, unknown
from homing.networks import trunk
from homing.networks.trunk_passes import TrunkShape
from homing.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "swish": nn.swish,
    "relu": nn.relu,
    "elu": nn.elu,
    "gelu": nn.gelu,
    "tanh": jnp.tanh,
}

COMPUTE_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}

# U(±1/√fan_in), as a variance: that of U(±b) is b²/3.
KERNEL_INIT = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")

LAYERS_PER_BLOCK = 4
MAX_UNROLLED_BLOCKS = 16
MAX_PLAIN = 256  # layers without skip connections


@dataclasses.dataclass(frozen=True)
class NetConfig:
    """Architecture of one network."""

    width: int = 256
    """Units of each hidden layer."""
    depth: int = 2
    """Hidden layers; with residual blocks a multiple of four, not counting the stem."""
    activation: str = "swish"
    """One of swish, relu, elu, gelu, tanh."""
    layer_norm: bool = False
    """LayerNorm before every activation."""
    residual: Literal["none", "blocks"] = "none"
    """blocks: a stem, then a skip connection around every four layers."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Compute dtype of the layers; parameters are float32."""

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
    """The network configs among an agent's settings, by name."""
    found = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    return {name: value for name, value in found.items() if isinstance(value, NetConfig)}


def with_nets(settings: Any, changes: Mapping[str, Any]) -> Any:
    """An agent's settings with the same changes in all its networks."""
    if "dtype" in changes and changes["dtype"] not in COMPUTE_DTYPES:
        raise unknown("network dtype", changes["dtype"], COMPUTE_DTYPES)
    nets = {name: dataclasses.replace(net, **changes) for name, net in nets_of(settings).items()}
    return dataclasses.replace(settings, **nets)


def depth_of(agent: Any) -> int:
    """Hidden layers of an agent's deepest network; 0 if its settings have no network."""
    settings = getattr(agent, "config", None)
    nets = nets_of(settings) if dataclasses.is_dataclass(settings) else {}
    return max((net.depth for net in nets.values()), default=0)


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
        shape = _trunk_shape(self.config, x, self.outputs)
        if shape is not None and not self.is_initializing() and (kernels := trunk.passes(shape)) is not None:
            return trunk.apply(kernels, shape, x, _packed(shape, self.variables["params"]))
        return Dense(self.outputs, name="head")(self._features(x))

    def _features(self, x: Array) -> Array:
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


# The same parameters for `homing.networks.trunk`.


def _trunk_shape(config: NetConfig, x: Array, outputs: int) -> TrunkShape | None:
    """Shape of a network that our kernels can compute: bfloat16, swish, and a batch that is worth it."""
    if config.dtype != "bfloat16" or config.activation != "swish" or x.size < trunk.MIN_ROWS * x.shape[-1]:
        return None
    blocks = config.residual == "blocks"
    layers = config.depth if blocks else config.depth - 1
    block = LAYERS_PER_BLOCK if blocks else 0
    inputs, outputs = trunk.padded(x.shape[-1]), trunk.padded(outputs)
    return TrunkShape(config.width, inputs, layers, config.layer_norm, block, outputs)


def _packed(shape: TrunkShape, params: Any) -> trunk.Parameters:
    """Weights and vectors of all layers, in the order of their use."""
    first, *others = _layers(shape, params)
    kernels = [layer["Dense_0"]["kernel"] for layer in others]
    start = first["Dense_0"]["kernel"]
    start = jnp.pad(start, [(0, shape.inputs - start.shape[0]), (0, 0)])
    vectors = [_vectors(layer, shape.norm) for layer in (first, *others)]
    layers, head = jnp.concatenate([start, *kernels]), params["head"]
    return trunk.Parameters(layers, jnp.stack(vectors), head["kernel"], head["bias"])


def _layers(shape: TrunkShape, params: Any) -> list[Any]:
    """Parameters of each layer."""
    if not shape.block:
        return [params[f"Layer_{i}"] for i in range(1 + shape.layers)]
    names = [f"Layer_{i}" for i in range(LAYERS_PER_BLOCK)]
    count = shape.layers // LAYERS_PER_BLOCK
    blocks = [jax.tree.map(lambda leaf, i=i: leaf[i], params["blocks"]) for i in range(count)]
    return [params["stem"], *(block[name] for block in blocks for name in names)]


def _vectors(layer: Any, norm: bool) -> Array:
    bias = layer["Dense_0"]["bias"]
    rest = (layer["LayerNorm_0"]["scale"], layer["LayerNorm_0"]["bias"]) if norm else (bias, bias)
    return jnp.stack([bias, *rest])
