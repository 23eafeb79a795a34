"""First-reach times: learn how long each action takes to reach a goal, and take the quickest."""

import dataclasses
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp

import homing
from homing.agents import OffPolicyAgent
from homing.config.offpolicy import TrainConfig
from homing.config.presets import register_agent
from homing.networks import ADAM, MLP, Fit, NetConfig, adam
from homing.types import Array, Obs, Relabel


@dataclasses.dataclass(frozen=True)
class ReachTimeConfig:
    lr: float = 1e-3
    horizon: int = 30  # steps; what takes longer counts as this long


class ReachTimeBatch(NamedTuple):
    obs: Obs  # [B, ...]
    action: Array  # [B, action_dim]
    log_time: Array  # [B]


class ReachTime(OffPolicyAgent[Fit, ReachTimeBatch]):
    """−log T(s, a, g) regressed on first-reach times; the policy takes the best of 64 actions."""

    relabel = Relabel("future", random_ratio=0.3, gamma=0.95)

    def __init__(self, config, spec):
        self.config, self.spec, self.net = config, spec, MLP(NetConfig(width=64), 1)
        self.choices = jax.random.uniform(jax.random.key(0), (64, spec.action_dim), minval=-1.0)

    def init(self, key):
        sizes = self.spec.state_dim, self.spec.goal_dim, self.spec.action_dim
        params = self.net.init(key, jnp.zeros((1, sum(sizes))))["params"]
        return Fit(params=params, opt_state=ADAM.init(params))

    def value(self, learner, obs, action):
        action = jnp.broadcast_to(action, (*obs.goal.shape[:-1], self.spec.action_dim))
        x = jnp.concatenate([obs.state, obs.goal, action], axis=-1)
        return self.net.apply({"params": learner.params}, x)[..., 0]

    def act(self, learner, obs, key, *, explore):
        values = jax.vmap(lambda action: self.value(learner, obs, action))(self.choices)  # [64, ...]
        noise = 0.1 * jax.random.gumbel(key, values.shape) if explore else 0.0
        return self.choices[jnp.argmax(values + noise, axis=0)]

    def sample(self, replay, index, key):
        goal = self.goals(replay, index, key)
        first = replay.first_reach(index, goal, self.spec.threshold, self.config.horizon)
        log_time = jnp.log1p(jnp.where(first.reached, first.steps, self.config.horizon))
        return ReachTimeBatch(Obs(replay.states(index), goal), replay.actions(index), log_time)

    def update(self, learner, batch, draws, context):
        def loss(params):
            value = self.value(learner.replace(params=params), batch.obs, batch.action)
            error = jnp.mean(jnp.square(value + batch.log_time))
            return error, {"critic_loss": error}

        return adam(learner, loss, jnp.asarray(context.lr_scale * self.config.lr, jnp.float32))


TRAIN = TrainConfig(200_000, num_envs=64, prefill_steps=100, evaluations=4)
register_agent("reach_time", ReachTimeConfig, ReachTime, TRAIN)

if __name__ == "__main__":
    steps, out = (int(sys.argv[1]), sys.argv[2]) if sys.argv[1:] else (200_000, None)
    run = homing.train("reach_time", "reacher", steps=steps, out=out, episode_length=100, cpu=True)
    print("success rates at the evaluations:", [round(value, 2) for _, value in run.curve(seed=0)])
