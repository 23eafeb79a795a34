"""One trained policy, as a function of state and goal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from homing.errors import ConfigError
from homing.types import Array, Obs

if TYPE_CHECKING:  # heavy to import
    from homing.policies import Policies


class Policy:
    """A trained policy: `policy(state, goal)` is the greedy action, in [−1, 1].

    States [..., state_dim] and goals [..., goal_dim] are NumPy or JAX arrays; one goal may be that of many states,
    and the other way round. `card` tells how it was made.
    """

    def __init__(self, policies: Policies, seed: int | None = None):
        self.env, self.agent, self.card = policies.choice.env, policies.agent_name, policies.card
        self.seed, self.iteration = policies.seeds[policies.place(seed)], policies.iteration
        self.choice, self.spec = policies.choice, policies.spec
        self._agent, self._learner = policies.agent, policies.one(seed)
        self._act, self._value = jax.jit(self.act), jax.jit(self.value_of)

    @property
    def chunk(self) -> int:
        """Actions that the policy plans at once, to be executed open-loop."""
        return self._agent.chunk

    def __call__(self, state: Any, goal: Any) -> Array:
        """The action [..., action_dim] for this step; of a policy with chunks, the first of a new plan."""
        return self._act(self._obs(state, goal))[..., : self.spec.action_dim]

    def plan(self, state: Any, goal: Any) -> Array:
        """All actions [..., chunk, action_dim] that the policy plans from here."""
        actions = self._act(self._obs(state, goal))
        return actions.reshape(*actions.shape[:-1], self.chunk, self.spec.action_dim)

    def value(self, state: Any, goal: Any, action: Any = None) -> Array:
        """The critic's value [...] of actions, of the policy's own if none are given.

        action: [..., action_dim]; for a policy with chunks what `plan` returns, [..., chunk, action_dim], or the
                same in one row
        """
        self.check_critic()
        obs = self._obs(state, goal)
        return self._value(obs, None if action is None else self._actions(obs, action))

    def make_env(self, num_envs: int = 1, id: str | None = None) -> Any:
        """The environment that it was trained in, or another one with states and goals of the same size."""
        from homing.training.build import check_alike

        env = self.choice.make(num_envs, id)
        check_alike(self, env)
        return env

    @property
    def has_critic(self) -> bool:
        """Whether `value` has an answer: PPO and behaviour cloning have no critic of goals."""
        return self._agent.has_critic

    def check_critic(self) -> None:
        """Refuse an agent without a critic."""
        if not self.has_critic:
            raise ConfigError(f"agents of the kind {self.agent!r} have no critic to ask")

    def act(self, obs: Obs) -> Array:
        """The greedy actions [..., chunk · action_dim], traceable by JAX."""
        return self._agent.act(self._learner, obs, jax.random.key(0), explore=False)

    def value_of(self, obs: Obs, action: Array | None = None) -> Array:
        """The critic's values [...], traceable by JAX; of the greedy actions if none are given."""
        return self._agent.value(self._learner, obs, self.act(obs) if action is None else action)

    def _obs(self, state: Any, goal: Any) -> Obs:
        sizes = {"state": self.spec.state_dim, "goal": self.spec.goal_dim}
        given = {"state": _numbers("state", state), "goal": _numbers("goal", goal)}
        for name, size in sizes.items():
            shape = given[name].shape
            if not shape or shape[-1] != size:
                raise ConfigError(f"a {name} of {self.env} has {size} entries; this one is {shape}")
        try:
            leading = jnp.broadcast_shapes(*(x.shape[:-1] for x in given.values()))
        except ValueError:
            shapes = f"{given['state'].shape} and {given['goal'].shape}"
            raise ConfigError(f"states and goals of shapes {shapes} do not go together") from None
        return Obs(**{name: jnp.broadcast_to(x, (*leading, sizes[name])) for name, x in given.items()})

    def _actions(self, obs: Obs, action: Any) -> Array:
        """Actions in one row for each observation: [..., chunk · action_dim]."""
        given, size = _numbers("action", action), self.chunk * self.spec.action_dim
        shape, leading = given.shape, obs.state.shape[:-1]
        if (
            self.chunk > 1
            and shape[-2:] == (self.chunk, self.spec.action_dim)
            and len(shape) > len(leading) + 1
        ):
            given = given.reshape(*shape[:-2], size)
        if given.shape != (*leading, size):
            what = "an action has" if self.chunk == 1 else f"policy.plan has {self.chunk} actions, together"
            raise ConfigError(f"{what} {size} entries for each state, {(*leading, size)}; these are {shape}")
        return given


def _numbers(name: str, given: Any) -> Array:
    try:
        return jnp.asarray(given, jnp.float32)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} must be an array of numbers, not {type(given).__name__}") from None
