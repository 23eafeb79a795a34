"""Action chunks: goal-conditioned behaviour cloning in hindsight, three actions planned at once.

Train: homing train chunks reacher --import action_chunks.
"""

import dataclasses

import jax
import jax.numpy as jnp

from homing.agents import OffPolicyAgent
from homing.config.offpolicy import TrainConfig
from homing.config.presets import register_agent
from homing.networks import MLP, Fit, NetConfig, adam
from homing.types import Obs, Relabel


@dataclasses.dataclass(frozen=True)
class ChunksConfig:
    lr: float = 1e-3
    noise: float = 0.5


class Chunks(OffPolicyAgent[Fit, dict]):
    """π(s, g), the next three actions, regressed on those taken in s on the way to g."""

    relabel, chunk = Relabel("future", gamma=0.95), 3

    def __init__(self, config, spec):
        self.config, self.spec = config, spec
        self.net = MLP(NetConfig(width=64), self.chunk * spec.action_dim)

    def init(self, key):
        size = self.spec.state_dim + self.spec.goal_dim
        return Fit.start(self.net.init(key, jnp.zeros((1, size)))["params"])

    def act(self, learner, obs, key, *, explore):
        x = jnp.concatenate([obs.state, obs.goal], axis=-1)
        actions = jnp.tanh(self.net.apply({"params": learner.params}, x))
        noise = self.config.noise * jax.random.normal(key, actions.shape) if explore else 0.0
        return jnp.clip(actions + noise, -1.0, 1.0)

    def sample(self, replay, index, key):
        obs = Obs(replay.states(index), self.goals(replay, index, key))
        actions = replay.actions(index, self.chunk)  # [B, 3 · action_dim]
        return {"obs": obs, "actions": actions, "whole": replay.whole(index, self.chunk)}

    def update(self, learner, batch, draws, context):
        def loss(params):
            actions = self.act(learner.replace(params=params), batch["obs"], draws, explore=False)
            # Only where the episode lasts for all three of them.
            error = jnp.mean(jnp.square(actions - batch["actions"]), where=batch["whole"][:, None])
            return error, {"actor_loss": error}

        return adam(learner, loss, jnp.asarray(context.lr_scale * self.config.lr, jnp.float32))


register_agent("chunks", ChunksConfig, Chunks, TrainConfig(200_000, num_envs=64, prefill_steps=100))
