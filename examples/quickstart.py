"""Train a small agent to reach goals, print its curves and record a video: a minute or two on two CPU cores."""

import shutil
import time
from pathlib import Path

import homing
from homing.runs.progress import sparkline
from homing.viz.render import film_run

OUT = Path("quickstart")


def main() -> None:
    begin = time.perf_counter()
    shutil.rmtree(OUT, ignore_errors=True)

    # Two seeds of contrastive RL on an arm with two joints, in one compiled program.
    run = homing.train("crl", "reacher", seeds=2, preset="quickstart", episode_length=200, out=OUT / "run")
    print(f"\nTrained in {time.perf_counter() - begin:.0f} s. Success rate during training:")
    for seed in (0, 1):
        curve = [value for _, value in run.curve(seed)]
        print(f"  seed {seed}  {sparkline(curve)}  {curve[-1]:.0%} at the end")

    # The policy is a function of state and goal.
    policy = run.policy(seed=0)
    env = homing.make("reacher", num_envs=1)
    print(f"\nThe policy maps a state of {env.spec.state_dim} and a goal of {env.spec.goal_dim} numbers")
    print(f"to an action: {policy([0.0] * env.spec.state_dim, [0.1, 0.1, 0.01])}")

    film_run(run.path, OUT / "reacher.gif", picture=OUT / "reacher.png", steps=300, width=320, height=240)
    print(f"\nA video is in {OUT / 'reacher.gif'}, an image of a reached goal in {OUT / 'reacher.png'},")
    print(f"the metrics are in {run.path / 'metrics.jsonl'}. What to try next:")
    print("  homing play reacher                  (click a goal: a trained agent moves there)")
    print(f"  homing play {run.path}          (the same with the agent trained here)")
    print(f"  homing report {run.path} --out {OUT / 'report.html'}")
    print(f"  homing eval {run.path} --episodes 1000")
    print("  homing train crl point_u_maze --preset quickstart --steps 1M --seeds 4")
    print("  homing train best ant --seeds 5       (on a GPU)")


if __name__ == "__main__":
    main()
