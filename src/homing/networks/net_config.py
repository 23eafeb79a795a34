"""Settings of a network, and those of an agent's networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.linen as nn
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

LAYERS_PER_BLOCK = 4
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
