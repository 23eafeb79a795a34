"""Several networks in one: those of one shape run as batched products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from homing.networks.modules import MLP, NetConfig
from homing.types import Array, Key


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
