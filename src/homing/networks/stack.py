"""Several networks evaluated together: those of equal shape as batched matrix products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from homing.networks.modules import MLP
from homing.networks.net_config import NetConfig
from homing.types import Array, Key


class Member(NamedTuple):
    """One network of a stack."""

    config: NetConfig
    inputs: int
    outputs: int


class Stack:
    """Named networks in groups of equal layer shapes, each group evaluated as batched matrix products.

    Narrower inputs and outputs are zero-padded; the padding's weights start at zero and get no gradient, so that
    each member learns exactly as it would alone. Parameters: one pytree per group, leaves [M, ...] with the
    member axis first. With `apart` each member is a group of its own: its gradient then waits for no other's.
    """

    def __init__(self, members: Mapping[str, Member], apart: bool = False):
        self.members = dict(members)
        self.groups: dict[str, list[str]] = {name: [name] for name in members} if apart else {}
        for config in () if apart else dict.fromkeys(member.config for member in members.values()):
            names = [name for name, member in members.items() if member.config == config]
            self.groups["_".join(names)] = names

    def init(self, key: Key) -> dict[str, Any]:
        """Initial parameters."""
        keys = dict(zip(self.members, jax.random.split(key, len(self.members)), strict=True))
        return {group: self._init_group(group, keys) for group in self.groups}

    def __call__(self, params: dict[str, Any], **inputs: Array) -> tuple[Array, ...]:
        """Outputs of the named members in argument order; inputs of a group have the same leading shape."""
        outputs: dict[str, Array] = {}
        for group, names in self.groups.items():
            if used := [name for name in names if name in inputs]:
                outputs |= self._apply_group(params[group], group, used, inputs)
        return tuple(outputs[name] for name in inputs)

    def rates(self, **rates: Any) -> dict[str, Array]:
        """Learning rates of the members [M], for each group."""
        return {
            group: jnp.stack([jnp.asarray(rates[name], jnp.float32) for name in names])
            for group, names in self.groups.items()
        }

    def _sizes(self, group: str) -> tuple[int, int]:
        members = [self.members[name] for name in self.groups[group]]
        # Input widths are multiples of eight, for tensor cores.
        return -(-max(m.inputs for m in members) // 8) * 8, max(m.outputs for m in members)

    def _init_group(self, group: str, keys: dict[str, Key]) -> Any:
        names = self.groups[group]
        width, outputs = self._sizes(group)
        wide = MLP(self.members[names[0]].config, outputs)
        shapes = jax.eval_shape(wide.init, keys[names[0]], jnp.zeros((1, width), jnp.float32))["params"]

        def init_member(name: str) -> Any:
            member = self.members[name]
            params = MLP(member.config, member.outputs).init(
                keys[name], jnp.zeros((1, member.inputs), jnp.float32)
            )
            return jax.tree.map(lambda x, to: zero_padded(x, to.shape), params["params"], shapes)

        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(init_member, names))

    def _apply_group(
        self, params: Any, group: str, used: list[str], inputs: dict[str, Array]
    ) -> dict[str, Array]:
        names = self.groups[group]
        width, outputs = self._sizes(group)
        module = MLP(self.members[used[0]].config, outputs)

        def apply(params: Any, x: Array) -> Array:
            outputs: Any = module.apply({"params": params}, x)
            return outputs

        padded = [zero_padded(inputs[name], (*inputs[name].shape[:-1], width)) for name in used]
        if len(used) == 1:
            position = names.index(used[0])
            results = [apply(jax.tree.map(lambda leaf: leaf[position], params), padded[0])]
        else:
            if used != names:
                positions = jnp.asarray([names.index(name) for name in used])
                params = jax.tree.map(lambda leaf: leaf[positions], params)
            results = jax.vmap(apply)(params, jnp.stack(padded))
        return {
            name: result[..., : self.members[name].outputs]
            for name, result in zip(used, results, strict=True)
        }


def zero_padded(x: Array, shape: tuple[int, ...]) -> Array:
    """Zero-pad x at the end of each axis to `shape`."""
    return jnp.pad(x, [(0, to - size) for size, to in zip(x.shape, shape, strict=True)])
