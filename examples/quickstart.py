"""Train a small agent to reach goals, look at its curves, and film it: a minute or two on two CPU cores."""

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
    print(f"\nTrained in {time.perf_counter() - begin:.0f} s. Share of goals reached, while it learned:")
    for seed in (0, 1):
        curve = [value for _, value in run.curve(seed)]
        print(f"  seed {seed}  {sparkline(curve)}  {curve[-1]:.0%} at the end")

    # What it learned is a function of state and goal.
    policy = run.policy(seed=0)
    env = homing.make("reacher", num_envs=1)
    print(f"\nThe policy answers a state of {env.spec.state_dim} and a goal of {env.spec.goal_dim} numbers")
    print(f"with an action: {policy([0.0] * env.spec.state_dim, [0.1, 0.1, 0.01])}")

    film_run(run.path, OUT / "reacher.gif", picture=OUT / "reacher.png", steps=300, width=320, height=240)
    print(f"\nA film of it is in {OUT / 'reacher.gif'}, reaching a goal in {OUT / 'reacher.png'},")
    print(f"its metrics in {run.path / 'metrics.jsonl'}. What to try next:")
    print("  homing play reacher                  (click a goal: a trained agent goes there, right away)")
    print(f"  homing play {run.path}          (the same with what was trained just now)")
    print(f"  homing report {run.path} --out {OUT / 'report.html'}")
    print(f"  homing eval {run.path} --episodes 1000")
    print("  homing train crl point_u_maze --preset quickstart --steps 1M --seeds 4")
    print("  homing train crl ant --seeds 10      (on a GPU)")


if __name__ == "__main__":
    main()
