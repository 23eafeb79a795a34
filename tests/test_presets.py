"""Presets build, plan and are found by name."""

import pytest
from probes import walk

from homing.agents import AGENTS, make_agent
from homing.errors import UnknownNameError
from homing.presets import PRESETS, preset
from homing.training.loops import make_plan


@pytest.mark.parametrize(("agent", "name"), [(agent, name) for agent in PRESETS for name in PRESETS[agent]])
def test_every_preset_makes_an_agent_and_a_plan(agent, name):
    chosen = preset(agent, name)
    assert type(chosen.agent) is AGENTS[agent][0]
    env = walk()
    plan = make_plan(chosen.train, env, make_agent(chosen.agent, env.spec))
    assert plan.sizes.learner_bytes > 100_000
    assert chosen.about


def test_wrong_names_are_answered():
    with pytest.raises(UnknownNameError, match="quickstart"):
        preset("crl", "quick_start")
    with pytest.raises(UnknownNameError, match="crl"):
        preset("cr", "paper")
