"""An interactive session: a simulation in real time, and the commands of the people who watch it."""

from __future__ import annotations

import math
import queue
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from homing.errors import ConfigError, HomingError
from homing.play.reporting import LOG, one_line
from homing.play.simulation import Simulation
from homing.play.sources import Choice, check_offered, make_actor

HISTORY = 30.0  # seconds of distances that are kept
TRAJECTORY = 20.0  # seconds of the trajectory that are kept
CATCH_UP = 0.25  # seconds of simulation in one call, at most; a longer delay is skipped
NEW_GOAL_AFTER = 1.0  # seconds at the goal
MAX_COMMANDS = 64  # waiting; more are dropped
SPEEDS = (0.1, 2.0)  # times real time
PUSHES = (0.5, 10.0)  # m/s, or rad/s of an arm
FARTHEST = 1e6  # metres

Command = Callable[[], object]


class Session:
    """A simulation that follows the clock, and executes commands between steps."""

    def __init__(self, choice: Choice, sources: Sequence[str]):
        self.sources = tuple(dict.fromkeys((choice.source, *sources)))
        self.paused, self.auto_goal = False, False
        self._speed = 1.0
        self.message = ""
        self.version = 0
        """Counts the simulations so far; the page builds its scene again when it changes."""
        self._commands: queue.Queue[Command] = queue.Queue(MAX_COMMANDS)
        self._start(choice)

    @property
    def speed(self) -> float:
        """Seconds of simulation for each second of the clock, as requested."""
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        self._speed = within(value, SPEEDS, "speed")

    def submit(self, command: Command) -> None:
        """Have a command executed between two steps; from any thread. A full queue drops it."""
        try:
            self._commands.put_nowait(command)
        except queue.Full:
            LOG.warning("homing play: commands come faster than they can be executed; one is dropped")

    def choose(self, choice: Choice) -> None:
        """Simulate another of the offered choices; on an error the current one goes on."""
        check_offered(choice, self.choice.source, self.sim.actor, self.sources)
        self._start(choice)

    def _start(self, choice: Choice) -> None:
        sim = Simulation(make_actor(choice))
        self.choice, self.sim, self.message = choice, sim, ""
        self.time, self._pending_seconds, self._seconds_at_goal = 0.0, 0.0, 0.0
        self.real_time_factor: float | None = None
        """Seconds of simulation for each second of the clock, measured over about the last second."""
        self.clear_history()
        self.version += 1

    # Commands, called through `submit`.

    def set_goal(self, xy: tuple[float, ...], part: int = 0) -> None:
        """Move a point of the goal to x, y or x, y, z, or to the nearest that can be reached, with a message."""
        if not all(abs(value) <= FARTHEST for value in xy):  # also refuses NaN
            raise ConfigError(f"a goal needs finite coordinates within {FARTHEST:g} m")
        if not 0 <= part < len(self.sim.space.axes):
            raise ConfigError(f"this goal has {len(self.sim.space.axes)} points, and none is number {part}")
        space = self.sim.space
        self.message = " ".join(space.settled(space.at(xy, part, self.sim.goal))[1])
        self.sim.set_goal(xy, part)
        self._seconds_at_goal = 0.0

    def push(self, direction: tuple[float, float], speed: float) -> None:
        if not all(abs(value) <= FARTHEST for value in direction):
            raise ConfigError(f"a push needs a finite direction within {FARTHEST:g} m")
        self.sim.push(direction, within(speed, PUSHES, "push speed"))

    def sample_goal(self) -> None:
        self.sim.sample_goal()
        self._seconds_at_goal = 0.0

    def reset(self) -> None:
        self.sim.reset()
        self.clear_history()

    def clear_history(self) -> None:
        """Forget the trajectory and the distances."""
        self.trajectory: deque[np.ndarray] = deque([self.position()], maxlen=round(TRAJECTORY / self.sim.dt))
        self.history: deque[tuple[float, float]] = deque()

    # Time.

    def advance(self, seconds: float) -> int:
        """Execute waiting commands, then the steps that this much clock time allows; returns their number."""
        self._execute_commands()
        if self.paused:
            self._pending_seconds = 0.0
            return 0
        self._pending_seconds += seconds * self.speed
        limit = max(1, round(CATCH_UP / self.sim.dt))
        steps = min(int(self._pending_seconds / self.sim.dt), limit)
        for _ in range(steps):
            self._step()
        self._pending_seconds = min(self._pending_seconds - steps * self.sim.dt, self.sim.dt)
        self._measure(steps, seconds)
        return steps

    def _execute_commands(self) -> None:
        """A command that fails leaves a message, and the session goes on."""
        for _ in range(self._commands.qsize()):
            try:
                self._commands.get_nowait()()
            except HomingError as error:
                self.message = str(error)
            except Exception as error:
                # Anything may be wrong with a file that is loaded, and no command may end the server.
                self.message = one_line(error)
                LOG.warning("homing play: %s", self.message)

    def _measure(self, steps: int, seconds: float) -> None:
        if seconds <= 0:
            return
        recent = steps * self.sim.dt / seconds
        mix = min(1.0, seconds)
        last = self.real_time_factor
        self.real_time_factor = recent if last is None else (1 - mix) * last + mix * recent

    def _step(self) -> None:
        snapshot = self.sim.step()
        self.time += self.sim.dt
        if not snapshot.is_finite:
            self.message = "the simulation diverged and was reset"
            snapshot = self.sim.reset()
            self.clear_history()
        if snapshot.terminated:
            self.clear_history()
        self.trajectory.append(self.position())
        self.history.append((self.time, snapshot.distance))
        while self.history[0][0] < self.time - HISTORY:
            self.history.popleft()
        self._seconds_at_goal = self._seconds_at_goal + self.sim.dt if snapshot.reached else 0.0
        if self.auto_goal and self._seconds_at_goal >= NEW_GOAL_AFTER:
            self.sample_goal()

    def position(self) -> np.ndarray:
        """x and y [2] of the achieved goal's first point."""
        return self.sim.space.points(self.sim.snapshot.achieved)[0]


def within(value: float, limits: tuple[float, float], name: str) -> float:
    """A finite number clamped to its limits; ConfigError for NaN and infinities."""
    low, high = limits
    if not math.isfinite(value):
        raise ConfigError(f"{name} is a number from {low:g} to {high:g}, not {value}")
    return min(max(float(value), low), high)
