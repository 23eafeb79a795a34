"""Every metric that environments and agents report has a name and an explanation."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from data_helpers import walk_file
from run_helpers import TRAIN, no_key_check, probe_envs  # noqa: F401

from homing.agents import AGENTS, OffPolicyAgent, make_agent
from homing.config.offpolicy import offline
from homing.config.presets import preset
from homing.config.run import DataFile, RunConfig
from homing.envs.registry import ENVIRONMENTS
from homing.networks import NetConfig, nets_of
from homing.report.names import COSTS, EVALUATION, KNOWN, STEP, TRAINING, legend, metric
from homing.training.build import build
from homing.training.evaluation import evaluate

EXTRAS = {"survival_head": True, "bc_weight": 1.0, "survival_weight": 1.0, "normalise_observations": True}
NEED_DATA = [name for name, (_, agent) in AGENTS.items() if getattr(agent, "needs_data", False)]
KEY = jax.eval_shape(lambda: jax.random.key(0))


def metrics_of(name, **settings):
    """Names of what a run with this agent writes, from shapes alone."""
    chosen = preset(name, "quickstart" if name == "crl" else "paper")
    nets = dict.fromkeys(nets_of(chosen.agent), NetConfig(width=8, depth=1))
    known = {field.name for field in dataclasses.fields(chosen.agent)}
    agent = dataclasses.replace(chosen.agent, **nets, **{k: v for k, v in settings.items() if k in known})
    train = TRAIN if issubclass(AGENTS[name][1], OffPolicyAgent) else chosen.train
    data = {"train": offline(TRAIN), "data": DataFile(str(walk_file()))} if name in NEED_DATA else {}
    parts = build(RunConfig(**{"agent": name, "env": "walk", "train": train, "settings": agent} | data))
    loop, now = parts.loop, jax.ShapeDtypeStruct((), jnp.int32)
    state = jax.eval_shape(loop.init, KEY)
    scores = jax.eval_shape(lambda train, now: loop.evaluate(train, now, parts.eval_env), state, now)
    trained = jax.eval_shape(loop.epoch, state, now, now)[1]
    found = {name if "/" in name else f"eval/{name}" for name in scores}
    return found | {f"train/{name}" for name in trained if name != "finite"}


@pytest.mark.usefixtures("probe_envs")
@pytest.mark.parametrize("name", AGENTS)
def test_every_metric_of_every_agent_is_explained(name):
    found = metrics_of(name) | metrics_of(name, **EXTRAS)
    assert any(name.startswith("train/") for name in found)
    missing = sorted(n for n in found if n not in KNOWN or not metric(n).about)
    assert not missing


@pytest.mark.parametrize("id", ENVIRONMENTS)
def test_every_metric_of_every_environment_is_explained(id):
    """A step reports the distance and a success for each threshold; evaluation makes three metrics of each."""
    task = ENVIRONMENTS[id].task
    steps = {"distance", "success", *task.margins, *(["points_reached"] if task.parts > 1 else [])}
    assert steps <= set(STEP)
    for name in steps & {"success", *task.margins}:
        suffix = name.removeprefix("success")
        for made in (f"success{suffix}_any", f"success{suffix}_end", f"time_near_goal{suffix}"):
            assert metric(f"eval/{made}").about, made


@pytest.mark.usefixtures("probe_envs")
def test_what_is_explained_is_what_an_evaluation_has(monkeypatch):
    from probes import walk

    agent = make_agent(preset("crl", "quickstart").agent, walk().spec)
    learner = jax.eval_shape(agent.init, KEY)
    policy = lambda learner: lambda obs, key: agent.act(learner, obs, key, explore=False)
    scores = jax.eval_shape(lambda learner, key: evaluate(walk(), policy(learner), key), learner, KEY)
    lines = legend(scores)
    assert len(lines) == len(scores) and all(": " in line for line in lines)


def test_explanations_are_short_and_differ():
    known = EVALUATION | TRAINING | COSTS | STEP
    assert len({m.label for m in (EVALUATION | TRAINING).values()}) == len(EVALUATION) + len(TRAINING)
    assert all(0 < len(m.about) <= 100 for m in known.values())
    assert legend(["success_any", "of another version"]) == [
        "success_any: fraction of episodes within the goal's threshold at least once"
    ]
