import json
import runpy
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import stable_baselines3 as sb3
from probes import trapdoor, walk
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor

import homing.adapters.sb3 as adapter
from homing.adapters.gymnasium import HomingEnv
from homing.errors import ConfigError, UnknownNameError

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "sb3_her.py"


@pytest.fixture
def probe(monkeypatch):
    """A function that makes a batch of a probe."""

    def make(kind, num_envs, length, **settings):
        monkeypatch.setattr(adapter, "make_with_fixed_goals", lambda *_: kind(num_envs, length))
        return adapter.HomingVecEnv("probe", **settings)

    return make


def test_falls_and_time_limits_are_told_apart_with_true_last_observations(probe):
    env = probe(trapdoor, 8, 2)
    env.seed(1)
    obs = env.reset()
    falls = obs["observation"][:, 0] > 0.5
    assert falls.any() and not falls.all()
    for end in (falls, ~falls):
        after, rewards, done, infos = env.step(np.zeros((8, 1)))
        assert done[end].all() and rewards.dtype == np.float32
        for n in np.flatnonzero(end):
            assert infos[n]["TimeLimit.truncated"] == (not falls[n])
            assert infos[n]["terminal_observation"]["observation"] == obs["observation"][n]
        for n in np.flatnonzero(~done):
            assert "terminal_observation" not in infos[n] and "is_success" in infos[n]
    assert after["observation"].shape == (8, 1)


def test_a_seed_determines_the_episodes(probe):
    env = probe(walk, 3, 5)
    env.seed(7)
    first, second = env.reset(), env.reset()
    env.seed(7)
    np.testing.assert_array_equal(env.reset()["desired_goal"], first["desired_goal"])
    assert not np.array_equal(first["desired_goal"], second["desired_goal"])


def test_options_set_goals(probe):
    env = probe(walk, 2, 5)
    env.set_options({"goal": [0.5, 0.25]})
    np.testing.assert_array_equal(env.reset()["desired_goal"], [[0.5, 0.25]] * 2)
    assert not np.array_equal(env.reset()["desired_goal"], [[0.5, 0.25]] * 2)
    env.set_options([{"goal": [0.5, 0.25]}, {}])
    with pytest.raises(ConfigError, match="all environments"):
        env.reset()
    env.set_options({"gaol": 1})
    with pytest.raises(UnknownNameError):
        env.reset()


def test_attributes_and_methods_are_the_batchs(probe):
    env = probe(walk, 3, 5)
    assert env.get_attr("num_envs", indices=[0, 2]) == [3, 3] and not env.has_attr("nothing")
    env.set_attr("note", 1)
    assert env.note == 1 and env.env_is_wrapped(object, 1) == [False]
    with pytest.raises(ConfigError, match="share"):
        env.set_attr("note", 2, indices=0)
    (rewards,) = env.env_method("compute_reward", np.zeros((5, 2)), np.eye(5, 2), [{}] * 5, indices=[0])
    np.testing.assert_array_equal(rewards, [0, 0, 1, 1, 1])


def test_hindsight_and_monitor_take_the_batch(probe):
    env = VecMonitor(probe(walk, 4, 5))
    model = sb3.SAC(
        "MultiInputPolicy",
        env,
        replay_buffer_class=sb3.HerReplayBuffer,
        learning_starts=40,
        batch_size=64,
        buffer_size=400,
        policy_kwargs={"net_arch": [16]},
        seed=0,
    )
    model.learn(100)
    assert model._n_updates > 0 and model.ep_info_buffer[0]["l"] == 5 and len(model.ep_success_buffer)
    batch = model.replay_buffer.sample(256)
    reached = batch.next_observations["achieved_goal"] - batch.next_observations["desired_goal"]
    np.testing.assert_array_equal(batch.rewards[:, 0], (reached.norm(dim=-1) < 0.15).float())
    assert 0.1 < float(batch.rewards.mean()) < 0.9
    assert float(batch.dones.sum()) == 0  # time limits are no terminations


def test_hindsight_with_dense_rewards_reads_the_info(tiny):
    env = adapter.HomingVecEnv(tiny, num_envs=2, max_episode_steps=5, reward="dense")
    settings = dict(learning_starts=10, buffer_size=200, policy_kwargs={"net_arch": [8]})
    her = dict(replay_buffer_class=sb3.HerReplayBuffer, replay_buffer_kwargs={"copy_info_dict": True})
    model = sb3.SAC("MultiInputPolicy", env, **her, **settings)
    model.learn(24)
    batch = model.replay_buffer.sample(64)
    away = (batch.next_observations["achieved_goal"] - batch.next_observations["desired_goal"]).norm(dim=-1)
    cost = 0.5 * (batch.actions**2).sum(dim=-1)
    np.testing.assert_allclose(batch.rewards[:, 0], 1 - away - cost, atol=1e-4)
    her["replay_buffer_kwargs"] = {}
    with pytest.raises(ConfigError, match="copy_info_dict=True"):
        sb3.SAC("MultiInputPolicy", env, **her, **settings).learn(24)


def test_goals_that_change_inside_an_episode_are_refused(tiny):
    with pytest.raises(ConfigError, match=r"leave out goals\.renew, or use a batch of homing\.make"):
        adapter.HomingVecEnv(tiny, env_options={"goals.renew": "reached"})


def test_images_are_tiled(tiny):
    env = adapter.HomingVecEnv(tiny, num_envs=2, render_mode="rgb_array", width=64, height=48)
    env.reset()
    assert env.render().shape == (96, 64, 3)
    env.close()


@pytest.mark.filterwarnings("ignore:.*goal-conditioned.*:UserWarning")
def test_stable_baselines_finds_nothing_wrong_with_one_environment(tiny):
    check_env(HomingEnv(tiny), warn=True, skip_render_check=True)


def test_the_example_runs(tmp_path, capsys):
    main = runpy.run_path(str(EXAMPLE))["main"]
    main.__globals__.update(EPISODE=5, EVERY=60)
    main(120, str(tmp_path / "curve.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [8, 64, 120] and rows[-1]["updates"] > 0
    assert all(0 <= row["eval/success_end"] <= row["eval/success_any"] <= 1 for row in rows)
