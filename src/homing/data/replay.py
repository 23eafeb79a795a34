"""Replay: a ring of whole segments on the device, and where in it episodes end.

A lane's rows have a *position* in time order: 0 is the oldest row still stored, `filled - 1` the newest.
Rows live at [slot, T, N]; one slot is one unroll. A write replaces a whole slot: it never wraps.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jax.custom_batching import custom_vmap

from homing.errors import unknown
from homing.types import Array, Key, Segment, bytes_of

STORAGE_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


class Ring(struct.PyTreeNode):
    """The stored rows; K slots of T rows in N lanes."""

    state: Array  # [K, T, N, state_dim]   storage dtype
    action: Array  # [K, T, N, action_dim]  storage dtype
    # Goals stay float32: rewards compare them with a threshold.
    goal: Array  # [K, T, N, goal_dim]  commanded
    reached: Array  # [K, T, N, goal_dim]  achieved by the action
    reward: Array  # [K, T, N]
    discount: Array  # [K, T, N]
    ahead: Array  # [K, T, N]  int16: rows to the episode's last row if that is in the same slot, else −1

    @property
    def slots(self) -> int:
        return self.ahead.shape[0]

    @property
    def segment_length(self) -> int:
        return self.ahead.shape[1]

    @property
    def lanes(self) -> int:
        return self.ahead.shape[2]


@dataclasses.dataclass(frozen=True)
class RingShape:
    """Everything that decides a ring's size."""

    slots: int
    segment_length: int
    lanes: int
    state_dim: int
    action_dim: int
    goal_dim: int
    storage: str = "float32"

    def __post_init__(self) -> None:
        if self.storage not in STORAGE_DTYPES:
            raise unknown("storage dtype", self.storage, STORAGE_DTYPES)


class Timeline(struct.PyTreeNode):
    """The ring's contents in time order, after `collected` segments."""

    oldest: Array  # [] int32: slot with the oldest rows
    filled: Array  # [] int32: rows stored in each lane
    ends: Array  # [K + 1, N] int32: where the episode ends that slot k, in time order, begins with


class Rows(struct.PyTreeNode):
    """Sampled rows, all [...] int32."""

    position: Array
    lane: Array
    remaining: Array  # rows of the same episode from this one to the last known, both counted; ≥ 1

    @property
    def last(self) -> Array:
        """Position of the last known row of the same episode."""
        return self.position + self.remaining - 1


def empty(shape: RingShape) -> Ring:
    """A ring of zeros."""
    lead = (shape.slots, shape.segment_length, shape.lanes)
    stored = STORAGE_DTYPES[shape.storage]
    return Ring(
        state=jnp.zeros((*lead, shape.state_dim), stored),
        action=jnp.zeros((*lead, shape.action_dim), stored),
        goal=jnp.zeros((*lead, shape.goal_dim), jnp.float32),
        reached=jnp.zeros((*lead, shape.goal_dim), jnp.float32),
        reward=jnp.zeros(lead, jnp.float32),
        discount=jnp.zeros(lead, jnp.float32),
        ahead=jnp.full(lead, -1, jnp.int16),
    )


def size_in_bytes(shape: RingShape) -> int:
    """Bytes of such a ring, without making it."""
    return bytes_of(jax.eval_shape(lambda: empty(shape)))


def _store(x: Array, dtype: jnp.dtype) -> Array:
    if x.dtype == dtype:
        return x
    limit = float(jnp.finfo(dtype).max)
    return jnp.clip(x, -limit, limit).astype(dtype)


def _rows_ahead(last: Array) -> Array:
    """For each row of a segment [T, N]: rows to the next `last` at or after it, −1 if there is none."""
    time = jnp.arange(last.shape[0], dtype=jnp.int32)[:, None]
    none = jnp.int32(last.shape[0])
    end = lax.cummin(jnp.where(last, time, none), axis=0, reverse=True)
    return jnp.where(end < none, end - time, -1).astype(jnp.int16)


@custom_vmap
def _write(buffer: Array, rows: Array, slot: Array) -> Array:
    """`buffer` [K, ...] with `rows` [...] at one slot."""
    return lax.dynamic_update_index_in_dim(buffer, rows, slot, 0)


@_write.def_vmap
def _write_seeds(
    size: int, batched: list[bool], buffer: Array, rows: Array, slot: Array
) -> tuple[Array, bool]:
    # The stock rule makes a scatter of it even where the slot is shared.
    if batched[2]:
        raise ValueError("the slot that replay writes to must be the same for all seeds")
    buffer, rows = (
        x if has_seeds else jnp.broadcast_to(x, (size, *x.shape))
        for x, has_seeds in zip((buffer, rows), batched[:2], strict=True)
    )
    return lax.dynamic_update_index_in_dim(buffer, rows, slot, 1), True


def insert(ring: Ring, segment: Segment, collected: Array) -> Ring:
    """The ring with `segment` in place of the oldest slot; `collected` segments were inserted before it."""
    slot = collected % ring.slots
    rows = Ring(
        state=_store(segment.obs.state, ring.state.dtype),
        action=_store(segment.action, ring.action.dtype),
        goal=segment.obs.goal,
        reached=segment.reached,
        reward=segment.reward,
        discount=segment.discount,
        ahead=_rows_ahead(segment.last),
    )
    return jax.tree.map(lambda buffer, new: _write(buffer, new, slot), ring, rows)


def timeline(ring: Ring, collected: Array) -> Timeline:
    """Time order and episode ends after `collected` ≥ 1 segments, across slots and the ring's seam.

    Ends inside a slot were found when it was written; here only slot follows slot, a pass over [K, N].
    """
    slots, length = ring.slots, ring.segment_length
    stored = jnp.minimum(collected, slots)
    oldest = jnp.where(collected > slots, collected % slots, 0)
    order = jnp.arange(slots, dtype=jnp.int32)
    first_ahead = ring.ahead[(oldest + order) % slots, 0].astype(jnp.int32)
    newest = stored * length - 1
    # Slots without an end, and those never written, refer to the newest row: there the running episode stops.
    known = (first_ahead >= 0) & (order < stored)[:, None]
    ends = jnp.where(known, first_ahead + order[:, None] * length, newest)
    ends = jnp.concatenate([ends, jnp.broadcast_to(newest, (1, ring.lanes))])
    return Timeline(oldest=oldest, filled=newest + 1, ends=lax.cummin(ends, axis=0, reverse=True))


def sample(ring: Ring, line: Timeline, key: Key, batch_size: int, newest: float = 1.0) -> Rows:
    """`batch_size` rows, uniform over the `newest` share of the rows of all lanes, with replacement."""
    k_position, k_lane = jax.random.split(key)
    oldest = jnp.int32(0) if newest == 1 else jnp.floor((1 - newest) * line.filled).astype(jnp.int32)
    position = jax.random.randint(k_position, (batch_size,), oldest, line.filled, jnp.int32)
    lane = jax.random.randint(k_lane, (batch_size,), 0, ring.lanes, jnp.int32)
    return Rows(position=position, lane=lane, remaining=remaining(ring, line, position, lane))


def remaining(ring: Ring, line: Timeline, position: Array, lane: Array) -> Array:
    """Rows of the same episode from `position` on, itself included, up to the newest stored."""
    ahead = read(ring.ahead, line, position, lane).astype(jnp.int32)
    later_end = line.ends.at[position // ring.segment_length + 1, lane].get(mode="promise_in_bounds")
    return jnp.where(ahead >= 0, ahead, later_end - position) + 1


def read(field: Array, line: Timeline, position: Array, lane: Array) -> Array:
    """Rows of one ring field [K, T, N, ...] at positions and lanes [...]; narrow floats become float32."""
    slots, length = field.shape[:2]
    slot = (line.oldest + position // length) % slots
    rows = field.at[slot, position % length, lane].get(mode="promise_in_bounds")
    return rows.astype(jnp.float32) if jnp.issubdtype(rows.dtype, jnp.floating) else rows
