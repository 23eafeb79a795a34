"""The CRL agent: its policy law, its losses and every combination of its tables."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agent_helpers import any_learner
from probes import ProbeSpec
from scipy import stats

from homing.agents import agent_types, make_agent
from homing.agents import crl as crl_module
from homing.agents.crl import CRL, CRLConfig
from homing.agents.gaussian import squash, squashed_sample
from homing.errors import ConfigError, UnknownNameError
from homing.losses.contrastive import OBJECTIVES, register_objective
from homing.losses.energies import ENERGIES
from homing.losses.survival import geometric_survival_loss
from homing.networks import ADAM, NetConfig, Stack, optim
from homing.types import Batch, Obs, UpdateContext

SPEC = ProbeSpec(state_dim=4, action_dim=2, goal_dim=3, goal_indices=(0, 1, 2), threshold=0.1)
SMALL = NetConfig(width=16)


@pytest.fixture(autouse=True, scope="module")
def _no_key_check():
    # These tests compare draws from the same key.
    with jax.debug_key_reuse(False):
        yield


def crl(**settings):
    return CRL(
        CRLConfig(**({"critic_net": SMALL, "actor_net": SMALL, "representation_dim": 8} | settings)), SPEC
    )


@functools.cache
def programs():
    """The agent with its `init` and `update`, compiled once for all tests."""
    agent = crl()
    return agent, jax.jit(agent.init), jax.jit(agent.update)


@functools.cache
def untrained(seed=0):
    return programs()[1](jax.random.key(seed))


class OneProgram(Stack):
    """Networks of one program, for all agents that have them."""

    def __call__(self, params, **inputs):
        return self._compiled(params, tuple(inputs), tuple(inputs.values()))

    @functools.partial(jax.jit, static_argnums=(0, 2))
    def _compiled(self, params, names, values):
        return super().__call__(params, **dict(zip(names, values, strict=True)))


NETWORKS, STEP = OneProgram(crl().nets.members), ADAM._replace(update=jax.jit(ADAM.update))


@pytest.fixture
def agent_of(monkeypatch):
    """Agents whose networks and optimiser, the same for every loss, are compiled once; all else runs by itself."""
    monkeypatch.setattr(optim, "ADAM", STEP)

    def made(**settings):
        agent = crl(**settings)
        agent.nets = NETWORKS
        return agent

    return made


@functools.cache
def some_batch(rows=12, seed=0):
    rng = np.random.default_rng(seed)

    def normal(dim):
        return rng.normal(size=(rows, dim)).astype(np.float32)

    obs = Obs(state=normal(4), goal=normal(3))
    ones = np.ones(rows, np.float32)
    left = np.where(np.arange(rows) % 3 == 0, 1.0 + np.arange(rows), np.inf).astype(np.float32)
    made = Batch(
        obs=obs,
        action=np.tanh(normal(2)),
        next_obs=obs,
        reward=ones,
        discount=ones,
        weight=ones,
        steps_to_termination=left,
    )
    return jax.device_put(made)


def drawn(agent, seed, rows=12):
    return agent.draw(jax.random.key(seed), rows)


def test_defaults_are_the_papers():
    config = agent_types("crl")[0]()
    assert (config.objective, config.energy, config.logsumexp_weight) == ("infonce_symmetric", "l2", 0.1)
    assert (config.actor_lr, config.critic_lr, config.alpha_lr) == (6e-4, 3e-4, 3e-4)
    assert (config.critic_net.width, config.critic_net.depth, config.representation_dim) == (256, 2, 64)


def test_log_density_of_squashed_actions_is_the_change_of_variables():
    mean = np.asarray([[0.3, -1.0], [12.0, -12.0]], np.float32)
    log_std = np.asarray([[-0.5, 0.7], [1.0, 1.0]], np.float32)
    action, log_prob = jax.jit(squashed_sample)(mean, log_std, jax.random.key(0))
    noise = np.asarray(jax.random.normal(jax.random.key(0), mean.shape), np.float64)
    x = mean + np.exp(log_std.astype(np.float64)) * noise
    np.testing.assert_allclose(action, np.tanh(x), rtol=1e-5)
    log_slope = np.log(4) - 2 * np.logaddexp(x, -x)  # of tanh: 1 / cosh²
    expected = stats.norm.logpdf(x, mean, np.exp(log_std.astype(np.float64))) - log_slope
    np.testing.assert_allclose(log_prob, expected.sum(-1), rtol=1e-5)


def test_log_deviations_stay_within_the_papers_range(agent_of):
    agent, learner = agent_of(), untrained()
    wild = Obs(state=1e4 * some_batch().obs.state, goal=some_batch().obs.goal)
    _, log_std = agent.policy(learner.params, wild)
    assert -5 <= np.asarray(log_std).min() < -4.9
    assert 1.9 < np.asarray(log_std).max() <= 2


def test_greedy_actions_are_the_squashed_mean_and_ignore_the_key(agent_of):
    agent, learner, obs = agent_of(), untrained(), some_batch().obs
    greedy = [agent.act(learner, obs, jax.random.key(k), explore=False) for k in (1, 2)]
    explored = [agent.act(learner, obs, jax.random.key(k), explore=True) for k in (1, 2)]
    np.testing.assert_array_equal(*greedy)
    np.testing.assert_array_equal(greedy[0], jnp.tanh(agent.policy(learner.params, obs)[0]))
    assert not np.array_equal(*explored)


def test_layer_norm_is_in_both_encoders_and_in_the_actor():
    norm = NetConfig(width=8, layer_norm=True)
    for actor in (norm, NetConfig(width=16, layer_norm=True)):
        made = jax.eval_shape(crl(critic_net=norm, actor_net=actor).init, jax.random.key(0))
        scales = [params["Layer_1"]["LayerNorm_0"]["scale"] for params in made.params["nets"].values()]
        assert sum(scale.shape[0] for scale in scales) == 3


@pytest.mark.parametrize(
    "settings",
    [{}, {"actor_net": NetConfig(width=12, depth=1)}, {"survival_head": True}],
    ids=["one stack", "two stacks", "falls"],
)
def test_update_is_the_gradient_step_of_each_loss_on_the_old_parameters(settings):
    agent, batch = crl(**settings), some_batch()
    survival_head = agent.config.survival_head
    update = jax.jit(agent.update) if settings else programs()[2]
    draws, old = drawn(agent, 5), any_learner(agent)
    new, metrics = update(old, batch, draws, UpdateContext())

    def apart(phi):
        return (phi[:, :-1], jax.nn.sigmoid(phi[:, -1])) if survival_head else (phi, jnp.ones(len(phi)))

    def survival_loss(params):
        _, lasts = apart(agent.encode(params, batch.obs, batch.action)[0])
        ends = 0.99**batch.steps_to_termination
        return -jnp.mean((1 - ends) * jnp.log(lasts) + ends * jnp.log1p(-lasts))

    def critic_loss(params):
        phi, psi = agent.encode(params, batch.obs, batch.action)
        phi, _ = apart(phi)
        f = -jnp.sqrt(jnp.sum((phi[:, None] - psi[None]) ** 2, axis=-1) + 1e-6)
        rows, columns = jax.nn.logsumexp(f, axis=1), jax.nn.logsumexp(f, axis=0)
        return jnp.mean(rows + columns - 2 * jnp.diagonal(f)) + 0.1 * jnp.mean(rows**2)

    def actor_loss(params):
        action, log_prob = squash(*agent.policy(params, batch.obs), draws.noise)
        phi, psi = agent.encode(old.params, batch.obs, action)
        phi, lasts = apart(phi)
        return jnp.mean(log_prob + jnp.sqrt(jnp.sum((phi - psi) ** 2, axis=-1) + 1e-6) - jnp.log(lasts))

    losses = [(critic_loss, "critic"), (actor_loss, "actor"), (survival_loss, "survival")][
        : 2 + survival_head
    ]
    found = jax.jit(lambda params: [jax.value_and_grad(loss)(params) for loss, _ in losses])(old.params)
    grads = []
    for (value, gradient), (_, name) in zip(found, losses, strict=True):
        assert float(metrics[f"{name}_loss"]) == pytest.approx(float(value), rel=1e-4)
        grads.append(gradient["nets"])
    # Adam's first step is rate · sign(gradient): compare the moments, which are not levelled out.
    whole = jax.tree.map(lambda *parts: 0.1 * sum(map(np.asarray, parts)), *grads)
    jax.tree.map(
        lambda mu, grad: np.testing.assert_allclose(mu, grad, rtol=2e-3, atol=1e-6),
        new.opt_state.mu["nets"],
        whole,
    )
    assert steps_of_members(agent, old, new) == pytest.approx(
        {"phi": 3e-4, "psi": 3e-4, "actor": 6e-4}, rel=0.01
    )


def test_survival_is_learned_as_the_fraction_of_futures_that_the_episode_lives_to_see():
    left = np.asarray([1.0, 2.0, 40.0, np.inf], np.float32)
    futures = np.random.default_rng(0).geometric(1 - 0.9, 200_000)  # P(k) ∝ 0.9^k, k ≥ 1
    slope = jax.grad(lambda logit: 4 * geometric_survival_loss(logit, left, 0.9))

    @jax.jit
    def learned():
        logit = jax.lax.fori_loop(0, 2000, lambda _, logit: logit - 4 * slope(logit), jnp.zeros(4))
        return jax.nn.sigmoid(logit)

    lived = [(futures <= n).mean() for n in left]
    np.testing.assert_allclose(learned(), lived, atol=5e-3)


def steps_of_members(agent, old, new):
    """How far the parameter that moved most went, for each network."""
    far = {}
    for group, names in agent.nets.groups.items():
        moved = jax.tree.map(
            lambda a, b: np.abs(np.asarray(a) - b), old.params["nets"][group], new.params["nets"][group]
        )
        for place, name in enumerate(names):
            far[name] = max(float(leaf[place].max()) for leaf in jax.tree.leaves(moved))
    return far


def test_entropy_weight_falls_while_the_policy_is_too_random():
    (agent, _, update), old = programs(), untrained()
    new, metrics = update(old, some_batch(), drawn(agent, 1), UpdateContext())
    assert float(metrics["entropy"]) > agent.target_entropy == -1
    assert float(metrics["alpha"]) == 1
    assert float(new.params["log_alpha"]) == pytest.approx(-3e-4, rel=1e-3)


def test_random_goals_take_the_row_before_with_their_probability():
    goal = np.arange(20_000, dtype=np.float32)[:, None]
    swap = crl(random_goal_ratio=0.3).draw(jax.random.key(0), len(goal)).swap
    mixed = np.asarray(crl_module._mixed(goal, swap))
    swapped = (mixed != goal)[:, 0]
    assert swapped.mean() == pytest.approx(0.3, abs=0.02)
    np.testing.assert_array_equal(mixed[swapped], np.roll(goal, 1, axis=0)[swapped])
    assert crl().draw(jax.random.key(0), len(goal)).swap is None


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains_with_every_energy(objective, agent_of):
    batch, learner = some_batch(), untrained()  # which depends on neither of them

    def run(energy):
        agent = agent_of(objective=objective, energy=energy, random_goal_ratio=0.5)
        return agent.update(learner, batch, drawn(agent, 1), UpdateContext())

    for energy in ENERGIES:
        found = run(energy)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(found)), energy


@pytest.mark.parametrize("energy", ["l2", "dot"])
def test_an_objective_registered_over_a_built_in_name_is_the_one_that_is_used(energy, monkeypatch, agent_of):
    """Also with the L2 energy, for which built-in objectives have a quicker form."""
    monkeypatch.setitem(OBJECTIVES, "infonce", OBJECTIVES["infonce"])  # restored afterwards
    register_objective("infonce", lambda logits: 7 + jnp.mean(logits))
    settings = {"objective": "infonce", "energy": energy, "logsumexp_weight": 0.0}

    def critic_loss():
        agent, batch, learner = agent_of(**settings), some_batch(), untrained()
        logits = agent.energy.pairs(*agent.encode(learner.params, batch.obs, batch.action))
        _, metrics = agent.update(learner, batch, drawn(agent, 1), UpdateContext())
        return float(metrics["critic_loss"]), np.asarray(logits)

    found, logits = critic_loss()
    assert found == pytest.approx(7 + logits.mean(), rel=1e-4)
    register_objective("infonce", lambda logits: 7 + jnp.mean(logits), lambda sums: jnp.mean(sums.rows))
    found, logits = critic_loss()
    quick = np.logaddexp.reduce(logits, axis=1).mean()
    assert found == pytest.approx(quick if energy == "l2" else 7 + logits.mean(), rel=1e-4)


def test_two_inits_share_structure_and_strong_types():
    agent, _, update = programs()
    a, b = untrained(), untrained(seed=1)
    assert jax.tree.structure(a) == jax.tree.structure(b)
    c, _ = update(a, some_batch(), drawn(agent, 2), UpdateContext())
    for x, y, z in zip(*map(jax.tree.leaves, (a, b, c)), strict=True):
        assert x.aval == y.aval == z.aval
        assert not z.weak_type


def test_wrong_names_and_numbers_are_answered():
    with pytest.raises(UnknownNameError, match="infonce"):
        CRLConfig(objective="infonse")
    with pytest.raises(UnknownNameError, match="l2"):
        CRLConfig(energy="l3")
    with pytest.raises(ConfigError, match="gamma"):
        CRLConfig(gamma=1.0)
    with pytest.raises(ConfigError, match="at least 2 with survival_head"):
        CRLConfig(representation_dim=1, survival_head=True)
    with pytest.raises(UnknownNameError, match="crl"):
        agent_types("clr")
    with pytest.raises(TypeError):
        make_agent(object(), SPEC)
