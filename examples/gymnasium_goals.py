"""Hindsight by hand in Gymnasium: how many more rewards a batch of random episodes has for the goals it achieved."""

import gymnasium
import numpy as np
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import homing.adapters.gymnasium  # noqa: F401  registers homing/…

EPISODE = 100


def main(num_envs: int = 64) -> tuple[float, float]:
    env = gymnasium.make_vec("homing/Reacher-v0", num_envs=num_envs, max_episode_steps=EPISODE)
    env = RecordEpisodeStatistics(env)
    obs, _ = env.reset(seed=0)
    env.action_space.seed(0)
    achieved, desired, rewards = [], [], []
    for _ in range(EPISODE):
        goals = obs["desired_goal"]
        obs, reward, terminated, truncated, info = env.step(env.action_space.sample())
        ended = terminated | truncated
        # Where an episode ended, `obs` is already of the next one.
        reached = obs["achieved_goal"].copy()
        for n in np.flatnonzero(ended):
            reached[n] = info["final_obs"][n]["achieved_goal"]
        achieved.append(reached)
        desired.append(goals)
        rewards.append(reward)
    assert ended.all() and (info["episode"]["l"] == EPISODE).all()

    # The same transitions, as if the last achieved goal had been the commanded one.
    batch = env.unwrapped
    commanded = batch.compute_reward(np.array(achieved), np.array(desired), {})
    hindsight = batch.compute_reward(np.array(achieved), achieved[-1], {})
    assert np.array_equal(commanded, rewards)
    return float(commanded.mean()), float(hindsight.mean())


if __name__ == "__main__":
    print("rewarded transitions: {:.1%} for commanded goals, {:.1%} in hindsight".format(*main()))
