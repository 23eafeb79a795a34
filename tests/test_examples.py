"""Examples run, and the generated parts of the docs are up to date."""

import runpy
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import ProbeSpec

from homing.agents import AGENTS
from homing.config.presets import PRESETS
from homing.envs.registry import ENVIRONMENTS
from homing.losses.contrastive import OBJECTIVES
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
    assert ("distance" in said) or ("share of carts at their place: 1.0" in said)


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
    k_init, k_rows, k_act = jax.random.split(jax.random.key(0), 3)
    state = jax.random.normal(k_rows, (64, 3))
    obs = Obs(state=state, goal=state[:, :2] + 0.5)
    ones = jnp.ones(64)
    action = 0.5 * jnp.tanh(state[:, 1:])
    batch = Batch(
        obs,
        action,
        next_obs=obs,
        reward=ones,
        discount=ones,
        weight=ones,
        steps_to_termination=jnp.inf * ones,
    )
    learner, losses = agent.init(k_init), []
    update = jax.jit(agent.update)
    for _ in range(200):
        learner, metrics = update(learner, batch, None, UpdateContext())
        losses.append(float(metrics["actor_loss"]))
    assert losses[-1] < 0.1 * losses[0]
    action = agent.act(learner, obs, k_act, explore=False)
    assert float(jnp.abs(action - batch.action).mean()) < 0.15
    assert "imitate" in AGENTS and "paper" in PRESETS["imitate"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), [("own_agent", "success rates"), ("own_loss", "the critic finds")])
def test_examples_that_train_do_so(name, part, tmp_path):
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py"), "60000", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=800)
    assert done.returncode == 0, done.stderr
    assert part in done.stdout and (tmp_path / "run" / "summary.json").is_file()


def test_examples_are_short():
    for path in (ROOT / "examples").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 75, path


def test_the_table_of_environments_is_up_to_date():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import make_docs
    finally:
        sys.path.pop(0)
    assert make_docs.table() in (ROOT / "docs" / "environments.md").read_text(), "run `make docs`"
