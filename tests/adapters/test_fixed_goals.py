import pytest

from homing.adapters.fixed_goals import make_with_fixed_goals
from homing.errors import ConfigError


def test_new_goals_inside_of_an_episode_are_refused_and_other_options_are_not(tiny):
    given = (tiny, 3, 40, None, "sparse")
    made = make_with_fixed_goals(*given, {"task.within": 0.1})
    assert (made.num_envs, made.episode_length, made.spec.threshold) == (3, 40, 0.1)
    for renew in (5, "reached"):
        with pytest.raises(ConfigError, match=r"one goal in an episode: leave out goals\.renew"):
            make_with_fixed_goals(*given, {"goals.renew": renew})
