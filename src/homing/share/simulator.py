"""One environment and its policy as a translated program: `step`, `look` and `value` on named arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from homing.compile import xla
from homing.data.rollout import ActionPlan, first_plan, next_actions
from homing.envs.base import GoalEnv
from homing.envs.goal_space import GoalSpace, goal_space
from homing.errors import HomingError
from homing.share.program import Program
from homing.share.translate import Translator
from homing.types import Array, EnvState, Obs
from homing.viz.video import Actor

SEED = 0
POOL = 64  # resets in the page
MAP_CELLS, MAP_BATCH = 40, 8  # along the longer side of the critic map; cells valued in one call
POSES = ("pos", "rot", "achieved", "distance", "reached", "terminated")


@dataclass(frozen=True)
class Simulator:
    """A translated environment.

    program: exports `step` (policy and physics), `look` (frames of the links) and, with a critic, `value`
    carry:   names of the arrays that are the state between steps
    resets:  [P, ...] initial values of each, and `goal`
    """

    program: Program
    carry: tuple[str, ...]
    resets: dict[str, np.ndarray]
    has_critic: bool


class Traced:
    """The functions to translate, on the leaves of a state that a step needs."""

    def __init__(self, actor: Actor):
        self.actor, self.env = actor, actor.env.of_size(1, restarts=False)
        self.space: GoalSpace = goal_space(actor.env)
        self.like: EnvState = jax.eval_shape(self.env.reset, jax.random.key(SEED))
        self.plan: ActionPlan | None = first_plan(1, actor.chunk, self.env.spec.action_dim)
        self.leaves, self.tree = jax.tree.flatten(self.carry(self.like, self.plan))

    @staticmethod
    def carry(state: EnvState, plan: Any) -> Any:
        """What is kept between steps."""
        return state.physics, state.obs.state, plan

    def _state(self, leaves: tuple[Array, ...], goal: Array) -> tuple[EnvState, Any]:
        physics, observation, plan = jax.tree.unflatten(self.tree, leaves)
        is_key = lambda x: jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        blank = lambda x: jax.random.key(SEED) if is_key(x) else jnp.zeros(x.shape, x.dtype)
        empty = jax.tree.map(blank, self.like)  # the rest of a state has no effect on what is traced
        return empty.replace(physics=physics, obs=Obs(observation, goal[None])), plan

    def _poses(self, state: EnvState, terminated: Array) -> tuple[Array, ...]:
        links = self.env.scene.engine.links(state.physics)
        achieved = self.env.achieved(state.obs.state)
        distance = self.env.distance(achieved, state.obs.goal)
        return links.pos[0], links.rot[0], achieved[0], distance, distance < self.env.task.within, terminated

    def step(self, goal: Array, *leaves: Array) -> Any:
        """Act and step: the new carry, then what the page shows."""
        state, plan = self._state(leaves, goal)
        proposed = self.actor.act(self.actor.learner, state.obs, jax.random.key(SEED))
        action, plan = next_actions(plan, proposed)
        return self._moved(state, action, plan)

    def move(self, goal: Array, action: Array, *leaves: Array) -> Any:
        """`step` with a given action."""
        state, plan = self._state(leaves, goal)
        return self._moved(state, action[None], plan)

    def _moved(self, state: EnvState, action: Array, plan: Any) -> Any:
        after = self.env.advance(state, action)
        return self.carry(after, plan), self._poses(after, after.terminated)

    def look(self, goal: Array, *leaves: Array) -> Any:
        """What the page shows of a state."""
        return self._poses(self._state(leaves, goal)[0], jnp.zeros((1,), bool))

    def value(self, goal: Array, places: Array, *leaves: Array) -> Array:
        """The critic's values [B] of goals at places [B, 2] from the current state."""
        agent = self.actor.policies.agent  # type: ignore[union-attr]
        observation = self._state(leaves, goal)[0].obs.state[0]
        spread = lambda x: jnp.broadcast_to(x, (MAP_BATCH, len(x)))
        axes = self.space.axes[0]
        columns = [axes[name] for name in "xy" if name in axes]
        goals = spread(goal)
        for k, column in enumerate(columns):
            goals = goals.at[:, column].set(places[:, k])
        obs = Obs(spread(observation), goals)
        action = agent.act(self.actor.learner, obs, jax.random.key(SEED), explore=False)
        return agent.value(self.actor.learner, obs, action)


def simulator(actor: Actor, seed: int = SEED, given_actions: bool = False) -> Simulator:
    """Translate an actor in its environment; `given_actions` also exports `move`, with the array `action`."""
    if why := why_recorded(actor.env):
        raise HomingError(why)
    traced, translator = Traced(actor), Translator()
    names = tuple(f"state{k}" for k in range(len(traced.leaves)))
    for name, leaf in zip(names, traced.leaves, strict=True):
        translator.buffer(name, leaf.shape, leaf.dtype)
    goal = jax.ShapeDtypeStruct((len(traced.space.template),), jnp.float32)
    translator.buffer("goal", goal.shape)
    shown = jax.eval_shape(traced.look, goal, *traced.leaves)
    for name, leaf in zip(POSES, shown, strict=True):
        translator.buffer(name, leaf.shape, leaf.dtype)
    with xla.without_kernels():
        translator.function("step", traced.step, ("goal", *names), (*names, *POSES))
        translator.function("look", traced.look, ("goal", *names), POSES)
        if given_actions:
            translator.buffer("action", (actor.env.spec.action_dim,))
            translator.function("move", traced.move, ("goal", "action", *names), (*names, *POSES))
    has_critic = actor.policies is not None and actor.policies.agent.has_critic
    if has_critic:
        translator.buffer("places", (MAP_BATCH, 2))
        translator.buffer("values", (MAP_BATCH,))
        translator.function("value", traced.value, ("goal", "places", *names), ("values",))
    return Simulator(translator.program(), names, sampled_resets(traced, names, seed), has_critic)


def sampled_resets(traced: Traced, names: tuple[str, ...], seed: int) -> dict[str, np.ndarray]:
    """Initial states and goals of POOL episodes."""
    env = traced.env.of_size(POOL, restarts=False)
    lowered = jax.jit(env.reset).lower(jax.random.key(seed))
    # Executed once, so a fast compilation counts for more than a fast program.
    quick: dict[str, str | bool] = (
        {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else {}
    )
    state = lowered.compile(compiler_options=quick)(jax.random.key(seed))
    plan = first_plan(POOL, traced.actor.chunk, env.spec.action_dim)
    leaves = jax.tree.leaves(traced.carry(state, plan))
    found = {name: np.asarray(leaf) for name, leaf in zip(names, leaves, strict=True)}
    return found | {"goal": np.asarray(state.obs.goal)}


def why_recorded(env: GoalEnv) -> str:
    """Why no page can compute an environment's physics; empty if one can."""
    from homing.physics.spring.engine import Spring

    if isinstance(env.scene.engine, Spring):
        return ""
    return (
        f"the physics of {env.id} ({env.spec.physics}) cannot run in a browser, only the spring engine can: "
        "the page replays recordings of several goals"
    )
