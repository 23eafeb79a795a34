"""The replay buffer against a plain list of transitions, its sampling, its size and its memory traffic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from homing.data import replay
from homing.data.relabel import future
from homing.data.replay import BufferShape
from homing.errors import UnknownNameError
from homing.types import Obs, Segment, TransitionIndex

SLOTS, LENGTH, NUM_ENVS = 4, 5, 3
SHAPE = BufferShape(SLOTS, LENGTH, NUM_ENVS, state_dim=2, action_dim=1, goal_dim=2)


def segments(count, seed=0, end_probability=0.13):
    """Segments of numbered transitions; states and goals name (time, environment), `last` is random."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        time = np.arange(k * LENGTH, (k + 1) * LENGTH)[:, None] + np.zeros((1, NUM_ENVS))
        env = np.zeros((LENGTH, 1)) + np.arange(NUM_ENVS)
        state = np.stack([time, env], -1).astype(np.float32)
        made.append(
            Segment(
                obs=Obs(state=state, goal=-state),
                action=state[..., :1] / 100,
                achieved_goal=state + 0.5,
                reward=state[..., 0],
                discount=(rng.random((LENGTH, NUM_ENVS)) < 0.5).astype(np.float32),
                last=rng.random((LENGTH, NUM_ENVS)) < end_probability,
            )
        )
    return made


empty = jax.jit(replay.empty, static_argnums=0)
insert, episode_index, remaining = map(jax.jit, (replay.insert, replay.episode_index, replay.remaining))


def filled(count, **kwargs):
    buffer, stored = empty(SHAPE), segments(count, **kwargs)
    for k, segment in enumerate(stored):
        buffer = insert(buffer, segment, np.int32(k))
    return buffer, episode_index(buffer, np.int32(count)), stored


def everywhere(episodes):
    """How many transitions are stored; positions and environments of all of them, flat.

    Of an unfilled buffer some stand there again: of as many rows for all buffers, one program reads them all.
    """
    index = np.indices((int(episodes.filled), NUM_ENVS), np.int32)
    return index[0].size, *(np.resize(x, SLOTS * LENGTH * NUM_ENVS) for x in index)


@jax.jit
def contents(buffer, episodes, position, env):
    fields = (buffer.state, buffer.goal, buffer.action, buffer.achieved_goal, buffer.reward, buffer.discount)
    return [replay.read(field, episodes, position, env) for field in fields]


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9, 11])
def test_contents_in_time_order_are_the_newest_segments(count):
    buffer, episodes, stored = filled(count)
    kept = stored[-SLOTS:]
    rows, position, env = everywhere(episodes)
    assert int(episodes.filled) == LENGTH * len(kept)
    state, goal, action, achieved, reward, discount = contents(buffer, episodes, position, env)
    for found, parts in [
        (state, [s.obs.state for s in kept]),
        (goal, [s.obs.goal for s in kept]),
        (action, [s.action for s in kept]),
        (achieved, [s.achieved_goal for s in kept]),
        (reward, [s.reward for s in kept]),
        (discount, [s.discount for s in kept]),
    ]:
        expected = np.concatenate(parts)
        np.testing.assert_array_equal(np.asarray(found)[:rows], expected.reshape(-1, *expected.shape[2:]))


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9, 11, 12])
@pytest.mark.parametrize("end_probability", [0.0, 0.05, 0.3, 1.0])
def test_episodes_end_where_a_brute_force_search_finds_it(count, end_probability):
    buffer, episodes, stored = filled(count, seed=count, end_probability=end_probability)
    last = np.concatenate([s.last for s in stored[-SLOTS:]])
    rows, position, env = everywhere(episodes)
    found = np.asarray(remaining(buffer, episodes, position, env))
    for p, n, left in list(zip(position.tolist(), env.tolist(), found.tolist(), strict=True))[:rows]:
        end = p
        while not last[end, n] and end < len(last) - 1:
            end += 1
        assert left == end - p + 1


def test_future_goals_never_leave_the_episode():
    buffer, episodes, stored = filled(11, seed=3)
    last = np.concatenate([s.last for s in stored[-SLOTS:]])
    episode = np.concatenate([np.zeros((1, NUM_ENVS), int), np.cumsum(last, axis=0)[:-1]])
    oldest_time = 11 * LENGTH - len(last)
    _, position, env = everywhere(episodes)
    index = TransitionIndex(position, env, remaining(buffer, episodes, position, env))
    draw = jax.jit(jax.vmap(lambda key: future(buffer, episodes, index, key, 0.9)))
    crossed_slot = False
    for goal in np.asarray(draw(jax.random.split(jax.random.key(0), 200))) - 0.5:
        at = goal[:, 0].astype(int) - oldest_time
        np.testing.assert_array_equal(goal[:, 1], env)
        assert np.all(at >= position)
        np.testing.assert_array_equal(episode[at, env], episode[position, env])
        crossed_slot |= bool(np.any(at // LENGTH > position // LENGTH))
    assert crossed_slot, "no goal beyond a collection border: the test proves nothing"


sample = jax.jit(replay.sample, static_argnums=(3, 4))


@pytest.mark.parametrize("count", [2, 11])
def test_sampling_is_uniform_up_to_the_oldest_and_newest_row(count):
    buffer, episodes, _ = filled(count)
    index = sample(buffer, episodes, jax.random.key(1), 120_000)
    cells = np.bincount(np.asarray(index.position) * NUM_ENVS + np.asarray(index.env))
    assert len(cells) == int(episodes.filled) * NUM_ENVS
    assert stats.chisquare(cells).pvalue > 1e-3


def test_of_the_smallest_fraction_the_newest_transitions_are_left():
    buffer, episodes, _ = filled(9)
    index = sample(buffer, episodes, jax.random.key(1), 100, 1e-8)
    assert set(np.asarray(index.position).tolist()) == {int(episodes.filled) - 1}


@pytest.mark.parametrize(("newest", "oldest"), [(0.5, 10), (0.33, 13), (0.1, 18)])
def test_the_newest_share_alone_is_drawn_from(newest, oldest):
    buffer, episodes, _ = filled(9)
    index = sample(buffer, episodes, jax.random.key(1), 30_000, newest)
    cells = np.bincount(np.asarray(index.position))
    assert not cells[:oldest].any()
    assert len(cells) == int(episodes.filled) == 20
    assert stats.chisquare(cells[oldest:]).pvalue > 1e-3


@pytest.mark.parametrize(("replay_dtype", "itemsize"), [("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_storage_dtype_and_size(replay_dtype, itemsize):
    shape = BufferShape(2, 3, 4, state_dim=5, action_dim=2, goal_dim=3, replay_dtype=replay_dtype)
    buffer = empty(shape)
    assert buffer.state.dtype == replay_dtype
    assert buffer.achieved_goal.dtype == jnp.float32
    assert replay.size_in_bytes(shape) == 24 * ((5 + 2) * itemsize + (3 + 3 + 1 + 1) * 4 + 2)
    assert replay.size_in_bytes(shape) == sum(leaf.nbytes for leaf in jax.tree.leaves(buffer))


def test_narrow_storage_reads_back_float32_without_infinities():
    buffer = empty(BufferShape(SLOTS, LENGTH, NUM_ENVS, 2, 1, 2, replay_dtype="float16"))
    segment = segments(1)[0]
    segment = segment.replace(obs=segment.obs.replace(state=segment.obs.state + np.float32(1e6)))
    buffer = insert(buffer, segment, np.int32(0))
    episodes = episode_index(buffer, np.int32(1))
    state = contents(buffer, episodes, *everywhere(episodes)[1:])[0]
    assert state.dtype == jnp.float32
    np.testing.assert_array_equal(state, 65504.0)


def test_unknown_storage_is_answered_with_the_known():
    with pytest.raises(UnknownNameError, match="float32"):
        BufferShape(1, 1, 1, 1, 1, 1, replay_dtype="float3")


def test_insertion_and_sampling_do_not_copy_the_ring():
    shape = BufferShape(slots=200, segment_length=10, num_envs=64, state_dim=20, action_dim=4, goal_dim=2)
    length, num_envs = shape.segment_length, shape.num_envs

    def step(buffer, segment, collected, key):
        buffer = replay.insert(buffer, segment, collected)
        episodes = replay.episode_index(buffer, collected + 1)
        index = replay.sample(buffer, episodes, key, 256)
        return buffer, replay.read(buffer.state, episodes, index.position, index.env)

    floats = lambda *dims: jax.ShapeDtypeStruct((length, num_envs, *dims), jnp.float32)
    segment = Segment(
        obs=Obs(state=floats(20), goal=floats(2)),
        action=floats(4),
        achieved_goal=floats(2),
        reward=floats(),
        discount=floats(),
        last=jax.ShapeDtypeStruct((length, num_envs), bool),
    )
    buffer = jax.eval_shape(lambda: replay.empty(shape))
    compiled = (
        jax.jit(step, donate_argnums=0).lower(buffer, segment, jnp.int32(0), jax.random.key(0)).compile()
    )
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= replay.size_in_bytes(shape)
    assert memory.temp_size_in_bytes < 0.02 * replay.size_in_bytes(shape)
