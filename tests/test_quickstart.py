"""The first thing a newcomer runs does what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "examples" / "quickstart.py"


@pytest.mark.slow
def test_quickstart_reaches_its_goals_and_leaves_a_film(tmp_path):
    env = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=800,
        check=True,
    )
    shares = [int(share) for share in re.findall(r"(\d+)% at the end", done.stdout)]
    assert len(shares) == 2
    assert min(shares) >= 80
    for name in ("reacher.gif", "reacher.png", "run/metrics.jsonl"):
        assert (tmp_path / "quickstart" / name).stat().st_size > 0
