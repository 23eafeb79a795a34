"""What agents read of replay, each against a plain loop over the stored transitions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.data import replay
from homing.data.replay import BufferShape
from homing.data.view import EnvRewards, ReplayView
from homing.errors import UnknownNameError
from homing.types import Obs, Relabel, Segment, TransitionIndex

SLOTS, LENGTH, ENVS = 4, 5, 3
RADIUS, HORIZON = 0.6, 7


def distance(achieved, goal):
    return jnp.linalg.norm(achieved - goal, axis=-1)


def shaping(state, achieved, goal):
    return 0.3 * state[..., 0] - distance(achieved, goal)


REWARDS = EnvRewards(
    reward=lambda achieved, goal: (distance(achieved, goal) < RADIUS).astype(jnp.float32),
    achieved=lambda state: state[..., :2],
    distance=distance,
)
DENSE = EnvRewards(REWARDS.reward, REWARDS.achieved, distance, shaping)


insert = jax.jit(replay.insert)


@jax.jit
def indexed(buffer, collected, position, env):
    episodes = replay.episode_index(buffer, collected)
    return episodes, TransitionIndex(position, env, replay.remaining(buffer, episodes, position, env))


@functools.partial(jax.jit, static_argnums=(0, 1))
def read(what, rewards, buffer, episodes, index, goals):
    return what(ReplayView(buffer, episodes, rewards), index, goals)


class Stored:
    """A buffer, and the same transitions as plain arrays [T, N, ...] in time order."""

    def __init__(self, count, seed, rewards=REWARDS):
        rng = np.random.default_rng(seed)
        time = count * LENGTH
        shape = lambda *dims: rng.normal(size=(time, ENVS, *dims)).astype(np.float32)
        self.state, self.action, self.goal, self.reward = shape(3), shape(2), shape(2), shape()
        self.achieved, self.rewards = shape(2), rewards
        ended = rng.random((time, ENVS)) < 0.15
        fallen = ended & (rng.random((time, ENVS)) < 0.5)
        self.last, self.discount = ended, 1 - fallen.astype(np.float32)
        buffer = replay.empty(BufferShape(SLOTS, LENGTH, ENVS, 3, 2, 2))
        for k in range(count):
            part = slice(k * LENGTH, (k + 1) * LENGTH)
            segment = Segment(
                obs=Obs(state=self.state[part], goal=self.goal[part]),
                action=self.action[part],
                achieved_goal=self.achieved[part],
                reward=self.reward[part],
                discount=self.discount[part],
                last=self.last[part],
            )
            buffer = insert(buffer, segment, np.int32(k))
        for name in ("state", "action", "goal", "reward", "achieved", "last", "discount"):
            setattr(self, name, getattr(self, name)[-SLOTS * LENGTH :])
        self.steps = len(self.state)
        # Few transitions are repeated: of as many rows for all buffers, one program reads them all.
        self.rows, rows = self.steps * ENVS, SLOTS * LENGTH * ENVS
        position, env = (np.resize(x.astype(np.int32), rows) for x in np.indices((self.steps, ENVS)))
        self.buffer, (self.episodes, self.index) = buffer, indexed(buffer, np.int32(count), position, env)
        self.goals = np.resize(0.7 * rng.normal(size=(self.rows, 2)).astype(np.float32), (rows, 2))

    def read(self, what):
        """What a function of (view, index, goals) finds for all transitions."""
        found = read(what, self.rewards, self.buffer, self.episodes, self.index, self.goals)
        return jax.tree.map(lambda x: np.asarray(x)[: self.rows], found)

    def end(self, t, n):
        """The last stored step of the episode that (t, n) is in."""
        while not self.last[t, n] and t < self.steps - 1:
            t += 1
        return t

    def each(self):
        """(t, n, goal, end of the episode) of all transitions, in the order of `index`."""
        for i, (t, n) in enumerate((t, n) for t in range(self.steps) for n in range(ENVS)):
            yield t, n, self.goals[i], self.end(t, n)

    def distances(self, t, n, goal, end):
        """0, 1, … HORIZON steps ahead, infinite past the end."""
        known = [np.linalg.norm(self.state[t, n, :2] - goal)]
        known += [np.linalg.norm(self.achieved[i, n] - goal) for i in range(t, end + 1)]
        return (known + [np.inf] * (HORIZON + 1))[: HORIZON + 1]


# One slot, a buffer just full, and two that have wrapped.
@pytest.fixture(scope="module", params=[1, 4, 6, 11])
def stored(request):
    return Stored(request.param, seed=10 + request.param)


def goal_distances(view, index, goals):
    return view.goal_distances(index, goals, HORIZON)


def test_goal_distances_equal_a_loop_over_the_episode(stored):
    found = stored.read(goal_distances)
    wanted = np.asarray([stored.distances(*each) for each in stored.each()])
    assert found.shape == wanted.shape == (stored.steps * ENVS, HORIZON + 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert np.isinf(wanted).any() and np.isfinite(wanted).any()


RADII = (RADIUS, RADIUS / 2, 2 * RADIUS)


def nearness(view, index, goals):
    return view.nearness(index, goals, RADII, HORIZON)


def test_nearness_counts_the_radii_that_contain_each_step_up_to_the_horizon(stored):
    found = stored.read(nearness)
    wanted = np.asarray([stored.distances(*each) for each in stored.each()])
    assert found.dtype == np.int8 and found.shape[1] % 128 == 0
    counts = np.sum(wanted[..., None] <= np.asarray(RADII, np.float32), axis=-1)
    np.testing.assert_array_equal(found[:, : HORIZON + 1], counts)
    assert not found[:, HORIZON + 1 :].any() and {0, 1, 2, 3} == set(counts.ravel())


@functools.cache
def first_reach(radius, dwell):
    return lambda view, index, goals: view.first_reach(index, goals, radius, HORIZON, dwell)


@pytest.mark.parametrize("dwell", [1, 2, 3, 6])
def test_first_reach_equals_a_loop_over_the_episode(stored, dwell):
    radius = RADIUS if dwell == 1 else 1.5
    found = stored.read(first_reach(radius, dwell))
    kinds = set()
    for i, (t, n, goal, end) in enumerate(stored.each()):
        near = [d <= radius for d in stored.distances(t, n, goal, end)]
        # Held: near at so many consecutive steps, all of them stored and within the horizon.
        held = [k for k in range(len(near)) if len(near[k : k + dwell]) == dwell and all(near[k : k + dwell])]
        remaining = end - t + 1
        falls = stored.discount[end, n] == 0
        assert bool(found.reached[i]) == bool(held)
        assert int(found.steps[i]) == (held[0] if held else min(remaining, HORIZON))
        assert bool(found.terminated[i]) == (not held and falls and remaining <= HORIZON)
        kinds.add((bool(held), bool(found.terminated[i])))
        kinds.add(("at once", bool(held) and held[0] == 0))
    if stored.steps > LENGTH and dwell < 6:
        assert kinds == {(True, False), (False, True), (False, False), ("at once", True), ("at once", False)}


PATH = (0, 1, 3)
PATH_RATIOS = {"future": 0.4, "uniform_future": 0.2, "current": 0.2}


@functools.cache
def sequences(path):
    """Goals along a path, drawn for every transition, and when episodes first follow them."""

    def found(view, index, goals):
        del goals
        drawn = view.mixed_goals(PATH_RATIOS, "random", index, jax.random.key(5), 0.8, path)
        return drawn, view.first_match(index, drawn, path, 1.0, HORIZON)

    return found


def achieved_ahead(stored, t, n, end):
    """What the episode achieves 0, 1, … steps ahead."""
    return np.concatenate([stored.state[t : t + 1, n, :2], stored.achieved[t : end + 1, n]])


def test_sequences_of_goals_are_what_the_own_episode_achieved_or_one_place(stored):
    drawn, _ = stored.read(sequences(PATH))
    offsets = set()
    for i, (t, n, _, end) in enumerate(stored.each()):
        ahead = achieved_ahead(stored, t, n, end)
        starts = [k for k in range(len(ahead) - PATH[-1]) if (drawn[i] == ahead[k + np.asarray(PATH)]).all()]
        repeated = (drawn[i] == drawn[i][0]).all()
        assert bool(starts) != repeated
        if repeated:
            assert (stored.achieved.reshape(-1, 2) == drawn[i][0]).all(axis=1).any()
        offsets |= set(starts)
    assert {0, 1, 2} <= offsets if stored.steps > LENGTH else offsets


def test_the_first_goals_of_sequences_are_those_without_a_path_where_the_episode_is_long_enough(stored):
    """The same keys, at equal ratios: only the room for the rest of the path is taken off."""
    plain = stored.read(lambda view, index, _: view.goals(Relabel("commanded"), index, jax.random.key(0)))
    one = lambda path: (
        lambda view, index, _: view.mixed_goals({}, "commanded", index, jax.random.key(0), 0.9, path)
    )
    np.testing.assert_array_equal(stored.read(one((0,))), plain)
    np.testing.assert_array_equal(stored.read(one(PATH)), np.repeat(plain[:, None], len(PATH), axis=1))


def test_sequences_are_first_followed_where_a_loop_finds_all_their_goals(stored):
    drawn, first = stored.read(sequences(PATH))
    kinds = set()
    for i, (t, n, _, end) in enumerate(stored.each()):
        ahead = achieved_ahead(stored, t, n, end)
        near = lambda k, ahead=ahead, i=i: all(
            np.linalg.norm(ahead[k + step] - goal) <= 1.0 for step, goal in zip(PATH, drawn[i], strict=True)
        )
        follows = [k for k in range(min(len(ahead) - PATH[-1], HORIZON + 1)) if near(k)]
        remaining = end - t + 1
        assert bool(first.reached[i]) == bool(follows)
        assert int(first.steps[i]) == (follows[0] if follows else min(remaining, HORIZON))
        falls = stored.discount[end, n] == 0
        assert bool(first.terminated[i]) == (not follows and falls and remaining <= HORIZON)
        kinds.add((bool(follows), bool(first.terminated[i])))
    if stored.steps > LENGTH:
        assert kinds == {(True, False), (False, True), (False, False)}


def states_actions_and_ends(view, index, goals):
    del goals
    ends = view.whole(index, 3), view.terminates(index), view.steps_to_termination(index)
    return view.states(index, 2), view.actions(index, 3), view.achieved_now(index), ends


def test_states_actions_and_ends_equal_a_loop_over_the_episode(stored):
    later, actions, now, (whole, terminates, left) = stored.read(states_actions_and_ends)
    for i, (t, n, _, end) in enumerate(stored.each()):
        np.testing.assert_array_equal(later[i], stored.state[min(t + 2, end), n])
        np.testing.assert_array_equal(
            actions[i], np.concatenate([stored.action[min(t + k, end), n] for k in range(3)])
        )
        np.testing.assert_array_equal(now[i], stored.state[t, n, :2])
        falls = stored.discount[end, n] == 0
        assert bool(whole[i]) == (end - t + 1 >= 3)
        assert bool(terminates[i]) == falls
        assert float(left[i]) == (end - t + 1 if falls else np.inf)


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("rewards", [REWARDS, DENSE], ids=["sparse", "dense"])
def test_batches_of_action_chunks_equal_a_loop_over_the_chunk(rewards, chunk):
    stored, gamma = Stored(11, seed=5, rewards=rewards), 0.9
    batch = stored.read(lambda view, index, goals: view.batch(index, goals, chunk, gamma))
    weights = set()
    for i, (t, n, goal, end) in enumerate(stored.each()):
        steps = range(t, min(t + chunk, end + 1))  # of the chunk, within the episode
        falls = any(stored.discount[k, n] == 0 for k in steps)
        reward = sum(gamma ** (k - t) * one_reward(stored, rewards, k, n, goal) for k in steps)
        assert float(batch.reward[i]) == pytest.approx(reward, abs=1e-5)
        assert float(batch.discount[i]) == pytest.approx(0.0 if falls else gamma ** (chunk - 1))
        # A target needs the state after the whole chunk, unless the episode terminated in it.
        assert float(batch.weight[i]) == float(falls or t + chunk <= end)
        np.testing.assert_array_equal(
            batch.action[i], np.concatenate([stored.action[min(t + k, end), n] for k in range(chunk)])
        )
        np.testing.assert_array_equal(batch.obs.state[i], stored.state[t, n])
        np.testing.assert_array_equal(batch.obs.goal[i], goal)
        np.testing.assert_array_equal(batch.next_obs.goal[i], goal)
        if t + chunk <= end:
            np.testing.assert_array_equal(batch.next_obs.state[i], stored.state[t + chunk, n])
        weights.add((float(batch.weight[i]), falls))
    assert weights == {(1.0, False), (1.0, True), (0.0, False)}


def one_reward(stored, rewards, t, n, goal):
    achieved, state = stored.achieved[t, n], stored.state[t, n]
    if rewards.shaping is None:
        return float(np.linalg.norm(achieved - goal) < RADIUS)
    shaped = lambda goal: 0.3 * state[0] - np.linalg.norm(achieved - goal)
    return stored.reward[t, n] - shaped(stored.goal[t, n]) + shaped(goal)


def test_an_unknown_goal_sampler_is_answered_with_the_known(stored):
    with pytest.raises(UnknownNameError, match="future"):
        stored.read(lambda view, index, goals: view.goals(Relabel("futur"), index, jax.random.key(0)))


def test_chunks_near_an_end_are_moved_back_to_the_last_whole_one(stored):
    chunk, moved = 3, 0
    found = stored.read(lambda view, index, goals: view.with_whole_chunks(index, 3))
    for i, (t, n, _, end) in enumerate(stored.each()):
        start = next(k for k in range(t + 1) if stored.end(k, n) == end)
        wanted = min(t, max(end - chunk + 1, start)) if end - start + 1 >= chunk else t
        assert (int(found.position[i]), int(found.env[i])) == (wanted, n)
        assert int(found.remaining[i]) == end - wanted + 1
        moved += wanted != t
    assert moved, "some episode ends, or the test proves nothing"


@pytest.mark.parametrize("ratios", [(0.0, 1.0), (0.3, 0.6)])
def test_goals_do_not_depend_on_whether_a_ratio_is_known_while_tracing(stored, ratios):
    view, key = ReplayView(stored.buffer, stored.episodes, REWARDS), jax.random.key(3)

    @jax.jit
    def relabelled(random_ratio, ratio):
        return view.goals(Relabel("future", ratio, random_ratio), stored.index, key)

    @jax.jit
    def mixed(future, far):
        laws = {"future": future, "uniform_future": far, "current": 0.2}
        return view.mixed_goals(laws, "random", stored.index, key)

    @jax.jit
    def paths(future, whole):
        laws = {"future": future, "current": 0.2, "episode": whole}
        return view.mixed_goals(laws, "random", stored.index, key, path=PATH)

    for drawn, values in ((relabelled, ratios), (mixed, (0.5, 0.0)), (paths, (0.5, 0.0))):
        with jax.debug_key_reuse(False):
            plain = jax.jit(lambda drawn=drawn, values=values: drawn.__wrapped__(*values))()
            np.testing.assert_array_equal(plain, drawn(*map(np.float32, values)))


def test_waypoints_lie_on_the_way_to_a_goal_of_the_same_command():
    """A walker achieves 1, 2, … 10; at the sixth step another goal is commanded."""
    steps, commanded = 10, np.float32([[5.0]] * 5 + [[10.0]] * 5)[:, None]
    achieved = np.arange(1, steps + 1, dtype=np.float32)[:, None, None]
    ended = np.arange(steps)[:, None] == steps - 1
    segment = Segment(
        obs=Obs(state=achieved - 1, goal=commanded),
        action=achieved,
        achieved_goal=achieved,
        reward=np.zeros((steps, 1), np.float32),
        discount=np.ones((steps, 1), np.float32),
        last=ended,
    )
    stored = replay.recorded(segment, BufferShape(1, steps, 1, 1, 1, 1), steps)
    position = np.repeat(np.arange(steps, dtype=np.int32), 500)

    @jax.jit
    def drawn(position, key):
        env = jnp.zeros_like(position)
        remaining = replay.remaining(stored.buffer, stored.episodes, position, env)
        index = TransitionIndex(position, env, remaining)
        return ReplayView(stored.buffer, stored.episodes, REWARDS).waypoints(index, key, 0.8, RADIUS)

    far, near, on_the_way = (np.asarray(x).reshape(steps, -1) for x in drawn(position, jax.random.key(0)))
    for row in range(steps):
        until = 5 if row < 5 else 10  # where the command ends
        apart = (near[row] > row) & (far[row] > near[row])  # by one step, which is farther than the radius
        np.testing.assert_array_equal(on_the_way[row], (near[row] <= until) & apart)
        assert set(near[row]) == set(range(row + 1, steps + 1)), "by a geometric law to the episode's end"
        on = on_the_way[row]
        # Goals beyond the end of the command are the commanded one.
        assert set(far[row][on]) == set(range(row + 2, until + 1))
    assert np.mean(far[0] == 5) > 0.5 > np.mean(far[5] == 10)
