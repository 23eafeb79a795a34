"""SAC with hindsight of Stable-Baselines3 learns Reacher: `python examples/sb3_her.py [steps] [file.jsonl]`."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback

from homing.adapters.sb3 import HomingVecEnv

ENV, EPISODE, NUM_ENVS, EVERY = "reacher", 100, 8, 5_000


class Evaluation(BaseCallback):
    """Every few thousand steps, 100 episodes with the mean action; one line of JSON for each evaluation."""

    def __init__(self, path: Path):
        super().__init__()
        self.env = HomingVecEnv(ENV, num_envs=100, max_episode_steps=EPISODE)
        self.path, self.begin, self.due = path, time.perf_counter(), 0

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.due:
            self.due += EVERY
            self.evaluate()
        return True

    def evaluate(self) -> None:
        self.env.seed(0)
        obs, near = self.env.reset(), []
        for _ in range(EPISODE):
            action, _ = self.model.predict(obs, deterministic=True)
            obs, _, _, infos = self.env.step(action)
            near.append([info["is_success"] for info in infos])
        row = {
            "step": self.num_timesteps,
            "updates": self.model._n_updates,
            "eval/success_any": float(np.any(near, axis=0).mean()),
            "eval/success_end": float(np.mean(near[-1])),
            "time/elapsed": round(time.perf_counter() - self.begin, 1),
        }
        print(row, flush=True)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def main(steps: int = 80_000, path: str = "sb3_her.jsonl") -> None:
    torch.set_num_threads(1)  # the networks are small
    env = HomingVecEnv(ENV, num_envs=NUM_ENVS, max_episode_steps=EPISODE)
    model = SAC(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        learning_starts=2 * NUM_ENVS * EPISODE,
        buffer_size=200_000,
        batch_size=256,
        gradient_steps=2,
        learning_rate=1e-3,
        gamma=0.95,
        seed=0,
    )
    Path(path).unlink(missing_ok=True)
    model.learn(steps, callback=Evaluation(Path(path)))


if __name__ == "__main__":
    main(*(kind(text) for kind, text in zip((int, str), sys.argv[1:], strict=False)))
