import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("stoa")

import stoa
from stoa.core_wrappers.vmap import VmapWrapper

from homing.adapters.stoa import HomingStoa
from homing.errors import HomingError


@pytest.fixture(scope="module")
def walked(tiny):
    """TimeSteps [T, N] of four environments that stand still or move right, with stoa's own wrappers."""
    env = stoa.AutoResetWrapper(HomingStoa(tiny, episode_length=30), next_obs_in_extras=True)
    env = VmapWrapper(stoa.RecordEpisodeMetrics(env), 4)

    def walk(key):
        state, first = env.reset(key)
        right = jnp.array([1.0, 0.0]) * jnp.arange(4)[:, None] / 3
        step = lambda state, _: env.step(state, right)
        return first, jax.lax.scan(step, state, None, 35)[1]

    with jax.debug_key_reuse(False):  # the check takes the two branches of the auto-reset for reuse
        return jax.device_get(jax.jit(walk)(jax.random.key(0)))


def test_sequences_begin_and_end_as_stoa_has_it(walked):
    first, steps = walked
    np.testing.assert_array_equal(first.step_type, int(stoa.StepType.FIRST))
    ends = np.flatnonzero(steps.step_type[:, 0] == int(stoa.StepType.TRUNCATED))
    assert ends.tolist() == [29] and (steps.discount[:, 0] == 1).all()
    fell = steps.step_type[:, 3] == int(stoa.StepType.TERMINATED)
    np.testing.assert_array_equal(fell, steps.extras["next_obs"][:, 3, 0] > 2.5)
    np.testing.assert_array_equal(steps.discount[:, 3], 1.0 - fell)
    assert fell.any()
    assert steps.extras["episode_metrics"]["episode_length"][29, 0] == 30


def test_an_ended_sequence_is_followed_by_a_new_one(walked):
    first, steps = walked
    goals = np.concatenate([first.observation[None, :, 4:], steps.observation[..., 4:]])[:, 0]
    assert len(np.unique(goals, axis=0)) == 2
    assert not np.array_equal(steps.observation[29, 0], steps.extras["next_obs"][29, 0])


def test_spaces(tiny):
    env = HomingStoa(tiny, flat=False)
    assert bool(env.action_space().contains(jnp.array([1.0, -1.0])))
    assert not bool(env.action_space().contains(jnp.array([1.5, 0.0])))
    assert HomingStoa(tiny).observation_space().shape == (6,)
    assert env.observation_space().sample(jax.random.key(0))["desired_goal"].shape == (2,)
    with pytest.raises(HomingError, match="observation_space"):
        env.state_space()
