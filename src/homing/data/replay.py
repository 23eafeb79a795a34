"""The replay buffer: a ring of segments on the device, with an index of where episodes end.

The transitions of an environment have a *position* in time order: 0 is the oldest one stored, `filled - 1` the
newest. They lie at [slot, N, T]; one slot is one unroll. A write replaces a whole slot, so it never wraps.
Consecutive steps of an environment are neighbours in memory: to read a window of them is to read whole cache lines.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax
from jax.custom_batching import custom_vmap

from homing.errors import unknown
from homing.types import Array, Key, Segment, TransitionIndex, bytes_of

STORAGE_DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16, "float16": jnp.float16}


class ReplayBuffer(struct.PyTreeNode):
    """Stored transitions: K slots of N environments with T steps each."""

    state: Array  # [K, N, T, state_dim]   storage dtype
    action: Array  # [K, N, T, action_dim]  storage dtype
    # Goals stay float32: rewards compare them with a threshold.
    goal: Array  # [K, N, T, goal_dim]  commanded
    achieved_goal: Array  # [K, N, T, goal_dim]  achieved by the action
    reward: Array  # [K, N, T]
    discount: Array  # [K, N, T]
    to_end: Array  # [K, N, T]  int16: steps to the episode's end if that is in the same slot, else −1

    @property
    def slots(self) -> int:
        return self.to_end.shape[0]

    @property
    def segment_length(self) -> int:
        return self.to_end.shape[2]

    @property
    def num_envs(self) -> int:
        return self.to_end.shape[1]


@dataclasses.dataclass(frozen=True)
class BufferShape:
    """What the size of a replay buffer follows from."""

    slots: int
    segment_length: int
    num_envs: int
    state_dim: int
    action_dim: int
    goal_dim: int
    replay_dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.replay_dtype not in STORAGE_DTYPES:
            raise unknown("replay dtype", self.replay_dtype, STORAGE_DTYPES)


class EpisodeIndex(struct.PyTreeNode):
    """Time order of the buffer's slots, and the ends of the episodes in it."""

    oldest: Array  # [] int32: slot with the oldest transitions
    filled: Array  # [] int32: transitions stored of each environment
    ends: Array  # [K + 1, N] int32: end position of the episode active at the start of slot k


def empty(shape: BufferShape) -> ReplayBuffer:
    """A buffer filled with zeros."""
    lead = (shape.slots, shape.num_envs, shape.segment_length)
    stored = STORAGE_DTYPES[shape.replay_dtype]
    return ReplayBuffer(
        state=jnp.zeros((*lead, shape.state_dim), stored),
        action=jnp.zeros((*lead, shape.action_dim), stored),
        goal=jnp.zeros((*lead, shape.goal_dim), jnp.float32),
        achieved_goal=jnp.zeros((*lead, shape.goal_dim), jnp.float32),
        reward=jnp.zeros(lead, jnp.float32),
        discount=jnp.zeros(lead, jnp.float32),
        to_end=jnp.full(lead, -1, jnp.int16),
    )


def size_in_bytes(shape: BufferShape) -> int:
    """Bytes of a buffer of this shape; nothing is allocated."""
    return bytes_of(jax.eval_shape(lambda: empty(shape)))


def _store(x: Array, dtype: jnp.dtype) -> Array:
    if x.dtype == dtype:
        return x
    limit = float(jnp.finfo(dtype).max)
    return jnp.clip(x, -limit, limit).astype(dtype)


def _steps_to_end(last: Array) -> Array:
    """For each transition of a segment [T, N]: steps to the next `last` at or after it, −1 if there is none."""
    time = jnp.arange(last.shape[0], dtype=jnp.int32)[:, None]
    none = jnp.int32(last.shape[0])
    end = lax.cummin(jnp.where(last, time, none), axis=0, reverse=True)
    return jnp.where(end < none, end - time, -1).astype(jnp.int16)


@custom_vmap
def _write(buffer: Array, new: Array, slot: Array) -> Array:
    """`buffer` [K, ...] with `new` [...] written to one slot."""
    return lax.dynamic_update_index_in_dim(buffer, new, slot, 0)


@_write.def_vmap
def _write_seeds(
    size: int, batched: list[bool], buffer: Array, new: Array, slot: Array
) -> tuple[Array, bool]:
    # The default rule makes a scatter of it even where the slot is shared.
    if batched[2]:
        raise ValueError("the slot that replay writes to must be the same for all seeds")
    buffer, new = (
        x if has_seeds else jnp.broadcast_to(x, (size, *x.shape))
        for x, has_seeds in zip((buffer, new), batched[:2], strict=True)
    )
    return lax.dynamic_update_index_in_dim(buffer, new, slot, 1), True


def insert(buffer: ReplayBuffer, segment: Segment, collected: Array) -> ReplayBuffer:
    """The buffer with `segment` in place of the oldest slot; `collected` segments were inserted before it."""
    slot = collected % buffer.slots
    new = _slot(segment, buffer.state.dtype)
    return jax.tree.map(lambda old, new: _write(old, new, slot), buffer, new)


def _slot(segment: Segment, dtype: jnp.dtype) -> ReplayBuffer:
    """A segment [T, N, ...] as one slot of a buffer [N, T, ...] stores it."""
    slot = ReplayBuffer(
        state=_store(segment.obs.state, dtype),
        action=_store(segment.action, dtype),
        goal=segment.obs.goal,
        achieved_goal=segment.achieved_goal,
        reward=segment.reward,
        discount=segment.discount,
        to_end=_steps_to_end(segment.last),
    )
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), slot)


class Stored(NamedTuple):
    """A buffer and where its episodes end."""

    buffer: ReplayBuffer
    episodes: EpisodeIndex


def recorded(segment: Segment, shape: BufferShape, count: int) -> Stored:
    """A full buffer of transitions [K · T, N, ...] in time order, of which the first `count` of each environment
    are data and the rest is padding; transition `count` − 1 must be the last of its episode."""
    dtype = jnp.dtype(STORAGE_DTYPES[shape.replay_dtype])
    slots = jax.tree.map(
        lambda x: jnp.asarray(x).reshape(shape.slots, shape.segment_length, *x.shape[1:]), segment
    )
    buffer = jax.vmap(lambda slot: _slot(slot, dtype))(slots)
    episodes = episode_index(buffer, jnp.int32(shape.slots))
    return Stored(buffer, episodes.replace(filled=jnp.int32(count)))


def episode_index(buffer: ReplayBuffer, collected: Array) -> EpisodeIndex:
    """Time order and episode ends after `collected` ≥ 1 segments, across slots and the buffer's seam.

    Ends inside a slot were found when it was written; here only slot follows slot, a pass over [K, N].
    """
    slots, length = buffer.slots, buffer.segment_length
    stored = jnp.minimum(collected, slots)
    oldest = jnp.where(collected > slots, collected % slots, 0)
    order = jnp.arange(slots, dtype=jnp.int32)
    first_to_end = buffer.to_end[(oldest + order) % slots, :, 0].astype(jnp.int32)
    newest = stored * length - 1
    # Slots without an end, and those never written, refer to the newest transition, where the running episode stops.
    known = (first_to_end >= 0) & (order < stored)[:, None]
    ends = jnp.where(known, first_to_end + order[:, None] * length, newest)
    ends = jnp.concatenate([ends, jnp.broadcast_to(newest, (1, buffer.num_envs))])
    return EpisodeIndex(oldest=oldest, filled=newest + 1, ends=lax.cummin(ends, axis=0, reverse=True))


def sample(
    buffer: ReplayBuffer, episodes: EpisodeIndex, key: Key, batch_size: int, recent_fraction: float = 1.0
) -> TransitionIndex:
    """`batch_size` transitions, uniform over the most recent fraction of the buffer, with replacement."""
    k_position, k_env = jax.random.split(key)
    if recent_fraction == 1:
        oldest = jnp.int32(0)
    else:
        oldest = jnp.floor((1 - recent_fraction) * episodes.filled).astype(jnp.int32)
        oldest = jnp.minimum(oldest, episodes.filled - 1)
    position = jax.random.randint(k_position, (batch_size,), oldest, episodes.filled, jnp.int32)
    env = jax.random.randint(k_env, (batch_size,), 0, buffer.num_envs, jnp.int32)
    return TransitionIndex(position=position, env=env, remaining=remaining(buffer, episodes, position, env))


def remaining(buffer: ReplayBuffer, episodes: EpisodeIndex, position: Array, env: Array) -> Array:
    """Stored transitions of the same episode from `position` on, itself included."""
    to_end = read(buffer.to_end, episodes, position, env).astype(jnp.int32)
    later_end = episodes.ends.at[position // buffer.segment_length + 1, env].get(mode="promise_in_bounds")
    return jnp.where(to_end >= 0, to_end, later_end - position) + 1


def read(field: Array, episodes: EpisodeIndex, position: Array, env: Array) -> Array:
    """Entries of one field [K, N, T, ...] at positions and environments [...]; narrow floats become float32."""
    slots, _, length = field.shape[:3]
    slot = (episodes.oldest + position // length) % slots
    found = field.at[slot, env, position % length].get(mode="promise_in_bounds")
    return found.astype(jnp.float32) if jnp.issubdtype(found.dtype, jnp.floating) else found
