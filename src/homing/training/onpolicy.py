"""The on-policy loop: collect a rollout, learn from it, drop it; written for one seed, run for many."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from homing.agents import OnPolicyAgent
from homing.config.onpolicy import OnPolicyConfig, OnPolicyPlan
from homing.data.rollout import renewed, unroll
from homing.envs.base import GoalEnv
from homing.training.loop import (
    SPREAD,
    TrainState,
    averaged,
    evaluate_greedy,
    first_state,
    iteration_key,
    run_epoch,
    sizes_of,
)
from homing.types import Array, EnvState, Key, Metrics, Obs, Rollout


@dataclasses.dataclass(frozen=True)
class OnPolicy:
    """One agent in one environment, by a plan."""

    env: GoalEnv
    agent: OnPolicyAgent
    plan: OnPolicyPlan
    data: None = None

    def init(self, key: Key) -> TrainState:
        train = first_state(self.env, self.agent, (), key, self.plan.config.policy_ema > 0)
        if not self.plan.config.spread_episodes:
            return train
        k_spread = jax.random.fold_in(train.key, SPREAD)
        steps = jax.random.randint(k_spread, train.env.steps.shape, 0, self.env.episode_length)
        return train.replace(env=train.env.replace(steps=steps))

    def epoch(self, train: TrainState, start: Array, stop: Array) -> tuple[TrainState, Metrics]:
        """Iterations start..stop−1 and the means of their metrics."""
        return run_epoch(self.iterate, self._metrics(train), train, start, stop, self.plan)

    def iterate(self, train: TrainState, iteration: Array) -> tuple[TrainState, Metrics]:
        """Collect one unroll and learn from it."""
        k_collect, k_learn = jax.random.split(iteration_key(train, iteration))
        env, rollout = self.collect(train, k_collect)
        lr_scale = self.plan.lr_scale(iteration.astype(jnp.float32) / self.plan.iterations)
        learner, metrics = self.agent.learn(train.learner, rollout, k_learn, lr_scale)
        # Only now: how probable the choices were follows from what the policy saw when it made them.
        learner = self.agent.observe(learner, rollout.obs, rollout.achieved_goal)
        average, decay = train.average, self.plan.config.policy_ema
        if decay > 0:
            average = averaged(average, learner, decay)
        return train.replace(env=env, learner=learner, average=average), metrics

    def collect(self, train: TrainState, key: Key) -> tuple[EnvState, Rollout]:
        """One unroll of the exploring policy."""

        def policy(obs: Obs, k_choice: Key) -> Array:
            return self.agent.choose(train.learner, obs, k_choice)

        length = self.plan.config.unroll_length
        return unroll(self.env, train.env, policy, key, length, _row, self.agent.action_of)

    def evaluate(self, train: TrainState, iteration: Array, env: GoalEnv) -> Metrics:
        """The greedy policy on fresh starts and goals of `env`."""
        return evaluate_greedy(self.agent, train, self.plan, iteration, env)

    def _metrics(self, train: TrainState) -> Any:
        """Shapes of what is measured; the environment is not traced for it."""

        def measured(train: TrainState) -> Metrics:
            choice = self.agent.choose(train.learner, train.env.obs, train.key)
            row = _row(train.env, choice, train.env)
            length = self.plan.config.unroll_length
            rollout = jax.tree.map(lambda x: jnp.broadcast_to(x, (length, *x.shape)), row)
            return self.agent.learn(train.learner, rollout, train.key)[1]

        return jax.eval_shape(measured, train)


def _row(before: EnvState, choice: Array, after: EnvState) -> Rollout:
    # Where a new goal is commanded inside of an episode, what follows says nothing about the old one: advantages are
    # cut there, and bootstrap from where the action led, with the goal that it was chosen for.
    return Rollout(
        obs=before.obs,
        choice=choice,
        next_obs=after.next_obs,
        achieved_goal=after.achieved_goal,
        reward=after.reward,
        discount=1 - after.terminated.astype(jnp.float32),
        last=after.ended | renewed(after),
    )


def make_plan(config: OnPolicyConfig, env: GoalEnv, agent: OnPolicyAgent, seeds: int = 1) -> OnPolicyPlan:
    """The plan of a run; shapes are traced, nothing is allocated."""
    updates = agent.updates_per_rollout(config.num_envs)
    return OnPolicyPlan(config, sizes_of(env, agent), seeds, updates)
