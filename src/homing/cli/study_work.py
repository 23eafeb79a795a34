"""The command of a study's workers: `homing study work`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated

import tyro

from homing.bounds import check_values
from homing.cli.arguments import Flag


def work(
    study: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")],
    program: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[PROGRAM]")] = None,
    workers: int | None = None,
    dead_after: float = 180.0,
    wait: bool = True,
    claim: Flag = False,
    cpu: Flag = False,
) -> None:
    """Train open programs of a study, beside workers on other machines that share its folder.

    Args:
        study: folder of the study
        program: train this program only; workers start their processes this way
        workers: programs that train at once; by default one for each GPU, or one on the CPU
        dead_after: seconds without a heartbeat after which another worker takes over this worker's programs
        wait: stay while other workers train, to take over programs that they leave
        claim: train the program only if no other worker has it
        cpu: compute on the CPU, even if there is a GPU
    """
    from homing.studies import shared, worker

    check_values(workers=workers, dead_after=dead_after)
    if program is None:
        say = functools.partial(print, flush=True)
        code = shared.work(study, say, workers=workers, cpu=cpu, wait=wait, dead_after=dead_after)
        raise SystemExit(code)
    if claim:
        raise SystemExit(shared.train_claimed(study, program, dead_after))
    raise SystemExit(worker.work_here(study, program))
