"""What a dataset notes of the environment that it was collected in."""

import pytest

from homing.policies.rollouts import plan_export

SPREAD = {"task.goals.spread": 1.5, "task.starts.spread": 1.5}


@pytest.mark.parametrize(("env", "options"), [(None, SPREAD), ("point_big_maze", {})])
def test_options_are_those_of_the_environment_that_was_collected_in(env, options, tmp_path):
    """Each of its episodes has one goal; the shipped policy was trained with new goals inside of them."""
    planned = plan_export("point_u_maze", episodes=1, out=str(tmp_path / "x.npz"), env=env)
    assert "goals.renew" in planned.policies.choice.env_options
    assert planned._notes()["env_options"] == options
