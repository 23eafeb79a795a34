"""PPO: advantages against a plain loop, its loss by hand, and how rollouts are split into minibatches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agent_helpers import SMALL, any_learner
from probes import Probe, walk

from homing.agents import OnPolicyAgent
from homing.agents.ppo import PPO, PPOConfig, Samples, advantages, clipped_loss, limited, normalised
from homing.config.onpolicy import OnPolicyConfig, OnPolicyPlan
from homing.config.plan import Sizes
from homing.errors import ConfigError
from homing.training.onpolicy import OnPolicy
from homing.types import Obs, Rollout


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # These tests compare draws from the same key.
    with jax.debug_key_reuse(False):
        yield


def agent(**settings):
    return PPO(
        PPOConfig(**({"actor_net": SMALL, "value_net": SMALL, "minibatches": 3} | settings)), walk().spec
    )


LENGTH, NUM_ENVS = 20, 6  # of all rollouts, for the same programs


def some_rollout(ppo, learner):
    rng = np.random.default_rng(0)
    normal = lambda *shape: rng.normal(size=(LENGTH, NUM_ENVS, *shape)).astype(np.float32)
    obs, after = (Obs(state=normal(2), goal=normal(2)) for _ in range(2))
    fallen, last = rng.random((2, LENGTH, NUM_ENVS)) < 0.3
    return Rollout(
        obs=obs,
        choice=jax.jit(ppo.choose)(learner, obs, jax.random.key(5)),
        next_obs=after,
        achieved_goal=normal(2),
        reward=normal(),
        discount=(~fallen).astype(np.float32),
        last=fallen | last,
    )


def test_advantages_equal_a_plain_loop():
    rng = np.random.default_rng(1)
    reward, now, after = rng.normal(size=(3, 7, 5)).astype(np.float32)
    fallen = rng.random((7, 5)) < 0.2
    last = fallen | (rng.random((7, 5)) < 0.2)
    wanted = np.zeros((7, 5))
    for n in range(5):
        later = 0.0
        for t in reversed(range(7)):
            delta = reward[t, n] + (0 if fallen[t, n] else 0.9 * after[t, n]) - now[t, n]
            later = delta + (0 if last[t, n] else 0.9 * 0.8 * later)
            wanted[t, n] = later
    given = (reward, now, after, 1 - fallen.astype(np.float32), last)
    made = jax.jit(advantages, static_argnums=(5, 6))(*given, 0.9, 0.8)
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-5)


def test_a_time_limit_is_worth_its_true_last_state_and_a_fall_nothing():
    """Environments of one step that end: fallen, cut off, and the same with a worthless last state."""
    after = np.float32([[10.0, 10.0, 0.0]])
    made = jax.jit(advantages, static_argnums=(5, 6))(
        np.ones((1, 3), np.float32),
        np.zeros((1, 3), np.float32),
        after,
        np.float32([[0.0, 1.0, 1.0]]),
        np.ones((1, 3), bool),
        0.9,
        0.95,
    )
    np.testing.assert_allclose(made, [[1, 10, 1]])


def test_the_clipped_loss_by_hand():
    ratio, advantage = np.asarray([1.0, 2.0, 2.0, 0.5, 0.5]), np.asarray([3.0, 1.0, -1.0, 1.0, -1.0])
    wanted = -np.mean([3.0, 1.3, -2.0, 0.5, -0.7])
    made = jax.jit(clipped_loss, static_argnums=2)(np.float32(np.log(ratio)), np.float32(advantage), 0.3)
    assert float(made) == pytest.approx(wanted, rel=1e-5)


def test_no_ratio_is_so_large_that_its_gradient_is_lost():
    """A bad choice became e^200 times as probable; the gradients of the others stay what they are."""
    log_ratio, advantage = np.float32([200.0, 0.1, -200.0]), np.float32([-1.0, 1.0, 1.0])
    slope = jax.jit(jax.value_and_grad(lambda x: clipped_loss(limited(1.0, x), advantage, 0.3)))
    loss, grads = slope(log_ratio)
    assert np.isfinite(loss)
    np.testing.assert_allclose(grads, [0, -np.exp(0.1) / 3, 0], atol=1e-6)


def test_long_gradients_are_cut_and_short_ones_are_not():
    slope = jax.jit(jax.grad(lambda x, scale: scale * jnp.sum(limited(1.0, x) * np.float32([3.0, 4.0]))))
    np.testing.assert_allclose(slope(np.ones(2, np.float32), np.float32(1e6)), [0.6, 0.8], rtol=1e-5)
    np.testing.assert_allclose(slope(np.ones(2, np.float32), np.float32(0.1)), [0.3, 0.4], rtol=1e-5)


def test_normalised_advantages():
    x = np.asarray(jax.jit(normalised)(np.random.default_rng(0).normal(3, 5, (20, 4)).astype(np.float32)))
    assert (x.mean(), x.std()) == pytest.approx((0, 1), abs=1e-5)


@pytest.fixture(scope="module")
def learned():
    ppo = agent(epochs=2, gamma=0.9, gae_lambda=0.8, value_weight=0.5, entropy_weight=0.01)
    learner = any_learner(ppo)
    return ppo, learner, some_rollout(ppo, learner)


@pytest.fixture(scope="module")
def samples_of(learned):
    return jax.jit(learned[0]._samples)


@pytest.fixture(scope="module")
def learn(learned):
    return jax.jit(learned[0].learn)


def test_before_any_update_choices_are_as_probable_as_they_were(learned, samples_of):
    """The loss is then −mean A of normalised advantages, which is 0, and nothing is clipped."""
    ppo, learner, rollout = learned
    samples = samples_of(learner.params, rollout)
    _, metrics = jax.jit(ppo._loss)(learner.params, samples, jax.random.key(0))
    assert float(metrics["kl"]) == pytest.approx(0, abs=1e-6)
    assert float(metrics["clipped"]) == 0
    assert float(metrics["policy_loss"]) == pytest.approx(0, abs=1e-5)
    # V + A − V.
    assert float(metrics["value_loss"]) == pytest.approx(
        np.mean(np.asarray(samples.advantage) ** 2), rel=1e-4
    )


def test_log_densities_are_of_the_squashed_actions(learned, samples_of):
    ppo, learner, rollout = learned
    samples = samples_of(learner.params, rollout)
    policy = jax.jit(ppo.policy)(learner.params, rollout.obs)
    mean, log_std = (np.asarray(x, np.float64) for x in policy)
    x = np.asarray(rollout.choice, np.float64)
    gaussian = -0.5 * ((x - mean) / np.exp(log_std)) ** 2 - log_std - 0.5 * np.log(2 * np.pi)
    wanted = np.sum(gaussian - np.log(1 - np.tanh(x) ** 2), axis=-1)
    np.testing.assert_allclose(samples.log_prob, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ppo.action_of(rollout.choice), np.tanh(x), rtol=1e-5)


def test_every_epoch_splits_all_environments_once():
    num_envs, length = 12, 2
    mark = np.broadcast_to(np.arange(num_envs, dtype=np.float32), (length, num_envs))
    samples = Samples(Obs(mark[..., None], mark[..., None]), mark[..., None], mark, mark, mark)
    split = jax.jit(agent(minibatches=4)._minibatches)
    first, second = (jax.tree.map(np.asarray, split(samples, jax.random.key(k))) for k in (0, 1))
    for parts in (first, second):
        assert parts.advantage.shape == (4, length, 3)
        assert sorted(parts.advantage[:, 0].ravel()) == list(range(num_envs))
        # All that belongs to an environment stays together.
        np.testing.assert_array_equal(parts.advantage, parts.choice[..., 0])
        np.testing.assert_array_equal(parts.advantage[:, 0], parts.advantage[:, 1])
    assert not np.array_equal(first.advantage, second.advantage)


def test_learning_makes_good_choices_more_probable(learned, samples_of, learn):
    _, learner, rollout = learned
    samples = samples_of(learner.params, rollout)
    after, metrics = learn(learner, rollout, jax.random.key(7))
    log_prob = samples_of(after.params, rollout).log_prob
    advantage = np.asarray(samples.advantage)
    good = (advantage - advantage.mean()) / advantage.std()
    assert np.mean((np.asarray(log_prob) - np.asarray(samples.log_prob)) * good) > 0
    assert int(after.opt_state.count) == 6
    assert set(metrics) >= {"policy_loss", "value_loss", "entropy", "kl", "clipped", "reward", "value"}


def test_a_smaller_rate_moves_parameters_less(learned, learn):
    _, learner, rollout = learned
    key = jax.random.key(7)
    still, some, all_of_it = (learn(learner, rollout, key, scale)[0].params for scale in (0.0, 0.1, 1.0))
    away = lambda params: float(optax.global_norm(jax.tree.map(jnp.subtract, params, learner.params)))
    assert away(still) == 0
    assert 0 < away(some) < 0.2 * away(all_of_it)
    as_before = learn(learner, rollout, key)[0].params
    jax.tree.map(np.testing.assert_array_equal, as_before, all_of_it)


class Counted(OnPolicyAgent):
    """An agent whose choices tell how often it had been shown what was collected when it made them."""

    spec, action_of = walk().spec, staticmethod(jnp.tanh)

    def init(self, key):
        return jnp.zeros(())

    def observe(self, learner, obs, reached):
        return learner + 1

    def choose(self, learner, obs, key):
        return jnp.broadcast_to(learner, (*obs.state.shape[:-1], 2))

    def learn(self, learner, rollout, key, lr_scale=1.0):
        return learner, {"apart": jnp.max(jnp.abs(rollout.choice - learner))}


def loop_of(agent, updates=1, **settings):
    settings = {"total_steps": 10_000, "num_envs": 32, "unroll_length": 3, "evaluations": 1} | settings
    env = walk()
    sizes = Sizes(env.spec.state_dim, env.spec.action_dim, env.spec.goal_dim, 1, 1)
    return OnPolicy(env, agent, OnPolicyPlan(OnPolicyConfig(**settings), sizes, 1, updates))


def test_choices_are_learned_from_by_the_agent_that_made_them():
    """With observations normalised anew before learning, old probabilities would not be the true ones."""
    loop = loop_of(Counted())
    train, iterate = jax.jit(loop.init)(jax.random.key(0)), jax.jit(loop.iterate)
    for iteration in range(3):
        train, metrics = iterate(train, np.int32(iteration))
        assert float(metrics["apart"]) == 0
    assert float(train.learner) == 3


class Annealed(Counted):
    """An agent that adds up the scales of its learning rates."""

    def observe(self, learner, obs, reached):
        return learner

    def learn(self, learner, rollout, key, lr_scale=1.0):
        return learner + lr_scale, {"lr_scale": jnp.asarray(lr_scale, jnp.float32)}


def scales(loop, iterations):
    train, iterate = jax.jit(loop.init)(jax.random.key(0)), jax.jit(loop.iterate)
    found = []
    for iteration in iterations:
        train, metrics = iterate(train, np.int32(iteration))
        found.append(float(metrics["lr_scale"]))
    return found, train


def test_the_rate_falls_in_a_straight_line_to_its_last_fraction():
    loop = loop_of(Annealed(), lr_final_scale=0.25)
    total = loop.plan.iterations
    found, _ = scales(loop, (0, total // 2, total - 1))
    done = np.array([0, total // 2, total - 1]) / total
    assert found == pytest.approx(list(1 - 0.75 * done), rel=1e-6)
    assert scales(loop_of(Annealed()), (0, total - 1))[0] == [1, 1]


def test_an_averaged_policy_follows_the_parameters():
    loop = loop_of(Annealed(), policy_ema=0.8)
    _, train = scales(loop, range(3))  # the parameter is 1, 2, 3 after these
    wanted = 0.0
    for value in (1, 2, 3):
        wanted = 0.8 * wanted + 0.2 * value
    assert float(train.policy) == pytest.approx(wanted, rel=1e-6)
    assert float(train.learner) == 3
    _, plain = scales(loop_of(Annealed()), range(1))
    assert plain.policy is plain.learner


def test_episodes_end_together_unless_they_are_spread():
    def steps(key, spread):
        return loop_of(Counted(), spread_episodes=spread).init(key).env.steps

    both = jax.jit(lambda key: [steps(key, spread) for spread in (False, True)])
    together, spread = map(np.asarray, both(jax.random.key(0)))
    assert not together.any()
    assert len(np.unique(spread)) > 10
    assert 0 <= spread.min() < spread.max() < walk().episode_length


def test_environments_that_cannot_be_split_evenly_are_refused_with_the_nearest_number():
    with pytest.raises(ConfigError, match="num_envs 96"):
        agent(minibatches=16).updates_per_rollout(100)
    assert agent(epochs=3).updates_per_rollout(6) == 9
    for settings in ({"minibatches": 0}, {"clip": 0.0}, {"gamma": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            PPOConfig(**settings)


def test_the_papers_plan():
    plan = OnPolicyPlan(OnPolicyConfig(), Sizes(29, 8, 2, 10_000_000, 12_000_000), 10, 16)
    assert plan.steps_per_iteration == 4096 * 5
    assert plan.total_steps - 50_000_000 in range(4096 * 5)
    assert plan.total_updates == 16 * plan.iterations
    assert plan.epochs == 100
    assert "16 an iteration" in str(plan)
    few = plan.largest_fitting(plan.bytes_in_all // 2)
    assert few.seeds == 5
    with pytest.raises(ConfigError, match="it fits with seeds 5"):
        plan.check_fits(plan.bytes_in_all // 2)
    with pytest.raises(ConfigError, match="at least 1"):
        OnPolicyConfig(unroll_length=0)


@dataclasses.dataclass(frozen=True)
class Renewing(Probe):
    """A new goal every five steps of an episode, as `goals.renew=5` commands them."""

    def step(self, state, action):
        after = super().step(state, action)
        key = jax.random.fold_in(after.key, 1)
        due = ~after.ended & (after.steps % 5 == 0)
        goal = jnp.where(due[:, None], self._fresh(key).goal, after.obs.goal)
        return after.replace(obs=after.obs.replace(goal=goal))


@pytest.mark.parametrize("kind", [Probe, Renewing])
def test_advantages_are_cut_where_a_new_goal_is_commanded(kind, learned, samples_of, learn):
    """No reward for a goal counts for the actions that another one was commanded for."""
    plain = walk(NUM_ENVS, episode_length=12)
    env = kind(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)})
    ppo, learner, _ = learned
    config = OnPolicyConfig(total_steps=240, num_envs=NUM_ENVS, unroll_length=LENGTH, evaluations=1)
    loop = OnPolicy(env, ppo, OnPolicyPlan(config, Sizes(2, 2, 2), 1, ppo.updates_per_rollout(NUM_ENVS)))

    @jax.jit
    def collected(learner, key):
        train = loop.init(key).replace(learner=learner)
        return loop.collect(train, jax.random.fold_in(key, 1))[1]

    rollout = jax.tree.map(np.asarray, collected(learner, jax.random.key(0)))
    more = rollout.reward + (np.arange(LENGTH) >= 7)[:, None].astype(np.float32)
    before = samples_of(learner.params, rollout).advantage
    after = samples_of(learner.params, rollout.replace(reward=more)).advantage
    trained = learn(learner, rollout, jax.random.key(2))
    np.testing.assert_array_equal(rollout.next_obs.goal, rollout.obs.goal)
    changed = np.any(rollout.obs.goal[1:] != rollout.obs.goal[:-1], axis=-1)
    np.testing.assert_array_equal(changed, rollout.last[:-1])
    assert changed.any() and (kind is Probe or changed.sum() > 2 * 6)
    # Actions whose goal had changed by step 7 do not see what is paid from then on.
    cut = np.array([rollout.last[t:7].any(axis=0) for t in range(7)])
    same = np.isclose(np.asarray(before)[:7], np.asarray(after)[:7], atol=1e-6)
    np.testing.assert_array_equal(same, cut)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(trained))
