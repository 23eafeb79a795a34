"""An agent that has learned nothing, in the smallest maze, as a policy file."""

from __future__ import annotations

import jax
import pytest

from homing.agents import make_agent
from homing.agents.crl import CRLConfig
from homing.networks import NetConfig
from homing.policies.store import EnvChoice, Policies, Spaces, write_policies

NET = NetConfig(width=8, depth=1)


def untrained(env: str, spec: Spaces, seeds: tuple[int, ...] = (3, 4), **choice) -> Policies:
    config = CRLConfig(critic_net=NET, actor_net=NET, representation_dim=4)
    agent = make_agent(config, spec)
    with jax.debug_key_reuse(False):
        learner = jax.jit(jax.vmap(agent.init))(jax.random.split(jax.random.key(0), len(seeds)))
    card = {"config": {"seeds": list(seeds)}, "scores": [], "seeds": list(seeds)}
    return Policies(
        source=env,
        agent_name="crl",
        agent=agent,
        settings=config,
        learner=learner.replace(opt_state=()),
        seeds=seeds,
        spec=spec,
        choice=EnvChoice(env, **choice),
        iteration=0,
        card=card,
    )


@pytest.fixture(scope="session")
def maze_policy(tmp_path_factory):
    """Two seeds for the point in the U maze; episodes of 20 steps."""
    policies = untrained("point_u_maze", Spaces("point_u_maze", 4, 2, 2), episode_length=20)
    return str(write_policies(tmp_path_factory.mktemp("policy") / "maze.safetensors", policies))
