import runpy
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics, RecordVideo
from gymnasium.wrappers import vector as vector_wrappers
from probes import trapdoor

import homing.adapters.gymnasium as adapter
from homing.envs import env_ids
from homing.errors import ConfigError, UnknownNameError


@pytest.fixture(scope="module")
def tiny_id(tiny):
    adapter.register_envs()
    yield adapter.gymnasium_id(tiny)
    gymnasium.registry.pop(adapter.gymnasium_id(tiny))


@pytest.fixture(scope="module")
def env(tiny_id):
    made = gymnasium.make(tiny_id, render_mode="rgb_array", width=64, height=48, disable_env_checker=True)
    yield made
    made.close()


@pytest.fixture(scope="module")
def vector(tiny_id):
    made = gymnasium.make_vec(
        tiny_id, num_envs=3, max_episode_steps=5, render_mode="rgb_array", width=64, height=48
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def dense(tiny_id):
    return gymnasium.make_vec(tiny_id, num_envs=3, max_episode_steps=5, reward="dense")


RIGHT = np.array([1.0, 0.0], np.float32)


# Ids.


def test_every_environment_can_be_made_by_its_id():
    for env_id in env_ids():
        spec = gymnasium.spec(adapter.gymnasium_id(env_id))
        assert spec.kwargs == {"env_id": env_id} and spec.max_episode_steps == 1000
        made = gymnasium.make(spec)  # nothing is compiled before the first reset
        sizes = made.unwrapped.goal_env.spec
        assert made.action_space.shape == (sizes.action_dim,)
        assert made.observation_space["observation"].shape == (sizes.state_dim,)
    assert adapter.gymnasium_id("ant_u4_maze_eval") == "homing/AntU4MazeEval-v0"


def test_unknown_ids_are_answered_with_the_right_ones():
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean: `AntUMaze`"):
        gymnasium.make("homing/AntUMaz-v0")
    with pytest.raises(UnknownNameError, match="reacher"):
        adapter.HomingEnv("reachr")
    with pytest.raises(UnknownNameError, match="rgb_array"):
        adapter.HomingVectorEnv("reacher", render_mode="ansi")


# One environment.


def test_gymnasium_finds_nothing_wrong(tiny_id):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module="gymnasium")
        # An observation has no bounds; that is what these two say.
        warnings.filterwarnings("ignore", message=".*A Box observation space (min|max)imum value.*")
        made = gymnasium.make(tiny_id, render_mode="rgb_array", width=64, height=48)
        check_env(made.unwrapped)
        made.close()


def test_spaces_are_float32_with_the_bounds_of_actions(env):
    assert isinstance(env.unwrapped, adapter.HomingEnv)
    assert env.action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    assert {name: box.shape for name, box in env.observation_space.items()} == {
        "observation": (4,),
        "achieved_goal": (2,),
        "desired_goal": (2,),
    }
    assert all(box.dtype == np.float32 for box in env.observation_space.values())


def test_a_seed_determines_this_reset_and_the_next(env):
    def goals(seed):
        return np.array(
            [env.reset(seed=seed)[0]["desired_goal"], *(env.reset()[0]["desired_goal"] for _ in "ab")]
        )

    np.testing.assert_array_equal(goals(3), goals(3))
    assert not np.array_equal(goals(3), goals(4))
    assert len(np.unique(goals(3), axis=0)) == 3


def test_options_set_the_goal(env):
    obs, info = env.reset(options={"goal": obs_goal(env)})
    np.testing.assert_array_equal(obs["desired_goal"], obs["achieved_goal"])
    assert info == {"is_success": True, "distance": 0.0}
    assert env.step(np.zeros(2))[1] == 1.0
    with pytest.raises(UnknownNameError):
        env.reset(options={"gaol": [0, 0]})


def obs_goal(env):
    return env.reset(seed=0)[0]["achieved_goal"]


def test_a_fall_terminates_and_the_time_limit_truncates(tiny_id, env):
    env.reset(seed=0)
    for _ in range(60):
        obs, _, terminated, truncated, info = env.step(RIGHT)
        if terminated:
            break
    assert terminated and not truncated and obs["observation"][0] > 2.5
    goals = obs["achieved_goal"], obs["desired_goal"]
    assert env.unwrapped.compute_terminated(*goals, info) is True
    assert env.unwrapped.compute_truncated(*goals, info) is False
    short = gymnasium.make(tiny_id, max_episode_steps=2)
    short.reset(seed=0)
    assert [short.step(RIGHT)[3] for _ in range(2)] == [False, True]


def test_rewards_follow_from_goals_alone(env):
    env.reset(seed=1)
    obs, reward, *_, info = env.step(RIGHT)
    plain = env.unwrapped.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
    assert plain == reward == 0.0 and isinstance(plain, float)
    batch = np.stack([obs["achieved_goal"], obs["desired_goal"]])
    np.testing.assert_array_equal(env.unwrapped.compute_reward(batch, batch, [{}, {}]), [1, 1])


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_goals_that_change_inside_an_episode_are_refused(make, tiny_id):
    """The desired goal of a step would be another than that of its reward."""
    with pytest.raises(ConfigError, match=r"leave out goals\.renew, or use a batch of homing\.make"):
        make(tiny_id, env_options={"goals.renew": 2})


def test_frames_show_the_goal_and_the_robot(env):
    env.reset(seed=0, options={"goal": [1.0, 0.0]})
    first = env.render()
    assert first.shape == (48, 64, 3) and first.dtype == np.uint8
    for _ in range(10):
        env.step(RIGHT)
    assert np.abs(env.render().astype(int) - first).max() > 50
    assert env.metadata["render_fps"] == 20


def test_closing_is_safe_at_any_time(tiny_id):
    made = gymnasium.make(tiny_id)
    made.close()
    made.close()
    silent = adapter.HomingEnv(made.unwrapped.goal_env.id)
    with pytest.warns(UserWarning, match="render_mode"):
        assert silent.render() is None


def test_wrappers_for_one_environment(tiny_id, tmp_path):
    pytest.importorskip("moviepy")
    made = gymnasium.make(tiny_id, render_mode="rgb_array", width=64, height=48, max_episode_steps=4)
    made = RecordVideo(RecordEpisodeStatistics(made), str(tmp_path), episode_trigger=lambda episode: True)
    made.reset(seed=0)
    infos = [made.step(RIGHT)[4] for _ in range(4)]
    made.close()
    assert infos[-1]["episode"]["l"] == 4
    assert (tmp_path / "rl-video-episode-0.mp4").stat().st_size > 500


# A batch.


def test_a_batch_has_gymnasiums_spaces_and_says_how_it_resets(vector):
    assert isinstance(vector.unwrapped, adapter.HomingVectorEnv) and vector.num_envs == 3
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    obs, _ = vector.reset(seed=0)
    assert obs in vector.observation_space and vector.action_space.shape == (3, 2)
    assert vector.single_action_space == gymnasium.spaces.Box(-1, 1, (2,), np.float32)


def test_a_seed_determines_the_batch(vector):
    (first, _), (again, _), (other, _) = vector.reset(seed=3), vector.reset(seed=3), vector.reset()
    np.testing.assert_array_equal(first["desired_goal"], again["desired_goal"])
    assert not np.array_equal(first["desired_goal"], other["desired_goal"])
    assert len(np.unique(first["desired_goal"], axis=0)) == 3
    with pytest.raises(ConfigError, match="one seed"):
        vector.reset(seed=[1, 2, 3])


def test_the_last_observation_of_an_episode_is_its_own(vector):
    obs, _ = vector.reset(seed=0)
    for _ in range(5):
        before, (obs, _, terminated, truncated, info) = obs, vector.step(np.tile(RIGHT, (3, 1)))
    assert truncated.all() and not terminated.any() and info["_final_obs"].all()
    for n, final in enumerate(info["final_obs"]):
        np.testing.assert_array_equal(final["desired_goal"], before["desired_goal"][n])
        assert final["observation"][0] > before["observation"][n, 0] > obs["observation"][n, 0] == 0
        assert final in vector.single_observation_space
    assert not np.array_equal(obs["desired_goal"], before["desired_goal"])
    np.testing.assert_array_equal(info["final_info"]["distance"], info["distance"])


def test_only_ended_environments_have_a_last_observation(monkeypatch):
    probe = lambda id, num_envs, length, *_: trapdoor(num_envs, length)
    monkeypatch.setattr(adapter, "make_with_fixed_goals", probe)
    made = adapter.HomingVectorEnv("probe", num_envs=8, max_episode_steps=3)
    obs, _ = made.reset(seed=1)
    falls = obs["observation"][:, 0] > 0.5
    *_, terminated, truncated, info = made.step(np.zeros((8, 1)))
    assert falls.any() and not falls.all() and not truncated.any()
    np.testing.assert_array_equal(terminated, falls)
    np.testing.assert_array_equal(info["_final_obs"], falls)
    np.testing.assert_array_equal([final is not None for final in info["final_obs"]], falls)
    np.testing.assert_array_equal(
        made.compute_terminated(obs["achieved_goal"], obs["desired_goal"], info), falls
    )


def test_dense_rewards_follow_from_goals_and_the_info_of_the_step(dense):
    obs, _ = dense.reset(seed=0)
    for _ in range(4):
        obs, reward, *_, info = dense.step(np.tile(RIGHT, (3, 1)))
        computed = dense.unwrapped.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
        np.testing.assert_allclose(computed, reward, atol=1e-5)
    # distance − alive + half the control of one actuator, of a goal that is elsewhere
    away = obs["achieved_goal"] + np.array([3.0, 4.0], np.float32)
    infos = [{name: rows[n] for name, rows in info.items()} for n in range(3)]
    for given in (info, infos):
        np.testing.assert_allclose(
            dense.unwrapped.compute_reward(obs["achieved_goal"], away, given), 1 - 5 - 0.5, atol=1e-4
        )
    with pytest.raises(ConfigError, match="copy_info_dict=True"):
        dense.unwrapped.compute_reward(obs["achieved_goal"], away, [{}, {}, {}])
    with pytest.raises(ConfigError, match="2 steps for 3 goals"):
        dense.unwrapped.compute_reward(obs["achieved_goal"], away, infos[:2])


def test_wrappers_for_a_batch(vector, tmp_path):
    counted = vector_wrappers.RecordEpisodeStatistics(vector)
    counted.reset(seed=0)
    infos = [counted.step(np.tile(RIGHT, (3, 1)))[4] for _ in range(5)]
    np.testing.assert_array_equal(infos[-1]["episode"]["l"], [5, 5, 5])
    ours = adapter.RecordEpisodeStatistics(vector)
    ours.reset(seed=0)
    infos = [ours.step(np.tile(RIGHT, (3, 1)))[4] for _ in range(15)]
    lengths = [info["episode"]["l"].tolist() for info in infos if "episode" in info]
    assert lengths == [[5, 5, 5]] * 3 == [list(ours.length_queue)[:3]] * 3
    listed = vector_wrappers.DictInfoToList(vector)
    listed.reset(seed=0)
    *_, infos = listed.step(np.zeros((3, 2)))
    assert len(infos) == 3 and set(infos[0]) >= {"is_success", "distance"}


def test_a_batch_is_filmed(vector, tmp_path):
    frames = vector.reset(seed=0) and vector.render()
    assert len(frames) == 3 and frames[0].shape == (48, 64, 3)
    assert not np.array_equal(frames[0], frames[1])
    pytest.importorskip("moviepy")
    if not hasattr(vector_wrappers, "RecordVideo"):
        pytest.skip("Gymnasium 1.1 films single environments only")
    with pytest.warns(UserWarning, match="same-step"):
        filmed = vector_wrappers.RecordVideo(
            vector, str(tmp_path), video_length=3, step_trigger=lambda t: t == 0
        )
    filmed.reset(seed=0)
    for _ in range(4):
        filmed.step(np.zeros((3, 2)))
    assert (tmp_path / "rl-video-step-0.mp4").stat().st_size > 500


def test_the_example_finds_more_rewards_in_hindsight():
    main = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "gymnasium_goals.py"))["main"]
    main.__globals__["EPISODE"] = 20
    commanded, hindsight = main(num_envs=8)
    assert commanded < 0.2 < hindsight
