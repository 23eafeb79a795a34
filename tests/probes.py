"""Toy environments: each answers one question about a learner, in seconds."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from homing.envs.arenas import Floor
from homing.envs.bodies import Point
from homing.envs.goal_groups import GoalGroups
from homing.envs.goals import Ring
from homing.envs.scene import EnvSpec
from homing.envs.tasks import Reach
from homing.types import Array, EnvState, Key, Obs


@dataclasses.dataclass(frozen=True)
class ProbeSpec:
    state_dim: int
    action_dim: int
    goal_dim: int
    goal_indices: tuple[int, ...]
    threshold: float
    dt: float = 1.0
    id: str = "probe"
    physics: str = "none"


# (state [D], action [A], steps done, key) -> (next state [D], terminated)
Dynamics = Callable[[Array, Array, Array, Key], tuple[Array, Array]]


@dataclasses.dataclass(frozen=True)
class Probe:
    """A batch of environments with their own starts and goals, drawn anew for each episode."""

    spec: ProbeSpec
    start: Callable[[Key], Array]
    draw_goal: Callable[[Key], Array]
    dynamics: Dynamics
    num_envs: int
    episode_length: int
    shaping: Callable[[Array, Array, Array], Array] | None = None

    def of_size(self, num_envs: int, restarts: bool = True, episode_length: int | None = None) -> Probe:
        length = self.episode_length if episode_length is None else episode_length
        return dataclasses.replace(self, num_envs=num_envs, episode_length=length)

    def seed_axes(self) -> EnvState:
        fields = {field.name: 0 for field in dataclasses.fields(EnvState)}
        return EnvState(**(fields | {"clock": None}))

    splits_episodes = False
    scene = SimpleNamespace(
        spec=EnvSpec(Point(), Reach(("x", "y"), Ring(1.0)), Floor())
    )  # where goals can be set

    @property
    def goal_groups(self) -> GoalGroups:
        return GoalGroups(("near", "far"), edges=np.array([0.0, 0.5, np.inf]))

    def achieved(self, state: Array) -> Array:
        return state[..., jnp.asarray(self.spec.goal_indices)]

    def distance(self, achieved: Array, goal: Array) -> Array:
        return jnp.linalg.norm(achieved - goal, axis=-1)

    def reward(self, achieved: Array, goal: Array) -> Array:
        return (self.distance(achieved, goal) < self.spec.threshold).astype(jnp.float32)

    def next_goals(self, key: Key, achieved: Array) -> Array:
        """Goals that are not reached already, of eight drawn."""

        def one(key: Key, achieved: Array) -> Array:
            goals = jax.vmap(self.draw_goal)(jax.random.split(key, 8))
            return goals[jnp.argmax(self.distance(achieved, goals) >= self.spec.threshold)]

        return jax.vmap(one)(jax.random.split(key, self.num_envs), achieved)

    def _fresh(self, key: Key) -> Obs:
        k_start, k_goal = jax.random.split(key)
        return Obs(
            state=jax.vmap(self.start)(jax.random.split(k_start, self.num_envs)),
            goal=jax.vmap(self.draw_goal)(jax.random.split(k_goal, self.num_envs)),
        )

    def _achieved(self, state: Array) -> Array:
        return state[..., jnp.asarray(self.spec.goal_indices)]

    def _metrics(self, achieved: Array, goal: Array) -> dict[str, Array]:
        return {"success": self.reward(achieved, goal), "distance": self.distance(achieved, goal)}

    def reset(self, key: Key) -> EnvState:
        k_first, k_run = jax.random.split(key)
        obs = self._fresh(k_first)
        achieved = self._achieved(obs.state)
        no = jnp.zeros(self.num_envs, bool)
        return EnvState(
            physics=obs.state,
            obs=obs,
            next_obs=obs,
            achieved_goal=achieved,
            reward=jnp.zeros(self.num_envs, jnp.float32),
            terminated=no,
            truncated=no,
            metrics=self._metrics(achieved, obs.goal),
            steps=jnp.zeros(self.num_envs, jnp.int32),
            pool=(),
            used=jnp.zeros(self.num_envs, jnp.int32),
            key=k_run,
            clock=jnp.zeros((), jnp.int32),
        )

    def blocks(self, length: int) -> int:
        return 0

    def advance(self, state: EnvState, action: Array) -> EnvState:
        return self.step(state, action)

    def step(self, state: EnvState, action: Array) -> EnvState:
        k_run, k_fresh, k_dynamics = jax.random.split(state.key, 3)
        env_keys = jax.random.split(k_dynamics, self.num_envs)
        led_to, terminated = jax.vmap(self.dynamics)(state.physics, action, state.steps, env_keys)
        steps = state.steps + 1
        truncated = (steps >= self.episode_length) & ~terminated
        over = terminated | truncated
        achieved = self._achieved(led_to)
        fresh = self._fresh(k_fresh)
        there = Obs(state=led_to, goal=state.obs.goal)
        obs = jax.tree.map(lambda new, old: jnp.where(over[:, None], new, old), fresh, there)
        return state.replace(
            physics=obs.state,
            obs=obs,
            next_obs=there,
            achieved_goal=achieved,
            reward=self.reward(achieved, state.obs.goal),
            terminated=terminated,
            truncated=truncated,
            metrics=self._metrics(achieved, state.obs.goal),
            steps=jnp.where(over, 0, steps),
            key=k_run,
            clock=state.clock + 1,
        )


def _uniform(size: int, limit: float) -> Callable[[Key], Array]:
    return lambda key: jax.random.uniform(key, (size,), jnp.float32, -limit, limit)


def _never() -> Array:
    return jnp.zeros((), bool)


def echo(num_envs: int = 32, episode_length: int = 4) -> Probe:
    """The goal is the action: state (last action, noise)."""

    def dynamics(state, action, steps, key):
        return jnp.concatenate([action, jax.random.normal(key, (1,), jnp.float32)]), _never()

    spec = ProbeSpec(state_dim=3, action_dim=2, goal_dim=2, goal_indices=(0, 1), threshold=0.3)
    return Probe(spec, _uniform(3, 1.0), _uniform(2, 0.8), dynamics, num_envs, episode_length)


def delay(num_envs: int = 32, episode_length: int = 6) -> Probe:
    """Only the first action counts, and shows two steps later. State (clock, memory, shown)."""

    def dynamics(state, action, steps, key):
        memory = jnp.where(steps == 0, action[0], state[1])
        shown = jnp.where(steps >= 2, memory, 0)
        return jnp.stack([(steps + 1).astype(jnp.float32) / episode_length, memory, shown]), _never()

    spec = ProbeSpec(state_dim=3, action_dim=1, goal_dim=1, goal_indices=(2,), threshold=0.25)
    return Probe(
        spec, lambda key: jnp.zeros(3, jnp.float32), _uniform(1, 0.8), dynamics, num_envs, episode_length
    )


@functools.cache
def walk(num_envs: int = 32, episode_length: int = 25) -> Probe:
    """A point in a box that moves at most 0.15 a step; of one size, the same object at every call."""

    def dynamics(state, action, steps, key):
        return jnp.clip(state + 0.15 * action, -1, 1), _never()

    spec = ProbeSpec(state_dim=2, action_dim=2, goal_dim=2, goal_indices=(0, 1), threshold=0.15)
    return Probe(spec, _uniform(2, 1.0), _uniform(2, 0.9), dynamics, num_envs, episode_length)


def ledge(num_envs: int = 32, episode_length: int = 25) -> Probe:
    """A walk with a third action that leads nowhere but, where it is positive, now and then to a fall."""

    def dynamics(state, action, steps, key):
        return jnp.clip(state + 0.15 * action[:2], -1, 1), (action[2] > 0) & jax.random.bernoulli(key, 0.2)

    spec = ProbeSpec(state_dim=2, action_dim=3, goal_dim=2, goal_indices=(0, 1), threshold=0.15)
    return Probe(spec, _uniform(2, 1.0), _uniform(2, 0.9), dynamics, num_envs, episode_length)


def turnstile(num_envs: int = 5, episode_length: int = 11) -> Probe:
    """Each episode achieves a number of its own and may end at any step. State (number, step)."""

    def start(key):
        return jnp.stack([jax.random.randint(key, (), 1, 2**20).astype(jnp.float32), jnp.float32(0)])

    def dynamics(state, action, steps, key):
        return state + jnp.asarray([0, 1], jnp.float32), jax.random.bernoulli(key, 0.1)

    spec = ProbeSpec(state_dim=2, action_dim=1, goal_dim=2, goal_indices=(0, 1), threshold=0.5)
    return Probe(spec, start, _uniform(2, 1.0), dynamics, num_envs, episode_length)


def trapdoor(num_envs: int = 32, episode_length: int = 5) -> Probe:
    """Every step pays 1. State 1 falls through a trapdoor; in state 0 only the time limit ends it."""

    def start(key):
        return jax.random.bernoulli(key, shape=(1,)).astype(jnp.float32)

    def dynamics(state, action, steps, key):
        return state, state[0] > 0.5

    spec = ProbeSpec(state_dim=1, action_dim=1, goal_dim=1, goal_indices=(0,), threshold=2.0)
    goal = lambda key: jnp.zeros(1, jnp.float32)
    return Probe(spec, start, goal, dynamics, num_envs, episode_length)
