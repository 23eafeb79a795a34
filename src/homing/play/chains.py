"""How many goals a policy reaches that are clicked one after the other on the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import viser

from homing.play.server import Player, free_port
from homing.play.session import CATCH_UP, Session

ABOVE = 10.0  # metres over the floor, from where rays of clicks point straight down


@dataclass(frozen=True)
class Chains:
    """What happened along C chains of L clicks.

    reached: [C, L] bool
    seconds: [C, L] of the page's clock until the goal was reached or given up
    falls:   [C, L] int on the way to each goal
    """

    reached: np.ndarray
    seconds: np.ndarray
    falls: np.ndarray

    def summary(self) -> dict[str, Any]:
        """Scores for a model card; the mean time is that of goals that were reached."""
        mean = {"mean_seconds": float(self.seconds[self.reached].mean())} if self.reached.any() else {}
        return {
            "reached": float(self.reached.mean()),
            "reached_without_fall": float((self.reached & (self.falls == 0)).mean()),
            "falls": int(self.falls.sum()),
            **mean,
        }


def random_places(session: Session, seed: int, count: int) -> np.ndarray:
    """Random places [count, 2] where a goal can stay: free of walls, within an arm's reach."""
    free = session.sim.space.free_points(session.sim.margin)
    return free[np.random.default_rng(seed).integers(len(free), size=count)]


def click_chains(session: Session, seeds: Sequence[int], length: int, seconds: float) -> Chains:
    """Click at random places, one chain of `length` for each seed, with at most `seconds` for each goal.

    A chain begins with a fresh start. Within it the robot goes on from where it is, and has a fresh start when it
    falls, as for everyone on the page.
    """
    player = Player(session, free_port(None)[0], "chains of clicks")
    try:
        player.page.show()
        rows = []
        for seed in seeds:
            session.reset()
            rows.append([_clicked(player, xy, seconds) for xy in random_places(session, seed, length)])
    finally:
        player.stop()
    found = np.array(rows, float)  # [C, L, 3]
    return Chains(found[..., 0] > 0, found[..., 1], found[..., 2].astype(int))


def _clicked(player: Player, xy: np.ndarray, seconds: float) -> tuple[bool, float, int]:
    """Whether the page counts a clicked goal as reached, after how many seconds and falls."""
    session = player.session
    goals, falls = session.goals_reached, session.falls
    ray = SimpleNamespace(ray_origin=(*xy, ABOVE), ray_direction=(0.0, 0.0, -1.0))
    player.page.pointer.clicked(cast(viser.SceneClickEvent, ray))
    ticks = 0
    while ticks < round(seconds / CATCH_UP) and session.goals_reached == goals:
        session.advance(CATCH_UP)
        ticks += 1
    return session.goals_reached > goals, ticks * CATCH_UP, session.falls - falls
