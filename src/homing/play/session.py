"""What is played and how: the choices of a person, kept apart from any page."""

from __future__ import annotations

import dataclasses
import queue
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from homing.envs.registry import ALIASES, ENVIRONMENTS, get_spec
from homing.errors import HomingError, unknown
from homing.play.simulation import Simulation
from homing.policies import Policies, find_policies, shipped_names
from homing.policies.store import Which
from homing.training.build import check_alike
from homing.viz import video
from homing.viz.video import Actor

FOREVER = 1_000_000_000  # steps: a person ends an episode, not a clock
HISTORY = 30.0  # seconds of distances that are kept
TRAIL = 20.0  # seconds of the path that are kept
CATCH_UP = 0.25  # seconds of simulation in one go, at most; what is missed beyond is left out
NEW_GOAL_AFTER = 1.0  # seconds at the goal


@dataclasses.dataclass(frozen=True)
class Choice:
    """Whose policy plays, and where; None is its own environment."""

    source: str
    seed: int | None = None
    which: Which = "last"
    env: str | None = None


def check_source(source: str) -> None:
    """Refuse what is neither a policy nor an environment."""
    from homing.policies.store import locate

    if is_environment(source):
        return
    if len(Path(source).parts) == 1 and not Path(source).suffix and not Path(source).exists():
        names = (*ENVIRONMENTS, *ALIASES, *shipped_names())
        if source not in names:
            raise unknown("environment or shipped policy", source, names)
    locate(source)


def is_environment(source: str) -> bool:
    """Whether a name stands for an environment without a policy."""
    named = source in ENVIRONMENTS or source in ALIASES
    return named and source not in shipped_names() and not Path(source).exists()


def make_actor(choice: Choice) -> Actor:
    """One robot that nothing but a fall stops."""
    if is_environment(choice.source):
        return _puppet(choice.env or choice.source)
    policies = find_policies(choice.source, choice.which)
    where = dataclasses.replace(policies.choice, episode_length=FOREVER)
    env = where.make(1, choice.env)
    check_alike(policies, env)
    seed = policies.seeds[policies.place(choice.seed)]
    label = f"{policies.agent_name}, seed {seed}"
    return Actor(label, env, video.greedy(policies.agent), policies.one(seed), policies, seed)


def _puppet(id: str) -> Actor:
    from homing.envs import make
    from homing.viz.render import zero_policy

    env = make(id, num_envs=1, episode_length=FOREVER)
    rest = zero_policy(env)
    return Actor("no policy: push it", env, lambda _, obs, key: rest(obs, key), ())


def environments_for(policies: Policies | None, env: str) -> tuple[str, ...]:
    """Where a policy can act: environments with the same body, objects and kind of goal."""
    own = get_spec(env)
    alike = lambda other: (
        other.body.name == own.body.name
        and other.task.goal == own.task.goal
        and len(other.task.props) == len(own.task.props)
        and other.pipelines()[0] == own.pipelines()[0]
    )
    return (env, *(id for id in ENVIRONMENTS if id != env and alike(ENVIRONMENTS[id])))


class Session:
    """A simulation that follows the clock, and requests that it takes between steps."""

    def __init__(self, choice: Choice, sources: Sequence[str]):
        self.sources = tuple(dict.fromkeys((choice.source, *sources)))
        self.paused, self.speed, self.wander = False, 1.0, False
        self.message = ""
        self.version = 0
        """Counts what is played; a page draws its scene anew when it changes."""
        self._requests: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._play(choice)

    def ask(self, request: Callable[[], Any]) -> None:
        """Have something done between two steps; from any thread."""
        self._requests.put(request)

    def choose(self, choice: Choice) -> None:
        """Play something else; what cannot be played is told and changes nothing."""
        try:
            self._play(choice)
        except HomingError as error:
            self.message = str(error)

    def _play(self, choice: Choice) -> None:
        sim = Simulation(make_actor(choice))
        self.choice, self.sim, self.message = choice, sim, ""
        self.time, self._owed, self._near_for = 0.0, 0.0, 0.0
        self.pace: float | None = None
        """Seconds of simulation for each second of the clock, lately."""
        self.forget()
        self.version += 1

    # What a person does, called through `ask`.

    def aim(self, xy: tuple[float, float], part: int = 0) -> None:
        self.sim.aim(xy, part)
        self._near_for = 0.0

    def push(self, direction: tuple[float, float], speed: float) -> None:
        self.sim.push(direction, speed)

    def new_goal(self) -> None:
        self.sim.new_goal()
        self._near_for = 0.0

    def restart(self) -> None:
        self.sim.restart()
        self.forget()

    def forget(self) -> None:
        """Path and distances begin anew."""
        self.trail: deque[np.ndarray] = deque([self.place()], maxlen=round(TRAIL / self.sim.dt))
        self.history: deque[tuple[float, float]] = deque()

    # Going on.

    def work(self, seconds: float) -> int:
        """Do what was asked for, then take the steps that this much time allows; returns how many."""
        while True:
            try:
                self._requests.get_nowait()()
            except queue.Empty:
                break
        if self.paused:
            self._owed = 0.0
            return 0
        self._owed += seconds * self.speed
        most = max(1, round(CATCH_UP / self.sim.dt))
        steps = min(int(self._owed / self.sim.dt), most)
        for _ in range(steps):
            self._step()
        self._owed = min(self._owed - steps * self.sim.dt, self.sim.dt)
        if seconds > 0:
            recent = steps * self.sim.dt / seconds
            # Over about a second, so that it can be read.
            mix = min(1.0, seconds)
            self.pace = recent if self.pace is None else (1 - mix) * self.pace + mix * recent
        return steps

    def _step(self) -> None:
        moment = self.sim.step()
        self.time += self.sim.dt
        if moment.fell:
            self.forget()
        self.trail.append(self.place())
        self.history.append((self.time, moment.distance))
        while self.history[0][0] < self.time - HISTORY:
            self.history.popleft()
        self._near_for = self._near_for + self.sim.dt if moment.reached else 0.0
        if self.wander and self._near_for >= NEW_GOAL_AFTER:
            self.new_goal()

    def place(self) -> np.ndarray:
        """x and y [2] of what goals are about."""
        return self.sim.space.points(self.sim.moment.achieved)[0]
