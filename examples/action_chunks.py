"""Action chunks: goal-conditioned behaviour cloning in hindsight, three actions planned at once."""

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
class ChunksConfig:
    lr: float = 1e-3
    noise: float = 0.5


class ChunksBatch(NamedTuple):
    obs: Obs  # [B, ...]
    actions: Array  # [B, 3 · action_dim]
    whole: Array  # [B] bool: the episode lasts for all three of them


class Chunks(OffPolicyAgent[Fit, ChunksBatch]):
    """π(s, g), the next three actions, regressed on those taken in s on the way to g."""

    relabel, chunk = Relabel("future", gamma=0.95), 3

    def __init__(self, config, spec):
        self.config, self.spec = config, spec
        self.net = MLP(NetConfig(width=64), self.chunk * spec.action_dim)

    def init(self, key):
        params = self.net.init(key, jnp.zeros((1, self.spec.state_dim + self.spec.goal_dim)))["params"]
        return Fit(params=params, opt_state=ADAM.init(params))

    def act(self, learner, obs, key, *, explore):
        x = jnp.concatenate([obs.state, obs.goal], axis=-1)
        actions = jnp.tanh(self.net.apply({"params": learner.params}, x))
        noise = self.config.noise * jax.random.normal(key, actions.shape) if explore else 0.0
        return jnp.clip(actions + noise, -1.0, 1.0)

    def sample(self, replay, index, key):
        obs = Obs(replay.states(index), self.goals(replay, index, key))
        return ChunksBatch(obs, replay.actions(index, self.chunk), replay.whole(index, self.chunk))

    def update(self, learner, batch, draws, context):
        def loss(params):
            actions = self.act(learner.replace(params=params), batch.obs, draws, explore=False)
            error = jnp.mean(jnp.square(actions - batch.actions), where=batch.whole[:, None])
            return error, {"actor_loss": error}

        return adam(learner, loss, jnp.asarray(context.lr_scale * self.config.lr, jnp.float32))


TRAIN = TrainConfig(200_000, num_envs=64, prefill_steps=100, evaluations=4)
register_agent("chunks", ChunksConfig, Chunks, TRAIN)

if __name__ == "__main__":
    steps, out = (int(sys.argv[1]), sys.argv[2]) if sys.argv[1:] else (200_000, None)
    run = homing.train("chunks", "reacher", steps=steps, out=out, episode_length=100, cpu=True)
    print("success rates at the evaluations:", [round(value, 2) for _, value in run.curve(seed=0)])
