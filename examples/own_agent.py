"""A custom agent: goal-conditioned imitation of actions, with goals relabelled in hindsight."""

import dataclasses
import sys

import jax
import jax.numpy as jnp

import homing
from homing.agents import OffPolicyAgent
from homing.config.offpolicy import TrainConfig
from homing.config.presets import register_agent
from homing.networks import ADAM, MLP, Fit, NetConfig, adam
from homing.types import Batch, Relabel


@dataclasses.dataclass(frozen=True)
class ImitateConfig:
    """Settings; each is a command-line flag and an argument of `homing.train`."""

    lr: float = 1e-3
    noise: float = 0.5
    width: int = 128


class Imitate(OffPolicyAgent[Fit, Batch]):
    """π(s, g) regressed on the action taken in s, where g is achieved later in the same episode."""

    relabel = Relabel("future", gamma=0.95)  # batches have these goals in place of the commanded ones

    def __init__(self, config, spec):
        self.config, self.spec = config, spec
        self.net = MLP(NetConfig(width=config.width), spec.action_dim)

    def init(self, key):
        seen = jnp.zeros((1, self.spec.state_dim + self.spec.goal_dim), jnp.float32)
        params = self.net.init(key, seen)["params"]
        return Fit(params=params, opt_state=ADAM.init(params))  # all that is learned: arrays only

    def policy(self, params, obs):
        return jnp.tanh(self.net.apply({"params": params}, jnp.concatenate([obs.state, obs.goal], axis=-1)))

    def act(self, learner, obs, key, *, explore):
        action = self.policy(learner.params, obs)
        noise = self.config.noise * jax.random.normal(key, action.shape) if explore else 0.0
        return jnp.clip(action + noise, -1.0, 1.0)

    def update(self, learner, batch, draws, context):
        def loss(params):
            error = jnp.mean(jnp.square(self.policy(params, batch.obs) - batch.action))
            return error, {"actor_loss": error}

        return adam(learner, loss, jnp.asarray(context.lr_scale * self.config.lr, jnp.float32))


TRAIN = TrainConfig(200_000, num_envs=64, prefill_steps=100, evaluations=4)
register_agent("imitate", ImitateConfig, Imitate, TRAIN)

if __name__ == "__main__":
    steps, out = (int(sys.argv[1]), sys.argv[2]) if sys.argv[1:] else (200_000, None)
    run = homing.train("imitate", "reacher", steps=steps, out=out, episode_length=100, cpu=True)
    print("success rates at the evaluations:", [round(value, 2) for _, value in run.curve(seed=0)])
