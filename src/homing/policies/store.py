"""What some seeds of one agent have learned: from a run's folder, a file, or shipped with the package."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from homing import plugins
from homing.agents import agent_types, make_agent
from homing.config.run import decode
from homing.errors import ConfigError, HomingError, nearest
from homing.policies import container
from homing.policies.bundled import shipped, shipped_names
from homing.policies.card import run_card
from homing.runs.checkpoints import load_policy, parameters
from homing.runs.folder import RunFolder
from homing.training.build import environment

SUFFIX = ".homing"
Which = Literal["last", "best"]


@dataclasses.dataclass(frozen=True)
class EnvChoice:
    """Where a policy acts, and how it is evaluated there."""

    env: str
    episode_length: int = 1000
    physics: str | None = None
    env_options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    eval_env: str | None = None
    eval_envs: int = 128
    reward: str = "sparse"

    def make(self, num_envs: int, id: str | None = None) -> Any:
        """A batch of its environment, or of another one under the same settings."""
        return environment(self, id or self.env, num_envs)


@dataclasses.dataclass(frozen=True)
class Spaces:
    """Sizes of what a policy sees and does; enough to build its networks."""

    id: str
    state_dim: int
    action_dim: int
    goal_dim: int


@dataclasses.dataclass(frozen=True)
class Policies:
    """Trained policies of one agent, one for each seed.

    source:   what a person calls them, for messages
    settings: of the agent
    learner:  [S, ...] without optimisers
    card:     what is known of how they were made, plain values
    """

    source: str
    agent_name: str
    agent: Any
    settings: Any
    learner: Any
    seeds: tuple[int, ...]
    spec: Spaces
    choice: EnvChoice
    iteration: int
    card: Mapping[str, Any]

    def place(self, seed: int | None) -> int:
        """Where a seed is; the first, if not said."""
        if seed is None:
            return 0
        if seed not in self.seeds:
            known = ", ".join(map(str, self.seeds))
            raise ConfigError(f"{self.source} has no seed {seed}; it has {known}")
        return self.seeds.index(seed)

    def one(self, seed: int | None) -> Any:
        """The learner of one seed."""
        place = self.place(seed)
        return jax.tree.map(lambda x: x[place], self.learner)

    def only(self, seeds: tuple[int, ...]) -> Policies:
        """These seeds alone."""
        places = np.array([self.place(seed) for seed in seeds])
        learner = jax.tree.map(lambda x: x[places], self.learner)
        return dataclasses.replace(self, learner=learner, seeds=seeds)


def locate(source: str | Path) -> Path:
    """The run's folder or the policy file that a name stands for; computes nothing."""
    path, name = Path(source), str(source)
    if path.is_dir():
        return RunFolder.existing(path).path
    if path.is_file():
        return path
    if name in shipped_names():
        return shipped(name)
    if path.suffix or len(path.parts) > 1:
        raise ConfigError(f"{source} does not exist; name a run's folder, a policy file or a shipped policy")
    known = ", ".join(nearest(name, shipped_names()) or shipped_names()) or "none"
    raise ConfigError(
        f"{name!r} is no run's folder, no policy file and no shipped policy; shipped are: {known} "
        "(`homing policies` lists them)"
    )


def find_policies(source: str | Path, which: Which = "last") -> Policies:
    """The policies in a run's folder or a file, or those shipped under a name."""
    if which not in ("last", "best"):
        raise ConfigError(f"which is last or best, not {which!r}")
    path = locate(source)
    found = of_run(path, which) if path.is_dir() else read_policies(path)
    return dataclasses.replace(found, source=str(source))


def of_run(path: str | Path, which: Which = "last") -> Policies:
    """The policies of a run's folder; no replay is read."""
    folder = RunFolder.existing(path)
    config = folder.config()
    choice = EnvChoice(
        env=config.env,
        episode_length=config.episode_length,
        physics=config.physics,
        env_options=dict(config.env_options),
        eval_env=config.eval_env,
        eval_envs=config.train.eval_envs,
        reward=config.reward,
    )
    spec = choice.make(1).spec
    agent = make_agent(config.settings, spec)
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    learner, iteration = load_policy(folder.path / "policies" / f"{which}.npz", shapes)
    if len(jax.tree.leaves(learner)[0]) != len(config.seeds):
        raise HomingError(f"the policies in {folder.path} are not of the seeds in its config.json")
    return Policies(
        source=str(path),
        agent_name=config.agent,
        agent=agent,
        settings=config.settings,
        learner=learner,
        seeds=config.seeds,
        spec=Spaces(config.env, spec.state_dim, spec.action_dim, spec.goal_dim),
        choice=choice,
        iteration=iteration,
        card=run_card(folder, config, which, iteration),
    )


def check_file(path: str | Path) -> Path:
    """Refuse a name that is none for a policy file."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise ConfigError(f"a policy file ends in {SUFFIX}, not in {path.suffix or path.name!r}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file in it")
    return path


def write_policies(path: str | Path, policies: Policies, half: bool = False) -> Path:
    """Write a policy file; `half` stores numbers in 16 bits, which halves it."""
    path = check_file(path)
    content = {
        "agent": policies.agent_name,
        "settings": dataclasses.asdict(policies.settings),
        "spaces": dataclasses.asdict(policies.spec),
        "choice": dataclasses.asdict(policies.choice),
        "seeds": list(policies.seeds),
        "iteration": policies.iteration,
        "card": dict(policies.card),
    }
    arrays = {name: np.asarray(leaf) for name, leaf in _named(policies.learner)}
    if bad := [name for name, x in arrays.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]:
        raise HomingError(
            f"{policies.source} has diverged ({bad[0]} holds a NaN or an infinity); not written"
        )
    if half:
        arrays = {name: x.astype(np.float16) if halves(x) else x for name, x in arrays.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    container.write(path, arrays, content)
    return path


def halves(array: Any) -> bool:
    """Whether an array [S, ...] may be stored in 16 bits: matrices of weights are nearly all there is.

    Vectors stay as they are; among them are means and variances of observations, which need their digits.
    """
    return array.dtype == np.float32 and array.ndim >= 3


def read_policies(path: str | Path) -> Policies:
    """The policies in a file; needs no simulator."""
    path = Path(path)
    arrays, content = container.read(path)
    plugins.require(_imports(content))
    try:
        name = content["agent"]
        settings, spec = decode(agent_types(name)[0], content["settings"]), Spaces(**content["spaces"])
        agent = make_agent(settings, spec)
        return Policies(
            source=str(path),
            agent_name=name,
            agent=agent,
            settings=settings,
            learner=_learner(agent, arrays, len(content["seeds"])),
            seeds=tuple(content["seeds"]),
            spec=spec,
            choice=EnvChoice(**content["choice"]),
            iteration=int(content["iteration"]),
            card=content["card"],
        )
    except (KeyError, TypeError, HomingError) as error:
        raise HomingError(
            f"{path} does not fit this version of Homing ({error}); export it again from its run"
        ) from error


def _imports(content: Mapping[str, Any]) -> Sequence[str]:
    """Modules that register what the policies need, as their run's config names them."""
    card = content.get("card")
    config = card.get("config") if isinstance(card, Mapping) else None
    imports = config.get("imports", ()) if isinstance(config, Mapping) else ()
    return imports if isinstance(imports, (list, tuple)) else ()


def _learner(agent: Any, arrays: Mapping[str, np.ndarray], seeds: int) -> Any:
    """Arrays as the agent's learner [S, ...]; refuses what its networks have no place for."""
    tree = parameters(jax.eval_shape(agent.init, jax.random.key(0)))
    leaves = []
    for name, leaf in _named(tree):
        found = arrays.get(name)
        if found is None or found.shape != (seeds, *leaf.shape):
            what = "is missing" if found is None else f"is {found.shape}, not {(seeds, *leaf.shape)}"
            raise HomingError(f"{name} {what}")
        leaves.append(jnp.asarray(found, leaf.dtype))
    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]
