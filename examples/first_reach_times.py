"""First-reach times as a critic. Train: homing train reach_time reacher --import first_reach_times."""

import dataclasses

import jax
import jax.numpy as jnp

from homing.agents import OffPolicyAgent
from homing.config.offpolicy import TrainConfig
from homing.config.presets import register_agent
from homing.networks import MLP, Fit, NetConfig, adam
from homing.types import Obs, Relabel


@dataclasses.dataclass(frozen=True)
class ReachTimeConfig:
    lr: float = 1e-3
    horizon: int = 30  # steps; what takes longer counts as this long


class ReachTime(OffPolicyAgent[Fit, dict]):
    """−log T(s, a, g) regressed on first-reach times; the policy takes the best of 64 actions."""

    relabel = Relabel("future", random_ratio=0.3, gamma=0.95)

    def __init__(self, config, spec):
        self.config, self.spec, self.net = config, spec, MLP(NetConfig(width=64), 1)
        self.choices = jax.random.uniform(jax.random.key(0), (64, spec.action_dim), minval=-1.0)

    def init(self, key):
        size = self.spec.state_dim + self.spec.goal_dim + self.spec.action_dim
        return Fit.start(self.net.init(key, jnp.zeros((1, size)))["params"])

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
        return {"obs": Obs(replay.states(index), goal), "action": replay.actions(index), "log_time": log_time}

    def update(self, learner, batch, draws, context):
        def loss(params):
            value = self.value(learner.replace(params=params), batch["obs"], batch["action"])
            error = jnp.mean(jnp.square(value + batch["log_time"]))
            return error, {"critic_loss": error}

        return adam(learner, loss, jnp.asarray(context.lr_scale * self.config.lr, jnp.float32))


register_agent("reach_time", ReachTimeConfig, ReachTime, TrainConfig(200_000, num_envs=64, prefill_steps=100))
