"""Settings that do not go together, found before anything is compiled."""

import pytest

from homing.config.run import run_config
from homing.errors import ConfigError
from homing.training.build import build

RENEWED = {"goals.renew": "reached", "goals.split": True}


def parts(agent, env_options, reward="sparse", **changes):
    """Of a run in the environment that is built soonest."""
    small = {"num_envs": 4, "eval_envs": 4}
    return build(
        run_config(
            agent,
            "point_u_maze",
            preset_name="quickstart",
            env_options=env_options,
            reward=reward,
            changes=small | changes,
        )
    )


@pytest.mark.parametrize("changes", [{"her": False}, {"her_ratio": 0.5}])
@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_rewards_that_would_never_be_learned_from_are_refused(agent, changes):
    with pytest.raises(ConfigError, match=r"goals\.split.*goals\.hold.*--her-ratio 1"):
        parts(agent, RENEWED, **changes)


@pytest.mark.parametrize(
    ("agent", "options", "changes"),
    [
        ("sac", RENEWED, {"her": True, "her_ratio": 1.0}),
        ("sac", RENEWED | {"goals.hold": 5}, {"her": False}),
        ("sac", {"goals.renew": 50, "goals.split": True}, {"her": False}),
        ("sac", {"goals.renew": "reached"}, {"her": False}),
        ("sac", RENEWED, {"her": False, "reward": "dense"}),
        ("crl", RENEWED, {}),
        ("ppo", RENEWED, {}),
    ],
)
def test_other_runs_with_renewed_goals_are_not(agent, options, changes):
    assert parts(agent, options, **changes).env.spec.id == "point_u_maze"
