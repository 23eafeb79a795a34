"""Policies of a run: plain arrays that come back bit for bit, or a message that names the file."""

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from homing.agents.crl import CRL, CRLConfig
from homing.errors import HomingError
from homing.networks import NetConfig, parameters
from homing.runs.policy_files import load_policy, save_policy
from homing.types import Obs


class Spec:
    state_dim, action_dim, goal_dim = 3, 2, 1


@pytest.fixture(scope="module")
def agent():
    net = NetConfig(width=8)
    return CRL(CRLConfig(critic_net=net, actor_net=net, representation_dim=4), Spec)


@pytest.fixture(scope="module")
def shapes(agent):
    return jax.eval_shape(agent.init, jax.random.key(0))


@pytest.fixture(scope="module")
def learner(agent):
    return jax.jit(lambda key: jax.vmap(agent.init)(jax.random.split(key, 2)))(jax.random.key(0))


def test_policies_are_plain_arrays_without_optimisers(tmp_path, agent, shapes, learner):
    path = tmp_path / "p" / "last.safetensors"
    save_policy(path, learner, 7)
    assert not any("opt_state" in name for name in load_file(path))
    read, iteration = load_policy(path, shapes, 2)
    assert iteration == 7
    assert jax.tree.structure(read) == jax.tree.structure(parameters(learner))
    jax.tree.map(np.testing.assert_array_equal, read, parameters(learner))
    obs = Obs(state=np.ones((2, 5, 3), np.float32), goal=np.ones((2, 5, 1), np.float32))
    act = jax.jit(jax.vmap(lambda params, obs: agent.act(params, obs, jax.random.key(0), explore=False)))
    np.testing.assert_array_equal(act(read, obs), act(learner, obs))


def test_equal_policies_make_equal_files(tmp_path, learner):
    for name in "ab":
        save_policy(tmp_path / name, learner, 7)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_missing_or_broken_policy_is_explained(tmp_path, shapes):
    with pytest.raises(HomingError, match="does not exist yet"):
        load_policy(tmp_path / "last.safetensors", shapes, 2)
    (tmp_path / "bad.safetensors").write_bytes(b"no policy at all")
    with pytest.raises(HomingError, match="not a policy file"):
        load_policy(tmp_path / "bad.safetensors", shapes, 2)


@pytest.mark.parametrize(("seeds", "part"), [(1, r"\[2\], not \[1\]"), (3, r"not \[3\]")])
def test_policies_of_other_seeds_are_refused(tmp_path, shapes, learner, seeds, part):
    save_policy(tmp_path / "last.safetensors", learner, 7)
    with pytest.raises(HomingError, match=part):
        load_policy(tmp_path / "last.safetensors", shapes, seeds)


def test_weights_of_another_shape_are_refused(tmp_path, shapes, learner):
    grown = jax.tree.map(lambda x: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)]), learner)
    save_policy(tmp_path / "last.safetensors", grown, 7)
    with pytest.raises(HomingError, match="not those of its config"):
        load_policy(tmp_path / "last.safetensors", shapes, 2)
