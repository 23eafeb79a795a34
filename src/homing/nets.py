"""Network modules, stacks of them, and the step that all learners take: `adam` on a `Fit`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import struct

from homing.errors import ConfigError, unknown
from homing.types import Array, Key, Metrics

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

# Without a rate: see `adam`.
ADAM = optax.scale_by_adam()


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
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)
        if self.dtype not in COMPUTE_DTYPES:
            raise unknown("network dtype", self.dtype, COMPUTE_DTYPES)
        if self.residual not in ("none", "blocks"):
            raise unknown("residual mode", self.residual, ("none", "blocks"))
        if self.width < 1 or self.depth < 1:
            raise ConfigError(f"width {self.width} and depth {self.depth} must be at least 1")
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


class Fit(struct.PyTreeNode):
    """What a network has learned: arrays only, so that any two have the same tree."""

    params: Any
    opt_state: Any


class Member(NamedTuple):
    """One network of a stack."""

    config: NetConfig
    inputs: int
    outputs: int


class Stack:
    """Networks side by side: those of one shape run as batched products, one kernel where each had its own.

    Members of a group share their layers' shapes. Narrower inputs and outputs are filled up with zeros, whose
    weights start at zero and never get a gradient, so that each member learns what it would learn alone.
    Parameters: one pytree for each group, every leaf with the member axis [M, ...] first.
    """

    def __init__(self, members: Mapping[str, Member]):
        self.members = dict(members)
        self.groups: dict[str, list[str]] = {}
        for config in dict.fromkeys(member.config for member in members.values()):
            names = [name for name, member in members.items() if member.config == config]
            self.groups["_".join(names)] = names

    def init(self, key: Key) -> dict[str, Any]:
        """Fresh parameters."""
        keys = dict(zip(self.members, jax.random.split(key, len(self.members)), strict=True))
        return {group: self._init_group(group, keys) for group in self.groups}

    def __call__(self, params: dict[str, Any], **inputs: Array) -> tuple[Array, ...]:
        """Outputs of the named members, in the order of the arguments; a group's inputs share their shape."""
        outputs: dict[str, Array] = {}
        for group, names in self.groups.items():
            if asked := [name for name in names if name in inputs]:
                outputs |= self._apply_group(params[group], group, asked, inputs)
        return tuple(outputs[name] for name in inputs)

    def rates(self, **rates: Any) -> dict[str, Array]:
        """For each group the rates of its members [M]."""
        return {
            group: jnp.stack([jnp.asarray(rates[name], jnp.float32) for name in names])
            for group, names in self.groups.items()
        }

    def _sizes(self, group: str) -> tuple[int, int]:
        members = [self.members[name] for name in self.groups[group]]
        # Rows of eight: what tensor cores read in one go.
        return -(-max(m.inputs for m in members) // 8) * 8, max(m.outputs for m in members)

    def _init_group(self, group: str, keys: dict[str, Key]) -> Any:
        names = self.groups[group]
        width, outputs = self._sizes(group)
        wide = MLP(self.members[names[0]].config, outputs)
        shapes = jax.eval_shape(wide.init, keys[names[0]], jnp.zeros((1, width), jnp.float32))["params"]

        def fresh(name: str) -> Any:
            member = self.members[name]
            params = MLP(member.config, member.outputs).init(
                keys[name], jnp.zeros((1, member.inputs), jnp.float32)
            )
            return jax.tree.map(lambda x, to: _fill(x, to.shape), params["params"], shapes)

        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(fresh, names))

    def _apply_group(
        self, params: Any, group: str, asked: list[str], inputs: dict[str, Array]
    ) -> dict[str, Array]:
        names = self.groups[group]
        width, outputs = self._sizes(group)
        module = MLP(self.members[asked[0]].config, outputs)

        def apply(params: Any, x: Array) -> Array:
            outputs: Any = module.apply({"params": params}, x)
            return outputs

        filled = [_fill(inputs[name], (*inputs[name].shape[:-1], width)) for name in asked]
        if len(asked) == 1:
            place = names.index(asked[0])
            results = [apply(jax.tree.map(lambda leaf: leaf[place], params), filled[0])]
        else:
            if asked != names:
                places = jnp.asarray([names.index(name) for name in asked])
                params = jax.tree.map(lambda leaf: leaf[places], params)
            results = jax.vmap(apply)(params, jnp.stack(filled))
        return {
            name: result[..., : self.members[name].outputs]
            for name, result in zip(asked, results, strict=True)
        }


def _fill(x: Array, shape: tuple[int, ...]) -> Array:
    """`x` with zeros after its entries, up to `shape`."""
    return jnp.pad(x, [(0, to - size) for size, to in zip(x.shape, shape, strict=True)])


def adam(fit: Fit, loss: Callable[[Any], tuple[Array, Metrics]], rates: Any) -> tuple[Fit, Metrics]:
    """One step of Adam on `loss(params)`; `rates` is a prefix of the parameters' tree, [] or [M] each.

    One optimiser for all that an agent learns: its step is a single pass over the parameters.
    """
    grads, metrics = jax.grad(loss, has_aux=True)(fit.params)
    directions, opt_state = ADAM.update(grads, fit.opt_state)

    def move(rate: Array, params: Any, directions: Any) -> Any:
        def leaf(x: Array, direction: Array) -> Array:
            return x - rate.reshape(rate.shape + (1,) * (x.ndim - rate.ndim)) * direction

        return jax.tree.map(leaf, params, directions)

    params = jax.tree.map(move, rates, fit.params, directions)
    return Fit(params=params, opt_state=opt_state), metrics
