"""The command `share`: a policy as one page that anybody can open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import tyro

from homing.bounds import check_values
from homing.cli.arguments import Flag
from homing.cli.paths import check_file


def share(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN|POLICY")],
    out: Path,
    seed: int | None = None,
    which: Literal["last", "best"] = "last",
    env: str | None = None,
    recorded: Flag = False,
    start_seed: int = 0,
) -> None:
    """Write one HTML file in which a policy acts: no server, no installation, no network.

    The browser computes physics, policy and critic map. With physics other than the spring engine, the page replays
    recordings of several goals.

    Args:
        what: run folder, policy file or shipped policy
        out: the page to write; its name ends in .html
        seed: seed of the policy; the first of the run by default
        which: the last policy of a run or its best
        env: act in this environment instead of the policy's own
        recorded: write recordings even where the browser could simulate
        start_seed: random seed of starts and goals
    """
    from homing.envs.registry import resolve
    from homing.share.page import check_out, write_page
    from homing.share.sources import check_source, make_actor
    from homing.training.device import choose_device

    check_values(seed=seed, start_seed=start_seed)
    check_out(check_file("--out", out))
    check_source(what)
    if env is not None:
        resolve(env)
    choose_device(cpu=True)  # a single environment gains nothing from a GPU
    page = write_page(make_actor(what, seed, which, env), out, recorded, start_seed)
    if page.note:
        print(page.note)
    size = page.path.stat().st_size / 1e6
    print(f"wrote {page.path} ({size:.2f} MB): open it in a browser, or send it to somebody")
