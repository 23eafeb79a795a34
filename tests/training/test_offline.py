"""Training on a dataset: what replay holds of it, that policies learn from it, and that runs go on after a stop."""

import dataclasses
import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from data_helpers import walk_dataset, walk_file
from probes import walk
from run_helpers import NET, SAVE, Watch, assert_same_results, no_key_check, probe_config, probe_envs  # noqa: F401

from homing.agents.crl import CRLConfig
from homing.agents.gcbc import GCBCConfig
from homing.config.offpolicy import TrainConfig, offline
from homing.config.run import DataFile, RunConfig, from_json, run_config, to_json
from homing.data import replay
from homing.data.relabel import GOAL_SAMPLERS
from homing.datasets import check_dataset, stored, write_dataset
from homing.datasets.replay import transitions
from homing.errors import ConfigError, HomingError
from homing.runs.folder import RunFolder
from homing.training import runner
from homing.training.build import build

pytestmark = pytest.mark.usefixtures("probe_envs")
LEARN = offline(TrainConfig(batch_size=128, evaluations=2, eval_envs=64), updates=200)
GCBC = GCBCConfig(actor_net=dataclasses.replace(NET, width=32), actor_lr=3e-3, normalise_observations=True)
CRL = CRLConfig(
    critic_net=dataclasses.replace(NET, width=32),
    actor_net=dataclasses.replace(NET, width=32),
    representation_dim=8,
    critic_lr=3e-3,
    actor_lr=3e-3,
    alpha_lr=1e-2,
    gamma=0.9,
    bc_weight=0.1,
)
SETTINGS = {"gcbc": GCBC, "crl": CRL}


def offline_config(agent="gcbc", file=None, **changes):
    config = RunConfig(
        agent=agent,
        env="walk",
        train=LEARN,
        settings=SETTINGS[agent],
        seeds=(3, 4),
        save=SAVE,
        data=DataFile(str(file or walk_file(200))),
    )
    return dataclasses.replace(config, **changes)


# What replay holds.


def test_replay_holds_every_transition_once_and_knows_its_episode():
    """Against a plain loop over the episodes, which have different lengths."""
    dataset, env = walk_dataset(40, ragged=True), walk(1)
    shape = replay.BufferShape(-(-dataset.transitions // 16), 16, 1, 2, 2, 2)
    buffer, episodes = stored(dataset, env, shape)
    assert int(episodes.filled) == dataset.transitions

    @jax.jit
    def read(buffer, episodes):
        place = jnp.arange(dataset.transitions)
        zero = jnp.zeros_like(place)
        left = replay.remaining(buffer, episodes, place, zero)
        return replay.read(buffer.state, episodes, place, zero), left

    states, left = map(np.asarray, read(buffer, episodes))
    position = 0
    for start, end in zip(dataset.starts, dataset.ends, strict=True):
        for row in range(start, end):
            np.testing.assert_array_equal(states[position], dataset.observations[row])
            assert int(left[position]) == end - row
            position += 1
    assert position == dataset.transitions


def test_goals_come_from_the_own_episode():
    dataset, env = walk_dataset(30, length=9, ragged=True), walk(1)
    shape = replay.BufferShape(-(-dataset.transitions // 7), 7, 1, 2, 2, 2)
    buffer, episodes = stored(dataset, env, shape)

    @jax.jit
    def sampled(buffer, episodes, k_index, k_goals):
        index = replay.sample(buffer, episodes, k_index, 400)
        states = replay.read(buffer.state, episodes, index.position, index.env)
        return index.position, states, GOAL_SAMPLERS["future"](buffer, episodes, index, k_goals, 0.9)

    keys = jax.random.key(0), jax.random.key(1)
    position, states, goals = map(np.asarray, sampled(buffer, episodes, *keys))
    assert position.max() < dataset.transitions
    where = {row.tobytes(): i for i, row in enumerate(dataset.observations)}
    for state, goal in zip(states, goals, strict=True):
        row, later = where[state.tobytes()], where[goal.tobytes()]
        assert row < later <= dataset.ends[np.searchsorted(dataset.ends, row)]


def test_terminations_have_no_discount_and_time_limits_do():
    dataset = walk_dataset(30, ragged=True)
    made = transitions(dataset, walk(1))
    assert dataset.terminated.sum() == 10
    np.testing.assert_array_equal(made.discount[np.asarray(made.last)] == 0, dataset.terminated)
    assert np.all(made.discount[~np.asarray(made.last)] == 1)
    commanded = np.linalg.norm(made.achieved_goal - made.obs.goal, axis=-1) < 0.15
    np.testing.assert_array_equal(made.reward == 1, commanded)


def test_without_commanded_goals_the_goal_is_what_was_achieved_in_the_end():
    dataset = dataclasses.replace(walk_dataset(5, ragged=True), goals=None)
    made = transitions(dataset, walk(1))
    first = np.concatenate([[0], np.flatnonzero(made.last)[:-1] + 1])
    np.testing.assert_array_equal(made.obs.goal[first], dataset.observations[dataset.ends])


# Learning.


def success(path):
    rows = RunFolder(path).rows()
    last = max(row["iteration"] for row in rows)
    return [row["eval/success_any"] for row in rows if row["iteration"] == last]


@pytest.mark.parametrize("agent", ["gcbc", "crl"])
def test_a_policy_learned_from_good_data_reaches_goals(agent, tmp_path):
    show = Watch()
    outcome = runner.start(offline_config(agent), tmp_path / "run", show)
    assert outcome.status == "finished"
    assert min(success(tmp_path / "run")) > 0.8
    rows = RunFolder(tmp_path / "run").rows()
    assert [row["step"] for row in rows] == [row["updates"] for row in rows] == [0, 0, 100, 100, 200, 200]
    assert "speed/updates_per_second" in rows[-1] and "speed/env_steps_per_second" not in rows[-1]


def test_a_policy_learned_from_other_actions_reaches_few(tmp_path):
    """With the actions of other transitions nothing can be learned: the test above can fail."""
    dataset = walk_dataset(200)
    mixed = np.random.default_rng(0).permutation(dataset.actions)
    file = write_dataset(tmp_path / "x.npz", dataclasses.replace(dataset, actions=mixed))
    runner.start(offline_config(file=file), tmp_path / "run", Watch())
    assert max(success(tmp_path / "run")) < 0.6


@pytest.mark.parametrize("agent", ["srl", "sac", "td3"])
def test_every_other_off_policy_agent_can_be_trained_on_data(agent):
    """Its programs are traced, not compiled."""
    changes = {"batch_size": 8} | ({"her": True} if agent != "srl" else {"horizon": 10})
    data = DataFile(str(walk_file()))
    loop = build(run_config(agent, "walk", preset_name="quickstart", changes=changes, data=data)).loop
    train = jax.eval_shape(loop.init, jax.random.key(0))
    assert train.env == () and train.replay == ()
    after, _ = jax.eval_shape(loop.epoch, train, jnp.int32(0), jnp.int32(1))
    assert jax.tree.structure(after) == jax.tree.structure(train)


# Runs.


def test_a_run_remembers_its_file_and_goes_on_with_the_same_bits(tmp_path):
    file = write_dataset(tmp_path / "x.npz", walk_dataset(200))  # as much as above: compiled already
    config = offline_config(file=file)

    def stop(iteration):
        if iteration == 2:
            signal.raise_signal(signal.SIGTERM)

    runner.start(config, tmp_path / "whole", Watch())
    assert runner.start(config, tmp_path / "cut", Watch(stop)).status == "stopped"
    kept = json.loads((tmp_path / "cut" / "config.json").read_text())["data"]
    assert kept["path"] == str(file) and len(kept["sha256"]) == 64
    # The data is no part of a checkpoint: moved or changed, the run cannot go on, and says so.
    moved = file.rename(tmp_path / "moved.npz")
    with pytest.raises(ConfigError, match="put it back where the run found it"):
        runner.resume(tmp_path / "cut", Watch())
    write_dataset(file, walk_dataset(21))
    with pytest.raises(ConfigError, match="not the one that the run began with"):
        runner.resume(tmp_path / "cut", Watch())
    moved.rename(file)
    assert runner.resume(tmp_path / "cut", Watch()).status == "finished"
    assert_same_results(tmp_path / "whole", tmp_path / "cut")


def test_a_config_with_data_is_read_back():
    config = offline_config(data=DataFile("/x.npz", "0" * 64))
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


# Refusals, before anything is compiled.


def test_what_needs_data_says_so():
    with pytest.raises(ConfigError, match="pass --data FILE"):
        build(dataclasses.replace(offline_config(), data=None))


def test_data_of_another_environment_is_refused(tmp_path):
    dataset = walk_dataset(3)
    wide = dataclasses.replace(dataset, observations=np.zeros((dataset.rows, 5), np.float32))
    file = write_dataset(tmp_path / "x.npz", wide)
    with pytest.raises(
        ConfigError, match="was made in walk and does not fit probe: state_dim is 5 there and 2"
    ):
        build(offline_config(file=file))
    other = dataclasses.replace(dataset, notes={"env": "mars", "goal_indices": [1, 0]})
    with pytest.raises(ConfigError, match="goals are the entries"):
        check_dataset(other, walk(1), None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 8}, "num_envs has no meaning with data"),
        ({"replay_size": 99}, "replay_size has no meaning"),
        ({"total_steps": 0}, "total_steps"),
    ],
)
def test_settings_of_collection_are_refused_beside_data(changes, message):
    with pytest.raises(ConfigError, match=message):
        run_config("crl", "walk", changes=changes, data=DataFile("x.npz"))


@pytest.mark.parametrize(
    ("agent", "fields", "message"),
    [("ppo", {}, "learns from rollouts of its own policy"), ("crl", {"reward": "dense"}, "no rewards")],
)
def test_agents_and_rewards_that_cannot_use_data_are_refused(agent, fields, message):
    with pytest.raises(ConfigError, match=message):
        run_config(agent, "walk", data=DataFile("x.npz"), **fields)


def test_an_agent_of_commanded_goals_needs_them(tmp_path):
    bare = dataclasses.replace(walk_dataset(3), goals=None)
    file = write_dataset(tmp_path / "x.npz", bare)
    config = run_config("sac", "walk", preset_name="quickstart", data=DataFile(str(file)))
    with pytest.raises(ConfigError, match="has none; use hindsight"):
        build(config)


def test_steps_are_updates_and_default_to_those_of_the_preset():
    assert run_config("crl", "walk", data=DataFile("x.npz")).train.total_steps == 3_125_000
    asked = run_config("crl", "walk", changes={"total_steps": 70}, data=DataFile("x.npz")).train
    assert (asked.total_steps, asked.unroll_length, asked.num_envs) == (70, 70, 1)
    assert offline(asked) == asked


def test_seeds_share_the_data():
    one, five = (build(offline_config(seeds=tuple(range(n)))).plan for n in (1, 5))
    assert five.bytes_in_all - one.bytes_in_all == 4 * one.bytes_per_seed
    assert one.shared_bytes > 0 and "replay" not in one.bytes_by_part
    assert "nothing is collected" in str(one)


def test_a_broken_file_is_one_message(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(HomingError, match="damaged or not an npz file"):
        build(offline_config(file=tmp_path / "x.npz"))
