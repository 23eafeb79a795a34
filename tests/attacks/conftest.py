"""A run and its export whose files can be damaged; their environment is a probe."""

import json

import jax
import pytest
from file_attacks import split
from report_helpers import SESSION, rows_of
from run_helpers import patch_envs, probe_config

import homing
from homing.agents import make_agent
from homing.policies.store import Spaces
from homing.runs.folder import RunFolder
from homing.runs.policy_files import save_policy


@pytest.fixture(scope="module")
def probe_everywhere():
    """Every environment is the walk; nothing is compiled but small networks."""
    with pytest.MonkeyPatch.context() as patch:
        patch_envs(patch)
        yield


@pytest.fixture(scope="module")
def agent(probe_everywhere):
    return make_agent(probe_config().settings, Spaces("walk", 2, 2, 2))


@pytest.fixture(scope="module")
def shapes(agent):
    return jax.eval_shape(agent.init, jax.random.key(0))


@pytest.fixture(scope="module")
def learner(agent):
    with jax.debug_key_reuse(False):
        return jax.jit(jax.vmap(agent.init))(jax.random.split(jax.random.key(0), 2))


@pytest.fixture(scope="module")
def made(tmp_path_factory, learner):
    """The folder of a run of two seeds, as training leaves it, and its export."""
    home = tmp_path_factory.mktemp("made")
    folder = RunFolder(home / "run")
    with folder.held():
        folder.write_config(probe_config())
        folder.add_session(SESSION)
        folder.append(rows_of((3, 4), points=1))
        folder.write_summary({"status": "finished", "step": 60_000})
    save_policy(folder.path / "policies" / "last.safetensors", learner, 24)
    return folder.path, homing.export(folder.path, home / "walk.safetensors", seed="all")


@pytest.fixture(scope="module")
def content(made):
    """What the exported file says of its arrays."""
    return json.loads(split(made[1].read_bytes())[0]["__metadata__"]["homing"])["content"]
