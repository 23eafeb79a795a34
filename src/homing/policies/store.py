"""Trained policies of one agent, one for each seed: from a run's folder, a file, or shipped with the package."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from homing.agents import make_agent
from homing.config.decoding import decode
from homing.errors import ConfigError, HomingError, nearest
from homing.networks import with_nets
from homing.policies import checks
from homing.policies.bundled import shipped, shipped_names
from homing.policies.card import Card, check_card, run_card
from homing.runs.folder import CONFIG, RunFolder
from homing.runs.policy_files import (
    finite_seeds,
    halves,
    load_policy,
    mismatch,
    named_arrays,
    policy_path,
    policy_tensors,
    to_learner,
)
from homing.runs.strict_json import open_plain
from homing.runs.tensors import SUFFIX, TensorFile, write_tensors
from homing.runs.validation import is_count
from homing.training.build import environment

Which = Literal["last", "best"]


@dataclasses.dataclass(frozen=True)
class EnvChoice:
    """The environment of a policy, and how it is evaluated there."""

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
    """Sizes of states, actions and goals; enough to build a policy's networks."""

    id: str
    state_dim: int
    action_dim: int
    goal_dim: int
    threshold: float = 0.0
    """Distance at which a goal counts as reached; only training depends on it."""


@dataclasses.dataclass(frozen=True)
class Policies:
    """Trained policies of one agent, one for each seed.

    source:   their name in messages: a path or a shipped name
    settings: of the agent
    learner:  [S, ...] without optimisers
    card:     the model card, plain values
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
        """Index of a seed; of the first if none is given."""
        if seed is None:
            return 0
        if seed not in self.seeds:
            known = ", ".join(map(str, self.seeds))
            raise ConfigError(f"{self.source} has no seed {seed}; it has {known}")
        return self.seeds.index(seed)

    def one(self, seed: int | None) -> Any:
        """The learner of one seed; refuses a seed that has diverged."""
        place = self.place(seed)
        if not finite_seeds(self.learner)[place]:
            raise HomingError(
                f"seed {self.seeds[place]} of {self.source} has diverged: its weights hold a NaN or an infinity; "
                "choose another seed, or --which best"
            )
        return jax.tree.map(lambda x: x[place], self.learner)

    def only(self, seeds: tuple[int, ...]) -> Policies:
        """These seeds alone."""
        places = np.array([self.place(seed) for seed in seeds])
        learner = jax.tree.map(lambda x: x[places], self.learner)
        return dataclasses.replace(self, learner=learner, seeds=seeds)

    def in_float32(self) -> Policies:
        """The same policies with networks that compute in float32, whatever they were trained in.

        What bfloat16 gives depends on the compiler: XLA keeps more digits between some operations.
        """
        settings = with_nets(self.settings, {"dtype": "float32"})
        return dataclasses.replace(self, settings=settings, agent=make_agent(settings, self.spec))


def locate(source: str | Path) -> Path:
    """The run's folder or the policy file that a name stands for; computes nothing."""
    path, name = Path(source), str(source)
    try:
        if path.is_dir():
            return RunFolder.existing(path).path
        if path.is_file():
            _check_not_in_run(path)
            return path
        if path.exists():
            raise ConfigError(f"{source} is neither a folder nor a regular file; name a run or a policy file")
    except OSError as error:
        raise ConfigError(
            f"{name[:60]} is not a usable path ({error.strerror}); name a run or a policy file"
        ) from error
    if name in shipped_names():
        return shipped(name)
    if path.suffix or len(path.parts) > 1:
        raise ConfigError(f"{source} does not exist; name a run's folder, a policy file or a shipped policy")
    close = " or ".join(map(repr, nearest(name, shipped_names())))
    hint = f"did you mean {close}?" if close else f"shipped are: {', '.join(shipped_names()) or 'none'}"
    raise ConfigError(
        f"{name!r} is not a run's folder, a policy file or a shipped policy; {hint} (`homing policies` lists them)"
    )


def _check_not_in_run(path: Path) -> None:
    """Refuse the parameters that a run keeps: what they belong to is in its folder."""
    path = path.absolute()
    run = path.parent.parent
    if path in (policy_path(run, "last"), policy_path(run, "best")) and (run / CONFIG).is_file():
        raise ConfigError(
            f"{path} holds parameters only; name its run, {run} (which has the last policies and, with --which best, "
            "the best), or export it"
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
    file = policy_path(folder.path, which)
    tensors = policy_tensors(file)
    spec = choice.make(1).spec
    checks.check_sizes(file, config.settings, spec, tensors)
    agent = make_agent(config.settings, spec)
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    learner, iteration = load_policy(file, shapes, len(config.seeds))
    return Policies(
        source=str(path),
        agent_name=config.agent,
        agent=agent,
        settings=config.settings,
        learner=learner,
        seeds=config.seeds,
        spec=Spaces(config.env, spec.state_dim, spec.action_dim, spec.goal_dim, float(spec.threshold)),
        choice=choice,
        iteration=iteration,
        card=run_card(folder, config, which, iteration),
    )


def check_file(path: str | Path) -> Path:
    """Refuse a path that cannot be that of a policy file."""
    path = Path(path)
    if path.suffix != SUFFIX:
        raise ConfigError(f"a policy file ends in {SUFFIX}, not in {path.suffix or path.name!r}")
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; name a file in it")
    return path


def write_policies(path: str | Path, policies: Policies, half: bool = False) -> Path:
    """Write a policy file; `half` stores weights in 16 bits, which halves it."""
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
    if not finite_seeds(policies.learner).all():
        raise HomingError(
            f"{policies.source} has diverged (its weights hold a NaN or an infinity); nothing was written: "
            "choose another seed, or --which best"
        )
    arrays = named_arrays(policies.learner)
    if half:
        arrays = {name: x.astype(np.float16) if halves(x) else x for name, x in arrays.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, arrays, content)
    return path


def read_policies(path: str | Path) -> Policies:
    """The policies in a file; needs no simulator."""
    path = Path(path)
    with open_plain(path) as opened:
        file = TensorFile(path, opened).verified()
        try:
            return _policies(file)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, HomingError) as error:
            reason = f"it has no {error}" if type(error) is KeyError else str(error)
            raise HomingError(
                f"{path} does not fit this version of Homing ({reason}); export it again from its run"
            ) from error


def read_card(path: str | Path) -> Card:
    """The model card in a policy file, from its header alone; no array is read."""
    path = Path(path)
    with open_plain(path) as opened:
        content = TensorFile(path, opened).content
    if not isinstance(content, dict) or "card" not in content:
        raise HomingError(f"{path} has no card; export it again from its run")
    return check_card(content["card"])


def _policies(file: TensorFile) -> Policies:
    """Policies from a file of arrays; whatever does not fit raises."""
    content, tensors = file.content, file.tensors
    if not isinstance(content, dict):
        raise HomingError("its metadata describe no policy")
    name, seeds, card = content["agent"], checks.seeds_of(content["seeds"]), check_card(content["card"])
    settings = decode(checks.settings_type(str(name), card), content["settings"])
    spec, choice = decode(Spaces, content["spaces"]), decode(EnvChoice, content["choice"])
    checks.check_sizes(file.path, settings, spec, tensors)
    checks.check_choice(choice)
    agent = make_agent(settings, spec)
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    if wrong := mismatch(shapes, tensors, len(seeds), half=True):
        raise HomingError(wrong)
    if not is_count(content["iteration"]):
        raise HomingError("its iteration is not a whole number")
    learner = to_learner(shapes, file.arrays())
    if not finite_seeds(learner).all():
        raise HomingError("its weights hold a NaN or an infinity")
    return Policies(
        source=str(file.path),
        agent_name=name,
        agent=agent,
        settings=settings,
        learner=learner,
        seeds=seeds,
        spec=spec,
        choice=choice,
        iteration=content["iteration"],
        card=card,
    )
