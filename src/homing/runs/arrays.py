"""The arrays of a saved state: their names, types, shapes and fingerprints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from homing.errors import HomingError
from homing.types import Array

SHOWN = 4  # arrays in a message


def named(tree: Any) -> list[tuple[str, Any]]:
    """Every array with its name."""
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def array_types(tree: Any) -> dict[str, str]:
    """`float32[2, 16]` for every array, by its name."""
    return {name: f"{leaf.dtype}{list(leaf.shape)}" for name, leaf in named(tree)}


def check_arrays(saved: Mapping[str, str], shapes: Any, path: Path) -> None:
    """Refuse a checkpoint whose arrays are not those of this run, and say which; `saved` are its types."""
    ours = array_types(shapes)
    names = [name for name in dict.fromkeys([*saved, *ours]) if saved.get(name) != ours.get(name)]
    if not names:
        return
    differences = [
        f"{name} is {saved.get(name, 'absent')} in the checkpoint and {ours.get(name, 'absent')} in this run"
        for name in names[:SHOWN]
    ]
    more = f"; and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    raise HomingError(
        f"the checkpoint {path} is not damaged, but it has other arrays than this run: "
        f"{'; '.join(differences)}{more}. It was made with other settings, in another environment or by "
        "another version of homing: go back to those, or train again with another --out"
    )


@jax.jit
def fingerprints(tree: Any) -> Array:
    """[leaves] uint32: Σ (2s + 1) (2i + 1) bits[s, i] of each array; any changed entry changes it."""
    return jnp.stack([_fingerprint(leaf) for leaf in jax.tree.leaves(tree)])


def _fingerprint(x: Array) -> Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.uint8)
    width = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}[x.dtype.itemsize]
    # Seed by seed: the replay of all seeds together can have more entries than an int32 counts.
    bits = jax.lax.bitcast_convert_type(x, width).astype(jnp.uint32).reshape(len(x) if x.ndim else 1, -1)
    odd = lambda count: 2 * jnp.arange(count, dtype=jnp.uint32) + 1
    sums = jnp.sum(bits * odd(bits.shape[1]), axis=1, dtype=jnp.uint32)
    return jnp.sum(sums * odd(bits.shape[0]), dtype=jnp.uint32)
