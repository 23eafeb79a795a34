"""An interactive session: a simulation in real time, and the commands of the people who watch it."""

from __future__ import annotations

import dataclasses
import math
import queue
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from homing.errors import ConfigError, HomingError
from homing.play.reporting import LOG, one_line
from homing.play.simulation import Simulation, Snapshot
from homing.play.sources import Choice, check_offered, make_actor
from homing.policies.following import Follower, follower
from homing.viz.video import Actor

HISTORY = 30.0  # seconds of distances that are kept
TRAJECTORY = 20.0  # seconds of the trajectory that are kept
CATCH_UP = 0.25  # seconds of simulation in one call, at most; a longer delay is skipped
NEW_GOAL_AFTER = 1.0  # seconds at the goal
FALL_SECONDS = 1.2  # that a fallen robot is shown before its fresh start
MAX_COMMANDS = 64  # waiting; more are dropped
SPEEDS = (0.1, 2.0)  # times real time
PUSHES = (0.5, 10.0)  # m/s, or rad/s of an arm
FARTHEST = 1e6  # metres

Command = Callable[[], object]


class Session:
    """A simulation that follows the clock, and executes commands between steps."""

    def __init__(self, choice: Choice, sources: Sequence[str], actor: Actor | None = None, seed: int = 0):
        """`actor` is that of the choice, where it was made already; starts and new goals follow from `seed`."""
        self.seed = seed
        self.sources = tuple(dict.fromkeys((choice.source, *sources)))
        self.paused, self.auto_goal = False, False
        self._speed = 1.0
        self.message = ""
        self.version = 0
        """Counts the simulations so far; the page builds its scene again when it changes."""
        self._commands: queue.Queue[Command] = queue.Queue(MAX_COMMANDS)
        self._start(choice, actor)

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

    def _start(self, choice: Choice, actor: Actor | None = None) -> None:
        sim = Simulation(actor if actor is not None else make_actor(choice), self.seed)
        self.choice, self.sim, self.message = choice, sim, ""
        self.time, self._pending_seconds, self._seconds_at_goal = 0.0, 0.0, 0.0
        self._seconds_to_goal = 0.0
        self.goals_reached = self.falls = 0
        self._counted = False
        self._fallen: Snapshot | None = None
        self._fallen_seconds = 0.0
        self._follower: Follower | None = follower(
            choice.source, choice.which, sim.actor.policies, sim.actor.seed
        )
        self.real_time_factor: float | None = None
        """Seconds of simulation for each second of the clock, measured over about the last second."""
        self.clear_history()
        self.version += 1

    @property
    def shown(self) -> Snapshot:
        """What to draw: the robot as it is, or for a moment as it fell."""
        return self.sim.snapshot if self._fallen is None else self._fallen

    @property
    def has_fallen(self) -> bool:
        """Whether the robot is shown as it fell, just before its fresh start."""
        return self._fallen is not None

    @property
    def policy_step(self) -> int | None:
        """Environment step of the policy of a run that is followed; None for all others."""
        return None if self._follower is None else self._follower.step

    @property
    def newer_waits(self) -> bool:
        """Whether the run has written a newer policy, which acts from the next goal on."""
        return self._follower is not None and self._follower.has_newer

    # Commands, called through `submit`.

    def set_goal(self, xy: tuple[float, ...], part: int = 0) -> None:
        """Move a point of the goal to x, y or x, y, z, or to the nearest that can be reached, with a message."""
        if not all(abs(value) <= FARTHEST for value in xy):  # also refuses NaN
            raise ConfigError(f"a goal needs finite coordinates within {FARTHEST:g} m")
        if not 0 <= part < len(self.sim.space.axes):
            raise ConfigError(f"this goal has {len(self.sim.space.axes)} points, and none is number {part}")
        wanted = self.sim.space.at(xy, part, self.sim.goal)
        self.sim.set_goal(xy, part)
        self.message = self._moved(wanted, part)
        self._goal_changed()

    def _moved(self, goal: np.ndarray, part: int) -> str:
        """Why a point of the goal is not where it was to be, in words; empty if it is."""
        space = self.sim.space
        wanted, taken = (space.place(one, part) for one in (goal, self.sim.goal))
        if np.allclose(wanted, taken, atol=1e-3):
            return ""
        why = space.fault(tuple(wanted), part) or "too close to a wall"
        return f"{_place(wanted)} is {why}; using the nearest good place, {_place(taken)}"

    def sample_goal(self) -> None:
        self.sim.sample_goal()
        self.message = ""
        self._goal_changed()

    def _goal_changed(self) -> None:
        self._seconds_at_goal, self._seconds_to_goal, self._counted = 0.0, 0.0, False
        self._take_newer()

    def _take_newer(self) -> None:
        """Act with the newest policy of the run, if there is a newer one; the program stays the same."""
        if self._follower is None or not self._follower.has_newer:
            return
        try:
            newer = self._follower.read()
        except HomingError as error:
            self.message = f"the newer policy cannot be read: {error}"
            return
        if newer is None:
            self.message = "the newer policy has diverged; the one before acts on"
            return
        self.sim.learner = newer.learner
        self.sim.actor = dataclasses.replace(self.sim.actor, learner=newer.learner, policies=newer.policies)

    def push(self, direction: tuple[float, float], speed: float) -> None:
        if not all(abs(value) <= FARTHEST for value in direction):
            raise ConfigError(f"a push needs a finite direction within {FARTHEST:g} m")
        self.sim.push(direction, within(speed, PUSHES, "push speed"))

    def reset(self) -> None:
        self._fallen = None
        self._take_newer()
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
        if self._fallen is not None:
            self._lie(seconds)
            return 0
        self._pending_seconds += seconds * self.speed
        limit = max(1, round(CATCH_UP / self.sim.dt))
        steps = min(int(self._pending_seconds / self.sim.dt), limit)
        for _ in range(steps):
            self._step()
            if self._fallen is not None:
                break
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
        before = self.sim.snapshot
        snapshot = self.sim.step()
        self.time += self.sim.dt
        if not snapshot.is_finite:
            self.message = "the simulation diverged and was reset"
            snapshot = self.sim.reset()
            self.clear_history()
        if snapshot.terminated:
            self._fall(before)
        self.trajectory.append(self.position())
        self.history.append((self.time, snapshot.distance))
        while self.history[0][0] < self.time - HISTORY:
            self.history.popleft()
        self._watch_goal(snapshot)

    def _fall(self, before: Snapshot) -> None:
        """Show the fallen robot for a moment; the simulation has its fresh start already."""
        self.falls += 1
        self._fallen, self._fallen_seconds = before, FALL_SECONDS
        self.clear_history()
        self._take_newer()

    def _lie(self, seconds: float) -> None:
        self._fallen_seconds -= seconds
        if self._fallen_seconds <= 0:
            self._fallen = None

    def _watch_goal(self, snapshot: Snapshot) -> None:
        """Count goals that are reached, and draw the next one where that is wanted."""
        self._seconds_at_goal = self._seconds_at_goal + self.sim.dt if snapshot.reached else 0.0
        if snapshot.reached and not self._counted:
            self.goals_reached, self._counted = self.goals_reached + 1, True
        self._seconds_to_goal += self.sim.dt
        if self.auto_goal and self._seconds_at_goal >= NEW_GOAL_AFTER:
            self.sample_goal()
        elif self._seconds_at_goal >= NEW_GOAL_AFTER or self._seconds_to_goal >= self._episode_seconds():
            self._seconds_to_goal = 0.0
            self._take_newer()

    def _episode_seconds(self) -> float:
        """The time limit of the policy's episodes, after which a goal counts as missed."""
        policies = self.sim.actor.policies
        return math.inf if policies is None else policies.choice.episode_length * self.sim.dt

    def position(self) -> np.ndarray:
        """x and y [2] of the achieved goal's first point."""
        return self.sim.space.points(self.sim.snapshot.achieved)[0]


def _place(place: np.ndarray) -> str:
    """x, y and, where there is one, z."""
    return f"({', '.join(f'{value:.3g}' for value in place)})"


def within(value: float, limits: tuple[float, float], name: str) -> float:
    """A finite number clamped to its limits; ConfigError for NaN and infinities."""
    low, high = limits
    if not math.isfinite(value):
        raise ConfigError(f"{name} is a number from {low:g} to {high:g}, not {value}")
    return min(max(float(value), low), high)
