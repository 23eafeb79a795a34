"""Survival RL: labels, goals and values against exact ones, and what each part of an update changes."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import any_learner
from probes import walk

from homing.agents.normalised import Moments, normalised
from homing.agents.srl import SRL, SRLBatch, SRLConfig, _mean, _occupancy_loss
from homing.agents.survival_batch import labelled
from homing.data import replay
from homing.data.replay import BufferShape
from homing.data.view import EnvRewards, ReplayView
from homing.errors import ConfigError
from homing.networks import NetConfig
from homing.networks.survival_head import Prediction
from homing.types import Obs, Segment, TransitionIndex, UpdateContext

NET = NetConfig(width=8, depth=1, layer_norm=True)
SMALL = SRLConfig(
    horizon=40,
    hazard_bins=12,
    occupancy_bins=8,
    representation_dim=16,
    encoder_net=NET,
    head_net=NET,
    actor_net=NET,
)
EDGES = np.arange(13)  # of bins of one step each


def line_view(last, terminated) -> tuple[ReplayView, TransitionIndex]:
    """One environment whose state is its place on a line, one further at every step."""
    place = np.arange(len(last), dtype=np.float32)[:, None, None]
    segment = Segment(
        obs=Obs(place, place),
        action=10 * place,
        achieved_goal=place + 1,
        reward=place[..., 0],
        discount=1 - np.asarray(terminated, np.float32)[:, None],
        last=np.asarray(last, bool)[:, None],
    )
    buffer, episodes, index = stored(segment)
    distance = lambda achieved, goal: jnp.abs(achieved - goal)[..., 0]
    rewards = EnvRewards(lambda a, g: (distance(a, g) < 0.5).astype(jnp.float32), lambda s: s, distance)
    return ReplayView(buffer, episodes, rewards), index


@jax.jit
def stored(segment):
    length = len(segment.last)
    buffer = replay.insert(replay.empty(BufferShape(1, length, 1, 1, 1, 1)), segment, jnp.int32(0))
    episodes = replay.episode_index(buffer, jnp.int32(1))
    position, env = jnp.arange(length, dtype=jnp.int32), jnp.zeros(length, jnp.int32)
    return buffer, episodes, TransitionIndex(position, env, replay.remaining(buffer, episodes, position, env))


@dataclasses.dataclass(frozen=True)
class Line:
    state_dim: int = 1
    action_dim: int = 1
    goal_dim: int = 1
    threshold: float = 0.5


@pytest.mark.parametrize("true_censoring", [False, True])
def test_labels_tell_falls_cuts_and_arrivals_apart(true_censoring):
    # The first episode falls at step 4, the second is cut at step 9, the third still runs.
    view, index = line_view([0, 0, 0, 1, 0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    agent = SRL(
        dataclasses.replace(SMALL, future_ratio=1.0, current_ratio=0.0, true_censoring=true_censoring), Line()
    )
    batch = jax.jit(lambda: agent.sample(view, index, jax.random.key(0)))()
    reached = np.asarray(batch.first.reached)
    assert reached.all(), "goals of the own future are reached"
    ahead = np.asarray(batch.obs.goal)[:, 0] - np.asarray(batch.obs.state)
    np.testing.assert_array_equal(batch.first.steps, ahead[:, 0])
    np.testing.assert_array_equal(batch.fails, [1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(batch.whole, [1, 1, 1, 0, 1, 1, 1, 1, 0, 0])
    np.testing.assert_array_equal(np.asarray(batch.action)[:, 1], [10, 20, 30, 30, 50, 60, 70, 80, 80, 90])

    class Nowhere(SRL):
        def goals(self, replay, index, key):
            return jnp.full((len(index.position), 1), 100.0)

    never = jax.jit(lambda: Nowhere(agent.config, Line()).sample(view, index, jax.random.key(0)))()
    assert not np.asarray(never.first.reached).any()
    known = [40] * 4 + ([5, 4, 3, 2, 1, 1] if true_censoring else [40] * 6)
    np.testing.assert_array_equal(never.first.steps, known)
    assert np.asarray(never.occupancy).max() == 0


ENTERS, DWELL, CUT, WALKERS = 0.3, 4, 10, 4000


@functools.cache
def stays() -> SRLBatch:
    """Of walkers at the start of an episode that is cut at a random time; they enter the goal and stay there."""
    rng = np.random.default_rng(0)
    there = rng.geometric(ENTERS, WALKERS) <= np.arange(CUT + 1)[:, None]
    inside = there[..., None].astype(np.float32)
    end = rng.integers(1, CUT, WALKERS)
    segment = Segment(
        obs=Obs(inside[:-1], inside[:-1]),
        action=inside[:-1],
        achieved_goal=inside[1:],
        reward=inside[1:, :, 0],
        discount=np.ones((CUT, WALKERS), np.float32),
        last=np.arange(CUT)[:, None] == end,
    )

    @jax.jit
    def sampled(segment):
        buffer = replay.insert(replay.empty(BufferShape(1, CUT, WALKERS, 1, 1, 1)), segment, jnp.int32(0))
        episodes = replay.episode_index(buffer, jnp.int32(1))
        position, env = jnp.zeros(WALKERS, jnp.int32), jnp.arange(WALKERS, dtype=jnp.int32)
        index = TransitionIndex(position, env, replay.remaining(buffer, episodes, position, env))
        distance = lambda achieved, goal: jnp.abs(achieved - goal)[..., 0]
        view = ReplayView(buffer, episodes, EnvRewards(distance, lambda state: state, distance))
        goal = jnp.ones((WALKERS, 1), jnp.float32)
        settings = {"horizon": 2 * CUT, "chunk": 1, "dwell": DWELL, "true_censoring": True}
        return labelled(view, index, goal, (0.5,), EDGES, **settings)

    return jax.tree.map(np.asarray, sampled(segment))


def test_with_a_dwell_a_cut_episode_tells_nothing_of_stays_that_it_could_not_show():
    first = stays().first
    assert first.steps[~first.reached].min() == -1
    for step in range(1, CUT - DWELL):
        at_risk = first.steps >= step
        arrives = first.reached & (first.steps == step)
        assert arrives.sum() / at_risk.sum() == pytest.approx(ENTERS, abs=0.05), step


MOVING = dataclasses.replace(SMALL, future_ratio=1.0, current_ratio=0.0, dwell=4)


def moving_batch(goal_points: int) -> SRLBatch:
    """Of a walker that never rests; its episode of ten steps falls at the end."""
    view, index = line_view([0] * 9 + [1], [0] * 9 + [1])
    agent = SRL(dataclasses.replace(MOVING, goal_points=goal_points), Line())
    return jax.jit(lambda: agent.sample(view, index, jax.random.key(0)))()


def test_who_never_rests_reaches_no_place_to_be_held():
    assert not np.asarray(moving_batch(goal_points=1).first.reached).any()


def test_who_never_rests_reaches_the_sequences_of_its_own_future():
    batch = moving_batch(goal_points=2)
    goals, place = np.asarray(batch.obs.goal)[..., 0], np.arange(10)
    own = place < 10 - 3  # those with a dwell ahead of them
    np.testing.assert_array_equal(goals[own, 1] - goals[own, 0], 3)
    np.testing.assert_array_equal(goals[~own, 1], goals[~own, 0])
    np.testing.assert_array_equal(batch.first.reached, own)
    np.testing.assert_array_equal(np.asarray(batch.first.steps)[own], (goals[:, 0] - place)[own])
    # A dwell does not fit any more before the fall: never, up to the horizon.
    np.testing.assert_array_equal(np.asarray(batch.first.steps)[~own], SMALL.horizon)


def test_the_value_of_a_place_is_that_of_a_sequence_that_stays_there():
    agent = SRL(dataclasses.replace(MOVING, goal_points=3), Line())
    params = any_learner(agent).params
    state, place = np.full((5, 1), 2.0, np.float32), np.arange(5, dtype=np.float32)[:, None]
    action = np.zeros((5, agent.action_size), np.float32)

    @jax.jit
    def both(params):
        (psi,) = agent.nets(params["nets"], psi=np.repeat(place, 3, axis=1))
        (phi,) = agent.nets(params["nets"], phi=np.concatenate([state, action], axis=1))
        sequence = agent._time_value(agent.head(params["head"], phi, psi))
        return agent.value(any_learner(agent).replace(params=params), Obs(state, place), action), sequence

    value, sequence = both(params)
    np.testing.assert_allclose(value, sequence, rtol=1e-5)
    assert np.ptp(value) > 0, "or goals would not matter"


@pytest.mark.parametrize("goal_points", [2, 4])
def test_updates_learn_from_sequences(goal_points):
    agent = SRL(dataclasses.replace(MOVING, goal_points=goal_points), Line())
    draws = jax.jit(lambda: agent.draw(jax.random.key(1), 10))()
    learner = any_learner(agent)
    after, metrics = jax.jit(lambda *given: agent.update(*given, UpdateContext()))(
        learner, moving_batch(goal_points), draws
    )
    assert all(np.isfinite(value) for value in metrics.values())
    assert metrics["reached"] == pytest.approx(0.7)
    kernel = lambda learner: jax.tree.leaves(learner.params["nets"]["psi"])
    assert any(np.any(old != new) for old, new in zip(kernel(learner), kernel(after), strict=True))


def drawn_goals(agent, view, index):
    return np.asarray(jax.jit(lambda index, key: agent.goals(view, index, key))(index, jax.random.key(3)))[
        :, 0
    ]


def test_goals_are_mixed_from_future_present_and_other_transitions():
    view, index = line_view([0] * 10, [0] * 10)
    many = jax.tree.map(lambda x: np.tile(x, 400), index)
    agent = SRL(dataclasses.replace(SMALL, future_ratio=0.5, current_ratio=0.2), Line())
    ahead = drawn_goals(agent, view, many) - many.position
    assert np.mean(ahead == 0) == pytest.approx(0.2 + 0.3 * 0.09, abs=0.03)
    assert np.mean(ahead < 0) == pytest.approx(0.3 * 0.36, abs=0.03)


def test_far_goals_are_spread_over_the_rest_of_the_episode():
    view, index = line_view([0] * 9 + [1], [0] * 10)
    first = jax.tree.map(lambda x: np.repeat(x[:1], 4000), index)
    ratios = {"future_ratio": 0.0, "current_ratio": 0.0, "far_ratio": 1.0}
    agent = SRL(dataclasses.replace(SMALL, **ratios), Line())
    found, counts = np.unique(drawn_goals(agent, view, first), return_counts=True)
    np.testing.assert_array_equal(found, np.arange(1, 11))
    np.testing.assert_allclose(counts / counts.sum(), 0.1, atol=0.03)


def test_goals_of_the_whole_episode_stay_in_it():
    view, index = line_view([0, 0, 0, 1, 0, 0, 0, 0, 1, 0], [0] * 10)
    many = jax.tree.map(lambda x: np.tile(x, 400), index)
    ratios = {"future_ratio": 0.0, "current_ratio": 0.0, "episode_ratio": 1.0}
    agent = SRL(dataclasses.replace(SMALL, **ratios), Line())
    goals = drawn_goals(agent, view, many)
    # What the transitions of each episode achieve: places 1 to 4, 5 to 9, and 10.
    episodes = np.asarray([0] * 4 + [1] * 5 + [2])[many.position]
    for episode, achieved in enumerate(([1, 2, 3, 4], [5, 6, 7, 8, 9], [10])):
        found, counts = np.unique(goals[episodes == episode], return_counts=True)
        np.testing.assert_array_equal(found, achieved)
        np.testing.assert_allclose(counts / counts.sum(), 1 / len(achieved), atol=0.04)


def test_a_chunk_has_the_density_and_target_entropy_of_all_its_actions():
    env = walk(4)
    agent = SRL(dataclasses.replace(SMALL, chunk=3), env.spec)
    assert agent.target_entropy == -0.5 * 3 * env.spec.action_dim

    def act():
        obs = env.reset(jax.random.key(1)).obs
        return agent.act(agent.init(jax.random.key(0)), obs, jax.random.key(2), explore=True)

    assert jax.eval_shape(act).shape == (4, 3 * env.spec.action_dim)


PARTS = ("time_weight", "separation_weight", "occupancy_weight", "survival_weight")


def agent_with(part: str | None) -> SRL:
    """One that has this part alone, or none."""
    return SRL(dataclasses.replace(SMALL, **{name: float(name == part) for name in PARTS}), Line())


@functools.cache
def batch_and_draws() -> tuple:
    """The same for all parts."""
    view, index = line_view([0, 0, 0, 1, 0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    agent = agent_with(None)
    sample = lambda *keys: (agent.sample(view, index, keys[0]), agent.draw(keys[1], len(index.position)))
    return jax.jit(sample)(jax.random.key(0), jax.random.key(1))


@functools.cache
def metrics_of_an_update(part: str | None) -> dict:
    """Of an agent that has this part alone, or none."""
    agent = agent_with(part)
    update = jax.jit(lambda *given: agent.update(*given, UpdateContext())[1])
    return update(any_learner(agent), *batch_and_draws())


@pytest.mark.parametrize("part", PARTS)
def test_each_part_can_be_switched_on_and_off(part):
    on, off = metrics_of_an_update(part), metrics_of_an_update(None)
    assert all(np.isfinite(value) for value in (*on.values(), *off.values()))
    assert set(on) - set(off) == {part.replace("weight", "loss")}


def test_normalised_goals_are_kept_apart_by_the_distance_in_the_environment():
    """With all representations in one place, the loss is the hinge's width, if any goals are to be kept apart."""
    agent = agent_with("separation_weight")
    wrapped: Any = normalised(agent)
    of_zeros = lambda made: jax.tree.map(
        lambda x: np.zeros(x.shape, x.dtype), jax.eval_shape(made.init, jax.random.key(0))
    )
    wide = Moments(
        np.zeros(1, np.float32), np.full(1, 1e4, np.float32), np.int32(1)
    )  # goals a hundredth apart
    learner = of_zeros(wrapped).replace(state=wide, goal=wide)

    @jax.jit
    def losses(*given):
        made = ((agent, of_zeros(agent)), (wrapped, learner))
        return [each.update(state, *given, UpdateContext())[1]["separation_loss"] for each, state in made]

    plain, seen = losses(*batch_and_draws())
    assert plain > 0.03
    assert float(seen) == pytest.approx(float(plain))


def test_a_survival_critic_that_knows_the_way_prefers_the_nearer_goal():
    env = walk(4)
    agent = SRL(SMALL, env.spec)
    bins = len(agent.edges) - 1
    hazard = np.repeat(np.asarray([[0.0], [-4.0]], np.float32), bins, axis=1)
    prediction = Prediction(np.full(2, -5.0, np.float32), hazard, np.zeros((2, 1), np.float32))
    near, far = np.asarray(jax.jit(agent._time_value)(prediction))
    assert -40 < far < near < 0


def test_unobserved_time_bins_do_not_count():
    logits = np.asarray([[1.0, 5.0], [1.0, 5.0]], np.float32)
    prediction = Prediction(np.zeros(2, np.float32), np.zeros((2, 1), np.float32), logits)
    shapes = {
        "obs": None,
        "goal": None,
        "action": None,
        "first": None,
        "fails": None,
        "steps_to_termination": None,
    }
    batch = SRLBatch(
        **shapes,
        whole=np.ones(2, np.float32),
        occupancy=np.ones((2, 2), np.float32),
        observed=np.asarray([[True, False]] * 2),
    )
    loss = jax.jit(_occupancy_loss)(prediction, batch)
    assert float(loss) == pytest.approx(np.log1p(np.exp(-1.0)), rel=1e-5)
    assert float(jax.jit(_mean)(np.ones(3, np.float32), np.zeros(3, np.float32))) == 0


def test_ratios_that_do_not_add_up_are_refused():
    with pytest.raises(ConfigError, match="together they are more than 1"):
        SRLConfig(future_ratio=0.8, current_ratio=0.3)
    with pytest.raises(ConfigError, match=r"episode_ratio 0\.2"):
        SRLConfig(future_ratio=0.8, current_ratio=0.05, episode_ratio=0.2)


def test_a_dwell_that_no_episode_can_show_is_refused():
    with pytest.raises(ConfigError, match=r"dwell 41 .* horizon 40"):
        dataclasses.replace(SMALL, dwell=41)
    dataclasses.replace(SMALL, dwell=40)


def test_more_points_than_steps_of_a_dwell_are_refused():
    with pytest.raises(ConfigError, match=r"goal_points 5 do not fit into a dwell of 4 .* raise dwell to 5"):
        dataclasses.replace(SMALL, dwell=4, goal_points=5)


def line_to_the_end() -> tuple[ReplayView, TransitionIndex]:
    """The line with one commanded goal, its end."""
    view, index = line_view([0] * 9 + [1], [0] * 10)
    return dataclasses.replace(
        view, buffer=view.buffer.replace(goal=jnp.full_like(view.buffer.goal, 10))
    ), index


def test_waypoints_judge_a_policy_that_is_given_a_goal_beyond_them():
    view, index = line_to_the_end()
    first = jax.tree.map(lambda x: np.repeat(x[:1], 4000), index)
    draw = lambda **settings: jax.jit(
        lambda index, key: SRL(dataclasses.replace(SMALL, **settings), Line()).sample(view, index, key)
    )(first, jax.random.key(5))
    plain, batch = draw(), draw(waypoint_ratio=0.5, waypoint_gamma=0.5)
    assert plain.way is None
    np.testing.assert_array_equal(plain.goal, batch.goal, err_msg="goals of the critic are the same")
    given, judged = np.asarray(batch.way.goal)[:, 0, 0], np.asarray(batch.way.goal)[:, 1, 0]
    own = np.asarray(batch.goal)[:, 0, 0]
    assert np.mean((given == own) & (judged == own)) == pytest.approx(0.5, abs=0.1)
    others = (given != own) | (judged != own)
    assert np.all(given[others] >= judged[others])
    assert np.mean(judged[others]) < np.mean(given[others]) - 2


def test_the_policy_learns_from_waypoints_and_the_critic_does_not():
    view, index = line_to_the_end()
    learner = any_learner(SRL(SMALL, Line()))

    def updated(ratio):
        agent = SRL(dataclasses.replace(SMALL, waypoint_ratio=ratio), Line())

        def update(learner, k_batch, k_noise):
            batch, noise = agent.sample(view, index, k_batch), agent.draw(k_noise, len(index.position))
            fit, metrics = agent.update(learner, batch, noise, UpdateContext())
            return fit.params, metrics

        return jax.jit(update)(learner, jax.random.key(1), jax.random.key(2))

    (plain, before), (ways, after) = updated(0.0), updated(1.0)
    same = jax.tree.map(lambda a, b: bool(np.array_equal(a, b)), plain, ways)
    assert all(jax.tree.leaves([same["head"], same["nets"]["phi"], same["nets"]["psi"]]))
    assert not all(jax.tree.leaves(same["nets"]["actor"]))
    assert set(before) == set(after)
