"""Every agent learns what the probes ask."""

from typing import NamedTuple

import jax
import numpy as np
import pytest
from probes import delay, echo, ledge, trapdoor, walk
from scipy import stats

from homing.agents import make_agent
from homing.agents.crl import CRLConfig
from homing.agents.ppo import PPOConfig
from homing.agents.sac import SACConfig
from homing.agents.srl import SRLConfig
from homing.agents.td3 import TD3Config
from homing.config.offpolicy import TrainConfig
from homing.config.onpolicy import OnPolicyConfig
from homing.networks import NetConfig
from homing.training.build import make_loop, make_plan
from homing.training.loop import evaluate_greedy
from homing.training.seeds import over_seeds, programs, seed_keys, train_axes
from homing.types import Obs

NET = NetConfig(width=32)
RELU = NetConfig(width=32, activation="relu")


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # The check takes a vmapped scan over split keys for reuse; test_offpolicy has it on, for one seed.
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture(autouse=True)
def _compilation(request):
    if request.node.get_closest_marker("slow"):
        # What two seeds have learned after so few steps hangs on how their updates are rounded.
        request.getfixturevalue("default_emitters")


def crl(**settings):
    return CRLConfig(
        critic_net=NET, actor_net=NET, representation_dim=16, critic_lr=1e-3, actor_lr=1e-3, **settings
    )


def srl(**settings):
    parts = {"horizon": 50, "hazard_bins": 16, "occupancy_bins": 8, "representation_dim": 16, "chunk": 1}
    nets = dict.fromkeys(("encoder_net", "head_net", "actor_net"), NetConfig(width=32, layer_norm=True))
    rates = {"critic_lr": 1e-3, "actor_lr": 1e-3, "alpha_lr": 1e-2}
    return SRLConfig(**(parts | nets | rates | settings))


def sac(**settings):
    rates = {"critic_lr": 1e-3, "actor_lr": 1e-3, "alpha_lr": 1e-2, "tau": 0.02}
    return SACConfig(critic_net=RELU, actor_net=RELU, **(rates | settings))


def td3(**settings):
    rates = {"critic_lr": 1e-3, "actor_lr": 1e-3, "tau": 0.02}
    return TD3Config(critic_net=RELU, actor_net=RELU, **(rates | settings))


def ppo(**settings):
    return PPOConfig(**({"actor_net": NET, "value_net": NET, "minibatches": 4, "lr": 1e-3} | settings))


class Data(NamedTuple):
    """What an agent learns from: environment steps, in batches of so many transitions."""

    steps: int
    batch_size: int = 128


def learn(settings, env, data, scored=True):
    agent = make_agent(settings, env.spec)
    if isinstance(settings, PPOConfig):
        config = OnPolicyConfig(
            total_steps=data.steps, num_envs=32, unroll_length=8, evaluations=1, eval_envs=32
        )
    else:
        config = TrainConfig(
            total_steps=data.steps,
            num_envs=32,
            unroll_length=25,
            batch_size=data.batch_size,
            replay_size=1000,
            prefill_steps=100,
            evaluations=1,
            eval_envs=32,
        )
    plan = make_plan(config, env, agent, seeds=2)
    made = programs(make_loop(env, agent, plan), env)
    # How goals are reached, and not what `evaluate` measures besides, which has a whole update compiled again.
    greedy = lambda train, iteration: evaluate_greedy(agent, train, plan, iteration, env)
    reached = jax.jit(over_seeds(greedy, (train_axes(env), None)))
    score = lambda iteration: jax.tree.map(np.asarray, reached(train, np.int32(iteration))) if scored else {}
    train = made.init(seed_keys([0, 1]))
    before = score(0)
    train, metrics = made.epoch(train, *plan.epoch_bounds(0))
    assert np.asarray(metrics["finite"]).all()
    return agent, train, before, score(plan.iterations)


slow = pytest.mark.slow
ECHO = [
    pytest.param(crl(), Data(15_000, 32), id="crl"),
    pytest.param(td3(her=True, her_strategy="future"), Data(20_000), id="td3+her", marks=slow),
    pytest.param(sac(her=True, her_strategy="future"), Data(40_000), id="sac+her", marks=slow),
    pytest.param(sac(), Data(60_000), id="sac", marks=slow),
    pytest.param(td3(), Data(60_000), id="td3", marks=slow),
    pytest.param(ppo(), Data(30_000), id="ppo", marks=slow),
    pytest.param(ppo(normalise_observations=True), Data(30_000), id="ppo, normalised", marks=slow),
    pytest.param(crl(normalise_observations=True), Data(15_000), id="crl, normalised", marks=slow),
]


@pytest.mark.parametrize(("settings", "data"), ECHO)
def test_echo_the_goal_is_the_action(settings, data):
    _, _, before, after = learn(settings, echo(), data)
    assert float(before["success_end"].max()) < 0.4
    assert float(after["success_end"].min()) > 0.9


# Nobody acts in the last state, which the clock tells apart, so nothing holds its value down: a guess of it
# feeds itself and grows for ever unless the discount is small.
DELAY = [
    pytest.param(crl(), Data(40_000, 64), id="crl"),
    pytest.param(sac(her=True, gamma=0.7), Data(60_000), id="sac+her", marks=slow),
    pytest.param(td3(her=True, gamma=0.7), Data(60_000), id="td3+her", marks=slow),
    pytest.param(ppo(gamma=0.7), Data(80_000), id="ppo", marks=slow),
]


@pytest.mark.parametrize(("settings", "data"), DELAY)
def test_delay_only_the_first_action_counts(settings, data):
    _, _, before, after = learn(settings, delay(), data)
    assert float(before["success_end"].max()) < 0.5
    assert float(after["success_end"].min()) > 0.8


WALK = [
    pytest.param(crl(), Data(25_000, 32), 0.9, id="crl"),
    pytest.param(srl(), Data(20_000, 64), 0.75, id="srl"),
    pytest.param(srl(chunk=2), Data(40_000), 0.9, id="srl, chunks", marks=slow),
    pytest.param(crl(chunk=2), Data(40_000), 0.9, id="crl, chunks", marks=slow),
    pytest.param(sac(her=True, gamma=0.9), Data(60_000), 0.9, id="sac+her", marks=slow),
    pytest.param(td3(her=True, gamma=0.9, tau=0.005), Data(60_000), 0.8, id="td3+her", marks=slow),
    pytest.param(ppo(gamma=0.9), Data(150_000), 0.9, id="ppo", marks=slow),
]


@pytest.mark.parametrize(("settings", "data", "correlation"), WALK)
def test_walk_reaches_goals_and_orders_distances(settings, data, correlation):
    agent, train, before, after = learn(settings, walk(), data)
    assert float(before["success_any"].max()) < 0.8
    assert float(before["final_distance"].min()) > 0.4
    assert float(after["success_any"].min()) > 0.9
    assert float(after["final_distance"].max()) < 0.3
    # From the middle, nearer goals must have larger values under the policy's own actions.
    goal = np.random.default_rng(0).uniform(-0.9, 0.9, (200, 2)).astype(np.float32)
    obs = Obs(state=np.zeros((200, 2), np.float32), goal=goal)

    @jax.jit
    def value(learner):
        return agent.value(learner, obs, agent.act(learner, obs, jax.random.key(0), explore=False))

    found = value(jax.tree.map(lambda x: np.asarray(x)[0], train.learner))
    assert stats.spearmanr(found, -np.linalg.norm(goal, axis=-1)).statistic > correlation


@slow
@pytest.mark.parametrize("minds", [False, True])
def test_ledge_whoever_minds_falls_keeps_away_from_them(minds):
    after = learn(crl(survival_head=minds, gamma=0.9, alpha_lr=3e-3), ledge(), Data(60_000))[3]
    assert float(after["success_any"].min()) > 0.9
    if minds:
        assert after["episode_length"].tolist() == [25, 25]
    else:
        assert float(after["episode_length"].max()) < 24.5  # of 25: some fall


TRAPDOOR = [
    pytest.param(sac(gamma=0.8, tau=0.05, alpha_lr=0.1), Data(30_000, 32), id="sac"),
    pytest.param(ppo(gamma=0.8), Data(20_000), id="ppo"),
    pytest.param(td3(gamma=0.8, tau=0.05), Data(60_000), id="td3", marks=slow),
    pytest.param(td3(gamma=0.8, tau=0.05, her=True), Data(60_000), id="td3+her", marks=slow),
]


@pytest.mark.parametrize(("settings", "data"), TRAPDOOR)
def test_trapdoor_a_fall_is_the_end_and_a_time_limit_is_not(settings, data):
    """Paid 1 a step for ever: 1 / (1 − γ) = 5. Behind the trapdoor: 1."""
    agent, train, _, _ = learn(settings, trapdoor(), data, scored=False)
    nothing = np.zeros((2, 1), np.float32)
    obs = Obs(state=np.asarray([[0.0], [1.0]], np.float32), goal=nothing)
    value = jax.jit(jax.vmap(lambda learner: agent.value(learner, obs, nothing)))(train.learner)
    np.testing.assert_allclose(value, [[5, 1]] * 2, atol=0.4)
