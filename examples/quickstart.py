"""Train a small agent to reach goals, print its curves and record a video: what `homing quickstart` does."""

import sys
from pathlib import Path

from homing.quickstart import OUT, quickstart

if __name__ == "__main__":
    run = quickstart(Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
    for seed in (0, 1):
        steps, success = run.curve(seed)[-1]
        print(f"seed {seed}: success rate {success:.0%} after {steps:,} steps")
