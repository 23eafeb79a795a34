"""One run over several devices: seeds, and the environments of each, along the axes of JAX's mesh."""

from __future__ import annotations

import jax


class Placement:
    pass


def is_first() -> bool:
    """Of several processes that share a run, the one that writes."""
    return jax.process_index() == 0


def agreed(value: int) -> int:
    """The largest value that any process of the run has, in all of them."""
    return int(value)
