"""TD3: slow targets, delay, noise, and what follows a fall or a time limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import NETS, SPEC, any_learner, some_batch
from probes import walk

from homing.agents.actor_critic import join
from homing.agents.td3 import TD3, TD3Config
from homing.config.offpolicy import TrainConfig
from homing.errors import ConfigError
from homing.training.build import make_loop, make_plan
from homing.training.seeds import programs, seed_keys
from homing.types import UpdateContext


@pytest.fixture(scope="module")
def agent():
    return TD3(TD3Config(**NETS, gamma=0.9), SPEC)


@pytest.fixture(scope="module")
def learner(agent):
    return any_learner(agent)  # with targets of their own


@pytest.fixture(scope="module")
def update(agent):
    return jax.jit(
        lambda learner, batch, draws, made: agent.update(learner, batch, draws, UpdateContext(made))
    )


@pytest.fixture(scope="module")
def policy(agent):
    return jax.jit(agent.policy)


@pytest.fixture(scope="module")
def critics(agent):
    """Values [2, B]."""
    return jax.jit(lambda params, obs, action: agent.critics(params, join(obs.state, obs.goal, action)))


@pytest.fixture(scope="module")
def target(agent):
    return jax.jit(agent._target)


def noise(scale=1.0, rows=6):
    return (scale * np.random.default_rng(5).normal(size=(rows, 2))).astype(np.float32)


def largest_change(before, after):
    return max(
        np.abs(np.asarray(a) - np.asarray(b)).max()
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )


def test_targets_are_those_of_the_formula(learner, policy, critics, target):
    """A9: what was cut off by the time limit goes on, what has fallen does not."""
    batch, draw = some_batch(), noise(4.0)
    action = np.asarray(policy(learner.target_actor, batch.next_obs))
    action = np.clip(action + np.clip(0.2 * draw, -0.5, 0.5), -1, 1)
    q = np.asarray(critics(learner.target_critic, batch.next_obs, action)).min(0)
    follows = np.asarray([1, 0, 1, 1, 1, 1])
    wanted = np.asarray(batch.reward) + 0.9 * follows * q
    np.testing.assert_allclose(target(learner, batch, draw), wanted, rtol=1e-5)


def test_the_critics_step_on_the_masked_error_of_both(learner, update, critics, target):
    batch, draw = some_batch(), noise()
    after, metrics = update(learner, batch, draw, np.int32(0))
    q = np.asarray(critics(learner.critic.params, batch.obs, batch.action))
    error = q - np.asarray(target(learner, batch, draw))
    counted = np.asarray([1, 1, 0, 1, 1, 1])
    assert float(metrics["critic_loss"]) == pytest.approx(0.5 * np.mean(counted * error**2), rel=1e-4)
    assert largest_change(learner.critic.params, after.critic.params) == pytest.approx(3e-4, rel=0.02)


# A22: counts are integers; in float32 the count below would stand still, and with it the policy.
@pytest.mark.parametrize("made", [0, 1, 2, 3, 2**24 + 1, 2**24 + 2])
def test_policy_and_targets_move_at_every_second_update(update, learner, made):
    """A11: on the others they are not touched."""
    after, _ = update(learner, some_batch(), noise(), np.int32(made))
    moves = made % 2 == 1
    for name in ("actor", "target_critic", "target_actor"):
        change = largest_change(getattr(learner, name), getattr(after, name))
        assert (change > 0) == moves, name
    assert largest_change(learner.critic.params, after.critic.params) > 0


def test_targets_are_mixed_from_the_old_targets(update, learner):
    """A8: the original mixes its slow policy from the online one, and so has none."""
    after, _ = update(learner, some_batch(), noise(), np.int32(1))
    for slow, fast in (("target_actor", "actor"), ("target_critic", "critic")):
        wanted = jax.tree.map(
            lambda old, new: 0.995 * np.asarray(old) + 0.005 * np.asarray(new),
            getattr(learner, slow),
            getattr(after, fast).params,
        )
        assert largest_change(wanted, getattr(after, slow)) < 1e-6


def test_the_policy_climbs_the_first_critic(learner, update, policy, critics):
    batch = some_batch()
    after, _ = update(learner, batch, noise(), np.int32(1))
    first = lambda actor: np.asarray(critics(after.critic.params, batch.obs, policy(actor, batch.obs)))[
        0
    ].mean()

    assert first(after.actor.params) > first(learner.actor.params)


def test_actions_cost_their_mean_square(agent, learner, policy):
    obs = some_batch().obs
    dear = TD3(TD3Config(action_cost=300.0, **NETS), agent.spec)

    @jax.jit
    def losses(learner):
        return [each._actor_loss(learner.actor.params, learner.critic.params, obs) for each in (agent, dear)]

    (free, _), (loss, metrics) = losses(learner)
    square = np.mean(np.square(np.asarray(policy(learner.actor.params, obs))))
    assert float(loss) - float(free) == pytest.approx(300 * square, rel=1e-3)
    assert float(metrics["actor_loss"]) == float(loss)


def test_exploring_actions_are_clipped_noise_within_the_range(agent, learner):
    """A10: actions are within ±1 before they are stored."""
    obs = jax.tree.map(lambda x: np.tile(10 * np.asarray(x), (400, 1)), some_batch().obs)
    act = jax.jit(lambda key, explore: agent.act(learner, obs, key, explore=explore), static_argnums=1)
    action = np.asarray(act(jax.random.key(0), True))
    greedy = np.asarray(act(jax.random.key(1), False))
    assert np.abs(action).max() == 1
    assert np.abs(action - greedy).max() == pytest.approx(0.5, abs=1e-6)
    free = (np.abs(greedy) < 0.5) & (np.abs(action - greedy) < 0.5 - 1e-6)
    # Of a normal law of deviation 0.4 cut at ±0.5.
    assert np.std((action - greedy)[free]) == pytest.approx(0.26, abs=0.02)


def test_the_delay_stays_a_branch_where_seeds_run_side_by_side(agent, learner, keys_reused_on_purpose):
    """Of a batched condition both sides would run at every update."""
    many = lambda tree: jax.tree.map(lambda x: np.stack([x, x]), tree)
    together = jax.vmap(agent.update, in_axes=(0, 0, 0, None))
    given = many(learner), many(some_batch()), many(noise())
    assert "cond[" in str(jax.make_jaxpr(together)(*given, UpdateContext(0)))
    env = walk(num_envs=4)
    mine = TD3(TD3Config(**NETS), env.spec)
    plan = make_plan(TrainConfig(10_000, num_envs=4, unroll_length=8, batch_size=8), env, mine, seeds=2)
    made = programs(make_loop(env, mine, plan), env)
    train = jax.eval_shape(made.init.jitted, seed_keys([0, 1]), {})
    count = jax.ShapeDtypeStruct((), jnp.int32)
    assert "cond[" in str(jax.make_jaxpr(made.epoch.jitted)(train, {}, count, count))


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(ConfigError, match="delay"):
        TD3Config(delay=0)
    with pytest.raises(ConfigError, match="noise_clip"):
        TD3Config(noise_clip=-1)
    with pytest.raises(ConfigError, match="action_cost"):
        TD3Config(action_cost=-0.1)
