"""The command that a newcomer runs first: `quickstart`."""

from __future__ import annotations

from pathlib import Path

from homing.cli.arguments import Flag
from homing.cli.paths import check_folder


def quickstart(out: Path = Path("quickstart"), cpu: Flag = False) -> None:
    """Train a small agent in a minute or two, print its learning curves and record a film.

    Args:
        out: folder for the run and the film
        cpu: compute on the CPU, even if there is a GPU
    """
    from homing.quickstart import quickstart as train_and_show

    check_folder("--out", out)
    trained = train_and_show(out, cpu=cpu)
    if trained.signum is not None:
        raise SystemExit(128 + trained.signum)
