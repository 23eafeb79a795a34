"""Examples run, and the generated parts of the docs are up to date."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ProbeSpec, walk

from homing.agents import AGENTS
from homing.config.offpolicy import TrainConfig
from homing.config.presets import PRESETS
from homing.data import replay
from homing.data.replay import Stored
from homing.envs.registry import ENVIRONMENTS
from homing.losses.contrastive import OBJECTIVES
from homing.training.offpolicy import OffPolicy, make_plan
from homing.types import Batch, Obs, UpdateContext

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["own_maze", "own_robot"])
def test_examples_of_own_environments_run(name, capsys):
    known = dict(ENVIRONMENTS)
    try:
        runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    finally:
        ENVIRONMENTS.clear()
        ENVIRONMENTS.update(known)
    said = capsys.readouterr().out
    assert ("distance" in said) or ("fraction of carts at their goal position: 1.0" in said)


@pytest.fixture
def example():
    """A function that runs an example as a module; what it puts into tables is gone afterwards."""
    tables = (AGENTS, PRESETS, OBJECTIVES)
    known = [dict(table) for table in tables]
    yield lambda name: runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    for table, before in zip(tables, known, strict=True):
        table.clear()
        table.update(before)


def test_the_example_of_an_own_loss_is_the_hinge_it_says(example):
    hinge = example("own_loss")["hinge"]
    assert OBJECTIVES["hinge"].loss is hinge
    logits = np.array([[2.0, 0.5], [0.0, -1.0]], np.float32)
    terms = [max(0.0, 1 - logits[i, i] + logits[i, j]) for i in range(2) for j in range(2)]
    assert float(hinge(jnp.asarray(logits))) == pytest.approx(np.mean(terms))


def test_the_example_of_an_own_agent_learns_to_imitate(example):
    made = example("own_agent")
    spec = ProbeSpec(state_dim=3, action_dim=2, goal_dim=2, goal_indices=(0, 1), threshold=0.1)
    agent = made["Imitate"](made["ImitateConfig"](lr=1e-2, width=32), spec)
    k_init, k_act = jax.random.key(0), jax.random.key(1)
    state = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    obs = Obs(state=state, goal=state[:, :2] + 0.5)
    ones = np.ones(64, np.float32)
    action = 0.5 * np.tanh(state[:, 1:])
    batch = Batch(
        obs,
        action,
        next_obs=obs,
        reward=ones,
        discount=ones,
        weight=ones,
        steps_to_termination=np.inf * ones,
    )
    learner, losses = jax.jit(agent.init)(k_init), []
    update = jax.jit(agent.update)
    for _ in range(200):
        learner, metrics = update(learner, batch, None, UpdateContext())
        losses.append(float(metrics["actor_loss"]))
    assert losses[-1] < 0.1 * losses[0]
    act = jax.jit(lambda learner, obs: agent.act(learner, obs, k_act, explore=False))
    assert np.abs(np.asarray(act(learner, obs)) - batch.action).mean() < 0.15
    assert "imitate" in AGENTS and "paper" in PRESETS["imitate"]


def learned(agent, steps):
    """An agent in the walk: the loop, what it has learned, scores before and after."""
    env = walk()
    config = TrainConfig(
        steps,
        num_envs=32,
        unroll_length=25,
        batch_size=128,
        replay_size=500,
        prefill_steps=100,
        evaluations=1,
        eval_envs=32,
    )
    loop = OffPolicy(env, agent, make_plan(config, env, agent))
    evaluate = jax.jit(lambda train, iteration: loop.evaluate(train, iteration, env))
    with jax.debug_key_reuse(False):
        train = jax.jit(loop.init)(jax.random.key(0))
        before = evaluate(train, jnp.int32(0))
        stop = jnp.int32(loop.plan.iterations)
        train, _ = jax.jit(loop.epoch)(train, jnp.int32(0), stop)
        return loop, train, before, evaluate(train, stop)


def batch_of(loop, train):
    """A batch of the agent's own, from what was stored last."""

    @jax.jit
    def batch(buffer, key):
        episodes = replay.episode_index(buffer, jnp.int32(loop.plan.iterations))
        return loop._batch(Stored(buffer, episodes), key)

    return batch(train.replay, jax.random.key(1))


def test_the_example_of_first_reach_times_learns_to_reach(example):
    made = example("first_reach_times")
    agent = made["ReachTime"](made["ReachTimeConfig"](lr=3e-3, horizon=25), walk().spec)
    loop, train, before, after = learned(agent, steps=16_000)
    assert float(before["final_distance"]) > 0.8 > 0.5 > float(after["final_distance"])
    # Steps are counted from the state, at most the horizon; goals that are not reached count as the horizon.
    batch = batch_of(loop, train)
    steps = np.expm1(np.asarray(batch["log_time"]))
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert steps.min() == 0 and steps.max() == pytest.approx(25)
    obs = batch["obs"]
    here = np.linalg.norm(np.asarray(obs.state - obs.goal), axis=-1) <= agent.spec.threshold
    np.testing.assert_array_equal(here, np.round(steps) == 0)
    assert agent.has_critic and "reach_time" in AGENTS


def test_the_example_of_action_chunks_learns_to_reach(example):
    made = example("action_chunks")
    agent = made["Chunks"](made["ChunksConfig"](lr=3e-3), walk().spec)
    loop, train, before, after = learned(agent, steps=8_000)
    assert float(before["success_end"]) < 0.3 < 0.9 < float(after["success_end"])
    batch = batch_of(loop, train)
    assert batch["actions"].shape == (128, 6) and batch["whole"].any() and not batch["whole"].all()
    action = jax.eval_shape(
        lambda key: agent.act(train.learner, batch["obs"], key, explore=True), jax.random.key(2)
    )
    assert action.shape == (128, 6)
    assert not agent.has_critic and "chunks" in AGENTS


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), [("own_agent", "success rates"), ("own_loss", "the critic finds")])
def test_examples_that_train_do_so(name, part, tmp_path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "60000", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr
    assert part in done.stdout and (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_reach_times", "action_chunks"])
def test_examples_of_agents_are_trained_by_the_command_they_name(name, tmp_path):
    """In the folder of the examples, as their docstrings say."""
    named = re.search(r"Train: homing ([a-z_ -]*)", (ROOT / "examples" / f"{name}.py").read_text())
    assert named is not None
    more = ("--steps", "60000", "--episode-length", "100", "--cpu", "--out", str(tmp_path / "run"))
    command = [sys.executable, "-m", "homing", *named[1].split(), *more]
    done = subprocess.run(
        command, cwd=ROOT / "examples", capture_output=True, text=True, check=False, timeout=800
    )
    assert done.returncode == 0, done.stderr
    assert "success_any" in done.stdout and (tmp_path / "run" / "summary.json").is_file()


LONGER = {"own_agent": 62, "own_robot": 66, "sb3_her": 72, "ppo_gymnax": 75, "ogbench_agent": 79}


def test_examples_are_short():
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text().splitlines()) <= LONGER.get(path.stem, 59), path


def test_the_table_of_environments_is_up_to_date():
    import make_docs

    assert make_docs.table() in (ROOT / "docs" / "environments.md").read_text(), "run `make docs`"


def test_every_environment_has_a_page_of_its_family_and_pages_are_up_to_date():
    import make_env_pages as pages

    overview = (ROOT / "docs" / "environments.md").read_text()
    for family in pages.FAMILIES:
        page = pages.page_of(family)
        text = page.read_text()
        assert pages.block(family) in text, f"{page}: run `make docs`"
        assert "## Difficulty" in text and f"({page.relative_to(ROOT / 'docs')})" in overview
        for id in pages.ids_of(family):
            assert f"| `{id}` |" in text
    ours = [id for id, spec in ENVIRONMENTS.items() if type(spec.body).__module__.startswith("homing.")]
    assert not [id for id in ours if pages.family_of(id) is None]


def test_films_of_environments_are_small():
    films = list((ROOT / "docs" / "images" / "films").glob("*.webp"))
    assert films and all(film.stat().st_size <= 300_000 for film in films)


def test_the_best_known_results_are_those_of_the_files():
    import make_env_pages as pages

    best = pages.best_result("ant_big_maze")
    assert best is not None and best.file == "learn_srl_ant_big_maze_waypoints_h200.jsonl"
    assert best.success == pytest.approx(0.9997, abs=1e-4) and best.seeds == 5
    assert pages.named("learn_sac_her_random_goals_ant_5m_cpu") == ("ant", "sac")
    assert pages.named("learn_crl_ant_u_maze_bfloat16_h200") == ("ant_u_maze", "crl")
