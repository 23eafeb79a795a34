"""The library in a few calls: `train`, `resume`, `load`, `evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from homing.errors import ConfigError, HomingError
from homing.types import Array, Obs

if TYPE_CHECKING:  # heavy to import, and `import homing` is for environments too
    from homing.progress import Progress
    from homing.settings import Parts, RunConfig

Which = Literal["last", "best"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run on disk."""

    path: Path
    status: str
    """finished or stopped"""
    signum: int | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Metrics, one row for each seed and evaluation."""
        from homing.runs import RunFolder

        return RunFolder(self.path).rows()

    def curve(self, seed: int, metric: str = "eval/success_any") -> list[tuple[int, float]]:
        """(step, value) of one seed, where it was measured."""
        return [(row["step"], row[metric]) for row in self.rows() if row["seed"] == seed and metric in row]

    def policy(self, seed: int | None = None, which: Which = "last") -> Policy:
        return load(self.path, seed=seed, which=which)


def train(
    agent: str,
    env: str,
    *,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    preset: str = "paper",
    out: str | Path | None = None,
    eval_env: str | None = None,
    episode_length: int = 1000,
    physics: str | None = None,
    options: Mapping[str, Any] | None = None,
    cpu: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Trained:
    """Train an agent and return where its run is.

    seeds:    a number of seeds, 0, 1, …, or the seeds themselves
    out:      a new folder; runs/<env>-<agent>-<time> if not given
    settings: any field of TrainConfig, of the agent's config or of SaveConfig
    """
    from homing.progress import make_progress
    from homing.settings import run_config

    changes = dict(settings) if steps is None else {**settings, "total_steps": steps}
    config = run_config(
        agent,
        env,
        preset_name=preset,
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        changes=changes,
        eval_env=eval_env,
        episode_length=episode_length,
        physics=physics,
        options=dict(options or {}),
    )
    return train_config(config, out, make_progress(quiet), cpu=cpu)


def train_config(
    config: RunConfig, out: str | Path | None, show: Progress, *, cpu: bool = False, fit: bool = False
) -> Trained:
    """Train by a whole config; `fit` takes the largest settings that the memory allows."""
    from homing.runs import default_folder
    from homing.training import runner

    config, parts = prepared(config, show, cpu=cpu, fit=fit)
    path = Path(out) if out is not None else default_folder(config.env, config.agent)
    outcome = runner.start(config, path, show, parts)
    return Trained(outcome.path, outcome.status, outcome.signum)


def prepared(
    config: RunConfig, show: Progress, *, cpu: bool = False, fit: bool = False
) -> tuple[RunConfig, Parts]:
    """Everything that can be wrong is found here: device, sizes, memory, missing packages."""
    from homing.doctor import free_bytes
    from homing.progress import memory_line
    from homing.settings import build
    from homing.trackers import check_installed

    choose_device(cpu)
    check_installed(config.save)
    parts = build(config)
    free = free_bytes()
    if free is not None and not parts.plan.fits(free):
        if not fit:
            show.warn(str(parts.plan))
            parts.plan.check_fits(free)
        config = _fitted(config, parts.plan.largest_fitting(free))
        parts = build(config)
    show.say(str(parts.plan))
    show.say(memory_line(parts.plan, free))
    return config, parts


def _fitted(config: RunConfig, plan: Any) -> RunConfig:
    return dataclasses.replace(config, train=plan.config, seeds=config.seeds[: plan.seeds])


def choose_device(cpu: bool = False) -> None:
    """Decide where to compute and keep compiled programs; before the first computation."""
    from homing.compilation import keep_compiled
    from homing.doctor import require_seen_gpu

    if cpu:
        jax.config.update("jax_platforms", "cpu")
    elif jax.config.jax_platforms != "cpu":  # whoever sets JAX_PLATFORMS=cpu means it
        require_seen_gpu()
    keep_compiled()


def resume(run: str | Path, *, cpu: bool = False, quiet: bool = False) -> Trained:
    """Go on with a run that was stopped or killed, as if nothing had happened."""
    from homing.progress import make_progress
    from homing.training import runner

    choose_device(cpu)
    outcome = runner.resume(run, make_progress(quiet))
    return Trained(outcome.path, outcome.status, outcome.signum)


class Policy:
    """A trained policy: `policy(state, goal)` is the action that it thinks best, in [−1, 1].

    States [..., state_dim] and goals [..., goal_dim] are NumPy or JAX arrays.
    """

    def __init__(self, agent: Any, learner: Any, config: RunConfig, seed: int, iteration: int):
        self.config, self.seed, self.iteration = config, seed, iteration
        self.spec = agent.spec
        self._agent, self._learner = agent, learner
        self._act = jax.jit(self._greedy)

    def _greedy(self, learner: Any, obs: Obs) -> Array:
        return self._agent.act(learner, obs, jax.random.key(0), explore=False)

    def __call__(self, state: Any, goal: Any) -> Array:
        obs = Obs(state=jnp.asarray(state, jnp.float32), goal=jnp.asarray(goal, jnp.float32))
        for name, size in (("state", self.spec.state_dim), ("goal", self.spec.goal_dim)):
            shape = getattr(obs, name).shape
            if not shape or shape[-1] != size:
                raise ConfigError(f"a {name} of {self.config.env} has {size} entries; this one is {shape}")
        return self._act(self._learner, obs)


def load(run: str | Path, *, seed: int | None = None, which: Which = "last") -> Policy:
    """The policy of one seed (the first, if not said) of a run: its last or its best."""
    agent, learner, config, iteration = _learners(run, which)
    seed = config.seeds[0] if seed is None else seed
    if seed not in config.seeds:
        known = ", ".join(map(str, config.seeds))
        raise ConfigError(f"{run} has no seed {seed}; it has {known}")
    place = config.seeds.index(seed)
    return Policy(agent, jax.tree.map(lambda x: x[place], learner), config, seed, iteration)


def _learners(run: str | Path, which: Which) -> tuple[Any, Any, RunConfig, int]:
    """The agent and what all its seeds have learned [S, ...]; no replay is read."""
    from homing.agents import make_agent
    from homing.checkpoints import load_policy
    from homing.runs import RunFolder
    from homing.settings import environment

    if which not in ("last", "best"):
        raise ConfigError(f"which is last or best, not {which!r}")
    folder = RunFolder.existing(run)
    config = folder.config()
    agent = make_agent(config.settings, environment(config, config.env, 1).spec)
    shapes = jax.eval_shape(agent.init, jax.random.key(0))
    learner, iteration = load_policy(folder.path / "policies" / f"{which}.npz", shapes)
    if len(jax.tree.leaves(learner)[0]) != len(config.seeds):
        raise HomingError(f"the policies in {folder.path} are not of the seeds in its config.json")
    return agent, learner, config, iteration


def evaluate(
    run: str | Path,
    *,
    env: str | None = None,
    episodes: int | None = None,
    which: Which = "last",
    seed: int = 0,
) -> dict[str, Any]:
    """How well a run's policies reach goals: `seeds` has a row for each, `summary` IQM and 95 % interval.

    env:      another environment than the run was evaluated in, with states and goals of the same size
    episodes: of each seed, all at once
    seed:     of starts and goals
    """
    from homing.report.stats import aggregate
    from homing.settings import check_alike, environment
    from homing.training.seeds import evaluate_learners

    agent, learner, config, iteration = _learners(run, which)
    id = env or config.eval_env or config.env
    made = environment(config, id, config.train.eval_envs if episodes is None else episodes)
    check_alike(agent, made)
    metrics = jax.device_get(evaluate_learners(made, agent, learner, jax.random.key(seed)))
    finite = _finite(learner)
    rows = [
        {"seed": s} | ({name: float(v[i]) for name, v in sorted(metrics.items())} if finite[i] else {})
        for i, s in enumerate(config.seeds)
    ]
    return {
        "run": str(run),
        "env": id,
        "episodes": made.num_envs,
        "which": which,
        "iteration": iteration,
        "diverged": [s for s, ok in zip(config.seeds, finite, strict=True) if not ok],
        "seeds": rows,
        "summary": aggregate({name: v[finite] for name, v in metrics.items()}),
    }


def _finite(learner: Any) -> np.ndarray:
    """[S] bool: seeds without a NaN or an infinity in what they learned."""
    leaves = [np.asarray(x) for x in jax.tree.leaves(learner)]
    return np.all([np.isfinite(x.reshape(len(x), -1)).all(axis=-1) for x in leaves], axis=0)
