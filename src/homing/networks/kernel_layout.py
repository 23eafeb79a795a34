"""A network's parameters as kernels of our own take them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from homing.networks.fused import Parameters
from homing.networks.fused_passes import FusedShape
from homing.networks.net_config import LAYERS_PER_BLOCK, NetConfig
from homing.networks.trunk import padded
from homing.networks.trunk_passes import TrunkShape
from homing.types import Array


def fused_shape(config: NetConfig, inputs: int, outputs: int) -> FusedShape:
    """The shape of a whole network."""
    layers, block = _sizes(config)
    return FusedShape(config.width, inputs, layers, config.layer_norm, block, outputs)


def fused_parameters(shape: FusedShape, params: Any) -> Parameters:
    """Parameters of a whole network; nothing is copied but vectors, and weights of plain layers."""
    if shape.block:
        stem = params["stem"]
        others = [params["blocks"][name]["Dense_0"]["kernel"] for name in _names(LAYERS_PER_BLOCK)]
    else:
        stem, *layers = (params[name] for name in _names(1 + shape.layers))
        others = [jnp.stack([layer["Dense_0"]["kernel"] for layer in layers])]
    head = params["head"]
    vectors = _all_vectors(_layers(shape, params), shape.norm)
    return Parameters(stem["Dense_0"]["kernel"], tuple(others), head["kernel"], vectors, head["bias"])


def trunk_shape(config: NetConfig, inputs: int) -> TrunkShape:
    """The shape of a network's hidden layers."""
    layers, block = _sizes(config)
    return TrunkShape(config.width, padded(inputs), layers, config.layer_norm, block)


def trunk_parameters(shape: TrunkShape, params: Any) -> tuple[Array, Array]:
    """Weights and vectors of all hidden layers, in the order of their use."""
    first, *others = _layers(shape, params)
    kernels = [layer["Dense_0"]["kernel"] for layer in others]
    start = first["Dense_0"]["kernel"]
    start = jnp.pad(start, [(0, shape.inputs - start.shape[0]), (0, 0)])
    return jnp.concatenate([start, *kernels]), _all_vectors([first, *others], shape.norm)


def _sizes(config: NetConfig) -> tuple[int, int]:
    """Layers after the first, and those that a skip connection goes around."""
    blocks = config.residual == "blocks"
    return (config.depth, LAYERS_PER_BLOCK) if blocks else (config.depth - 1, 0)


def _names(count: int) -> list[str]:
    return [f"Layer_{i}" for i in range(count)]


def _layers(shape: FusedShape | TrunkShape, params: Any) -> list[Any]:
    """Parameters of each layer."""
    if not shape.block:
        return [params[name] for name in _names(1 + shape.layers)]
    count = shape.layers // LAYERS_PER_BLOCK
    blocks = [jax.tree.map(lambda leaf, i=i: leaf[i], params["blocks"]) for i in range(count)]
    return [params["stem"], *(block[name] for block in blocks for name in _names(LAYERS_PER_BLOCK))]


def _all_vectors(layers: list[Any], norm: bool) -> Array:
    """Bias of each layer, scale and shift of its LayerNorm [layers, 3, W]."""
    return jnp.stack([_vectors(layer, norm) for layer in layers])


def _vectors(layer: Any, norm: bool) -> Array:
    bias = layer["Dense_0"]["bias"]
    rest = (layer["LayerNorm_0"]["scale"], layer["LayerNorm_0"]["bias"]) if norm else (bias, bias)
    return jnp.stack([bias, *rest])
