"""The ring against a plain list of rows, its sampling, its size and its memory traffic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from homing.data import replay
from homing.data.relabel import future
from homing.data.replay import BufferShape
from homing.errors import UnknownNameError
from homing.types import Obs, Segment

SLOTS, LENGTH, LANES = 4, 5, 3
SHAPE = BufferShape(SLOTS, LENGTH, LANES, state_dim=2, action_dim=1, goal_dim=2)


def segments(count, seed=0, end_probability=0.13):
    """Segments of numbered rows; state, reached and goal tell (lane and time), `last` is random."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        time = np.arange(k * LENGTH, (k + 1) * LENGTH)[:, None] + np.zeros((1, LANES))
        lane = np.zeros((LENGTH, 1)) + np.arange(LANES)
        state = jnp.asarray(np.stack([time, lane], -1), jnp.float32)
        made.append(
            Segment(
                obs=Obs(state=state, goal=-state),
                action=state[..., :1] / 100,
                achieved_goal=state + 0.5,
                reward=state[..., 0],
                discount=jnp.asarray(rng.random((LENGTH, LANES)) < 0.5, jnp.float32),
                last=jnp.asarray(rng.random((LENGTH, LANES)) < end_probability),
            )
        )
    return made


def filled(count, **kwargs):
    ring, stored = replay.empty(SHAPE), segments(count, **kwargs)
    insert = jax.jit(replay.insert)
    for k, segment in enumerate(stored):
        ring = insert(ring, segment, jnp.int32(k))
    return ring, replay.episode_index(ring, jnp.int32(count)), stored


def everywhere(line):
    """Positions and lanes of all stored rows, flat."""
    position, lane = np.meshgrid(np.arange(int(line.filled)), np.arange(LANES), indexing="ij")
    return jnp.asarray(position.ravel(), jnp.int32), jnp.asarray(lane.ravel(), jnp.int32)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9, 11])
def test_contents_in_time_order_are_the_newest_segments(count):
    ring, line, stored = filled(count)
    kept = stored[-SLOTS:]
    position, lane = everywhere(line)
    assert int(line.filled) == LENGTH * len(kept)
    for field, rows in [
        (ring.state, [s.obs.state for s in kept]),
        (ring.goal, [s.obs.goal for s in kept]),
        (ring.action, [s.action for s in kept]),
        (ring.achieved_goal, [s.reached for s in kept]),
        (ring.reward, [s.reward for s in kept]),
        (ring.discount, [s.discount for s in kept]),
    ]:
        expected = np.concatenate(rows)
        np.testing.assert_array_equal(
            replay.read(field, line, position, lane), expected.reshape(-1, *expected.shape[2:])
        )


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9, 11, 12])
@pytest.mark.parametrize("end_probability", [0.0, 0.05, 0.3, 1.0])
def test_episodes_end_where_a_brute_force_search_finds_it(count, end_probability):
    ring, line, stored = filled(count, seed=count, end_probability=end_probability)
    last = np.concatenate([s.last for s in stored[-SLOTS:]])
    position, lane = everywhere(line)
    found = np.asarray(replay.remaining(ring, line, position, lane))
    for p, n, remaining in zip(position.tolist(), lane.tolist(), found.tolist(), strict=True):
        end = p
        while not last[end, n] and end < len(last) - 1:
            end += 1
        assert remaining == end - p + 1


def test_future_goals_never_leave_the_episode():
    ring, line, stored = filled(11, seed=3)
    last = np.concatenate([s.last for s in stored[-SLOTS:]])
    episode = np.concatenate([np.zeros((1, LANES), int), np.cumsum(last, axis=0)[:-1]])
    oldest_time = 11 * LENGTH - len(last)
    position, lane = everywhere(line)
    rows = replay.Rows(position, lane, replay.remaining(ring, line, position, lane))
    crossed_slot = False
    for k in range(200):
        goal = np.asarray(future(ring, line, rows, jax.random.key(k), 0.9)) - 0.5
        at = goal[:, 0].astype(int) - oldest_time
        np.testing.assert_array_equal(goal[:, 1], lane)
        assert np.all(at >= np.asarray(position))
        np.testing.assert_array_equal(episode[at, lane], episode[position, lane])
        crossed_slot |= bool(np.any(at // LENGTH > np.asarray(position) // LENGTH))
    assert crossed_slot, "no goal beyond a collection border: the test proves nothing"


@pytest.mark.parametrize("count", [2, 11])
def test_sampling_is_uniform_up_to_the_oldest_and_newest_row(count):
    ring, line, _ = filled(count)
    rows = replay.sample(ring, line, jax.random.key(1), 120_000)
    cells = np.bincount(np.asarray(rows.position) * LANES + np.asarray(rows.env))
    assert len(cells) == int(line.filled) * LANES
    assert stats.chisquare(cells).pvalue > 1e-3


@pytest.mark.parametrize(("newest", "oldest"), [(0.5, 10), (0.33, 13), (0.1, 18)])
def test_the_newest_share_alone_is_drawn_from(newest, oldest):
    ring, line, _ = filled(9)
    rows = replay.sample(ring, line, jax.random.key(1), 30_000, newest)
    cells = np.bincount(np.asarray(rows.position))
    assert not cells[:oldest].any()
    assert len(cells) == int(line.filled) == 20
    assert stats.chisquare(cells[oldest:]).pvalue > 1e-3


@pytest.mark.parametrize(("replay_dtype", "itemsize"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_storage_dtype_and_size(replay_dtype, itemsize):
    shape = BufferShape(2, 3, 4, state_dim=5, action_dim=2, goal_dim=3, replay_dtype=replay_dtype)
    ring = replay.empty(shape)
    assert ring.state.dtype == replay_dtype
    assert ring.achieved_goal.dtype == jnp.float32
    assert replay.size_in_bytes(shape) == 24 * ((5 + 2) * itemsize + (3 + 3 + 1 + 1) * 4 + 2)
    assert replay.size_in_bytes(shape) == sum(leaf.nbytes for leaf in jax.tree.leaves(ring))


def test_narrow_storage_reads_back_float32_without_infinities():
    ring = replay.empty(BufferShape(SLOTS, LENGTH, LANES, 2, 1, 2, replay_dtype="float16"))
    segment = segments(1)[0]
    segment = segment.replace(obs=segment.obs.replace(state=segment.obs.state + 1e6))
    ring = replay.insert(ring, segment, jnp.int32(0))
    line = replay.episode_index(ring, jnp.int32(1))
    state = replay.read(ring.state, line, *everywhere(line))
    assert state.dtype == jnp.float32
    np.testing.assert_array_equal(state, 65504.0)


def test_unknown_storage_is_answered_with_the_known():
    with pytest.raises(UnknownNameError, match="float32"):
        BufferShape(1, 1, 1, 1, 1, 1, replay_dtype="float3")


def test_insertion_and_sampling_do_not_copy_the_ring():
    shape = BufferShape(slots=200, segment_length=10, num_envs=64, state_dim=20, action_dim=4, goal_dim=2)
    length, lanes = shape.segment_length, shape.num_envs

    def step(ring, segment, collected, key):
        ring = replay.insert(ring, segment, collected)
        line = replay.episode_index(ring, collected + 1)
        rows = replay.sample(ring, line, key, 256)
        return ring, replay.read(ring.state, line, rows.position, rows.env)

    segment = Segment(
        obs=Obs(state=jnp.zeros((length, lanes, 20)), goal=jnp.zeros((length, lanes, 2))),
        action=jnp.zeros((length, lanes, 4)),
        achieved_goal=jnp.zeros((length, lanes, 2)),
        reward=jnp.zeros((length, lanes)),
        discount=jnp.zeros((length, lanes)),
        last=jnp.zeros((length, lanes), bool),
    )
    ring = jax.eval_shape(lambda: replay.empty(shape))
    compiled = jax.jit(step, donate_argnums=0).lower(ring, segment, jnp.int32(0), jax.random.key(0)).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= replay.size_in_bytes(shape)
    assert memory.temp_size_in_bytes < 0.02 * replay.size_in_bytes(shape)
