"""Rough durations on the device of the table that ships."""

import dataclasses
import json
from pathlib import Path

import pytest

from homing.config.offpolicy import Plan
from homing.config.plan import Sizes
from homing.config.presets import preset
from homing.config.run import RunConfig
from homing.studies import reference

RESULTS = Path(__file__).parents[2] / "results"


def case(env="ant", agent="crl", learner_bytes=1, **changes):
    chosen = preset(agent, "paper", env)
    train = dataclasses.replace(chosen.train, **changes)
    config = RunConfig(agent=agent, env=env, train=train, settings=chosen.agent, seeds=(0,))
    return config, Plan(train, Sizes(29, 8, 2, learner_bytes=learner_bytes))


def test_the_time_of_what_was_measured_is_what_was_measured():
    rows = json.loads((RESULTS / "train_h200.json").read_text())
    speeds = [row for row in rows if (row["env"], row["seeds"]) == ("humanoid", 32)]
    config, plan = case("humanoid", num_envs=512)
    each = 31_744 / (speeds[0]["env_steps_per_second"] / 32)
    iterations = plan.total_steps / 31_744
    assert reference.seconds(config, plan, 32) == pytest.approx(each * iterations, rel=0.02)


def test_more_seeds_larger_networks_and_more_updates_take_longer():
    base = reference.seconds(*case(), 10)
    assert base is not None
    assert reference.seconds(*case(), 1) < base < reference.seconds(*case(), 20)
    assert reference.seconds(*case(), 64) == pytest.approx(2 * reference.seconds(*case(), 32))
    large = reference.table()["rows"][0]["learner_bytes"] * 10
    assert reference.seconds(*case(learner_bytes=large), 10) > 5 * base
    assert reference.seconds(*case(updates_per_step=1 / 4), 10) > 3 * base


def test_an_environment_that_was_not_measured_takes_the_speed_of_its_like():
    maze, like = case("ant_u_maze"), case("ant_big_maze")
    assert reference.seconds(*maze, 10) == pytest.approx(reference.seconds(*like, 10))
    assert reference.seconds(*case("half_cheetah"), 10) is None, "no body like it was measured"
    assert reference.seconds(*case(agent="srl"), 10) is None, "neither was the agent"
    config, plan = case()
    assert reference.seconds(dataclasses.replace(config, physics="mjx_mujoco"), plan, 10) > 5 * (
        reference.seconds(config, plan, 10) or 0.0
    )


def test_the_table_follows_from_the_results():
    """Steps and updates of each row add up to a measured time; `tools/make_speeds.py` makes it again."""
    rows = [
        row for file in reference.table()["files"] for row in json.loads((RESULTS.parent / file).read_text())
    ]
    for row in reference.table()["rows"]:
        same = [r for r in rows if all(r[k] == row[k] for k in ("env", "agent", "seeds"))]
        times = [r["seconds_per_iteration"] for r in same]
        steps, updates = same[0]["steps_per_iteration"], same[0]["updates_per_iteration"]
        total = row["seconds_per_step"] * steps + row["seconds_per_update"] * updates
        assert 0.999 * min(times) <= total <= 1.001 * max(times), row
