"""The library in a few calls: `train`, `resume`, `load`, `evaluate`."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from homing.bounds import check_value, check_values
from homing.errors import ConfigError, shown
from homing.policies.policy import Policy

if TYPE_CHECKING:  # heavy to import, and `import homing` is for environments too
    from homing.config.run import RunConfig
    from homing.runs.progress import Progress
    from homing.training.build import Parts

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
        from homing.runs.folder import RunFolder

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
    preset: str | None = None,
    out: str | Path | None = None,
    eval_env: str | None = None,
    episode_length: int | None = None,
    physics: str | None = None,
    reward: str | None = None,
    env_options: Mapping[str, Any] | None = None,
    data: str | Path | None = None,
    init_from: str | Path | None = None,
    cpu: bool = False,
    devices: int | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Trained:
    """Train an agent and return the run on disk.

    agent:       crl, srl, sac, td3, ppo, gcbc, one of your own, or best: the recipe of the environment
    seeds:       a number of seeds, 0, 1, …, or the seeds themselves
    steps:       environment steps of each seed, with `data` updates; short for total_steps
    preset:      paper by default; best has its own
    out:         a new folder; runs/<env>-<agent>-<time> by default
    eval_env:    evaluate in this environment instead of `env`
    episode_length: steps of an episode; 1000 by default, best may have its own
    reward:      sparse, or dense where the environment's body has one; sparse by default, best may have its own
    env_options: settings of body, task or arena by dotted name, `{"task.within": 0.3}`
    data:        learn from this dataset (.npz) instead of collecting
    init_from:   start with the parameters of this run, policy file or shipped policy, with new optimisers
    devices:     shard the run over this many devices; 0 means all
    settings:    any field of the loop's config (TrainConfig, for PPO OnPolicyConfig), the agent's or SaveConfig
    """
    from homing.config.presets import DEFAULT
    from homing.config.recipes import BEST, OWN_PRESET, recipe_for
    from homing.config.run import DataFile, RunConfig, parse_seeds, run_config
    from homing.runs.progress import make_progress

    if env_options is not None and not isinstance(env_options, Mapping):
        raise ConfigError(
            f"env_options must be a mapping such as {{'task.within': 0.3}}, not {shown(env_options)}"
        )
    if steps is not None and "total_steps" in settings:
        raise ConfigError("steps and total_steps set the same thing; give one of them")
    _check_path("out", out, optional=True)
    _check_path("data", data, optional=True)
    _check_path("init_from", init_from, optional=True)
    changes = dict(settings) if steps is None else {**settings, "total_steps": steps}
    if agent == BEST:
        if preset is not None:
            raise ConfigError(OWN_PRESET)
        recipe = recipe_for(env)
        agent, preset = recipe.agent, recipe.preset
        own: dict[str, Any] = dict(recipe.settings)
        length = own.pop("episode_length", None)
        episode_length = length if episode_length is None else episode_length
        # Of a network, single settings may be given.
        changes = {**own, **{name: _joined(own.get(name), value) for name, value in changes.items()}}
        env_options = {**recipe.env_options, **(env_options or {})}
        reward, init_from = reward or recipe.reward, init_from or recipe.init_from
        eval_env, env = eval_env or recipe.run.get("eval_env"), recipe.train_env or env
    config = run_config(
        agent,
        env,
        preset_name=DEFAULT if preset is None else preset,
        seeds=parse_seeds(_whole_seeds(seeds)),
        changes=changes,
        eval_env=eval_env,
        episode_length=RunConfig.episode_length if episode_length is None else episode_length,
        physics=physics,
        reward="sparse" if reward is None else reward,
        env_options={} if env_options is None else env_options,
        data=None if data is None else DataFile(str(Path(data).absolute())),
        init_from=None if init_from is None else str(init_from),
    )
    return train_config(config, out, make_progress(quiet), cpu=cpu, devices=devices)


def _joined(base: Any, changes: Any) -> Any:
    """Two mappings, of which the second counts; else the second value."""
    both = isinstance(base, Mapping) and isinstance(changes, Mapping)
    return {**base, **changes} if both else changes


def train_config(
    config: RunConfig,
    out: str | Path | None,
    show: Progress,
    *,
    cpu: bool = False,
    fit: bool = False,
    devices: int | None = None,
    multi_host: bool = False,
) -> Trained:
    """Train by a whole config.

    fit:        where memory is short, use the largest settings that fit
    devices:    shard the run over this many devices; 0 means all
    multi_host: this process is one of several that share the run
    """
    from homing.runs.folder import default_folder
    from homing.training import runner
    from homing.training.sharding import placement, shown_here

    if multi_host and out is None:
        raise ConfigError("a run of several processes needs one --out for all of them, on a shared disk")
    (devices,) = check_values(devices=devices)
    config, parts = prepared(config, show, cpu=cpu, fit=fit, devices=devices, multi_host=multi_host)
    path = Path(out) if out is not None else default_folder(config.env, config.agent)
    outcome = runner.start(config, path, shown_here(show), parts, placement(devices, parts.plan))
    return Trained(outcome.path, outcome.status, outcome.signum)


def prepared(
    config: RunConfig,
    show: Progress,
    *,
    cpu: bool = False,
    fit: bool = False,
    devices: int | None = None,
    multi_host: bool = False,
) -> tuple[RunConfig, Parts]:
    """The config and its parts, checked before anything compiles: device, sizes, memory, missing packages."""
    from homing.runs.loggers import check_installed
    from homing.runs.progress import memory_line
    from homing.system.doctor import free_bytes
    from homing.training.build import build
    from homing.training.device import choose_device
    from homing.training.sharding import memory_of, placement, shown_here

    (devices,) = check_values(devices=devices)
    choose_device(cpu, devices, multi_host)
    show = shown_here(show)
    check_installed(config.save)
    parts = build(config)
    spread = placement(devices, parts.plan)
    free = memory_of(free_bytes(), spread)
    if free is not None and not parts.plan.fits(free):
        if not fit:
            show.warn(str(parts.plan))
            parts.plan.check_fits(free)
        config = _fitted(config, parts.plan.largest_fitting(free))
        parts = build(config)
    if config.init_from is not None:
        from homing.policies.initial import initial_learner

        parts = parts._replace(initial=initial_learner(config, parts))
    show.say(str(parts.plan))
    if spread is not None:
        show.say(str(spread))
    show.say(memory_line(parts.plan, free))
    return config, parts


def _fitted(config: RunConfig, plan: Any) -> RunConfig:
    return dataclasses.replace(config, train=plan.config, seeds=config.seeds[: plan.seeds])


def resume(
    run: str | Path,
    *,
    cpu: bool = False,
    quiet: bool = False,
    devices: int | None = None,
    multi_host: bool = False,
    accept_changes: bool = False,
) -> Trained:
    """Continue a run that was stopped or killed, from its last checkpoint.

    devices:    shard the run over this many devices, which may differ from before; 0 means all
    multi_host: this process is one of several that share the run
    accept_changes: continue with settings that were edited, or from the start where all checkpoints are lost
    """
    from homing.runs.progress import make_progress
    from homing.training import runner
    from homing.training.device import choose_device
    from homing.training.sharding import placement, shown_here

    _check_path("run", run)
    (devices,) = check_values(devices=devices)
    choose_device(cpu, devices, multi_host)
    show = shown_here(make_progress(quiet))
    outcome = runner.resume(run, show, lambda parts: placement(devices, parts.plan), accept_changes)
    return Trained(outcome.path, outcome.status, outcome.signum)


def load(source: str | Path, *, seed: int | None = None, which: Which = "last") -> Policy:
    """The policy of one seed (by default the first) of a run's folder, a policy file or a shipped policy.

    which: the last or the best of a run; a file has only one
    """
    from homing.policies import find_policies

    _check_path("source", source)
    (seed,) = check_values(seed=seed)
    return Policy(find_policies(source, which), seed)


def export(
    run: str | Path,
    out: str | Path,
    *,
    seed: int | Literal["best", "all"] = "best",
    which: Which = "last",
    episodes: int | None = None,
    half: bool = False,
    chain: int | None = None,
    chain_steps: int | None = None,
    hf: bool = False,
    license: str = "apache-2.0",
) -> Path:
    """Write policies of a run, with a model card, to one small file that `load` reads.

    run:         a run's folder, a policy file or the name of a shipped policy
    out:         a .safetensors file, an .onnx file (one seed, no card) or, with `hf`, a new folder
    seed:        one of the run's seeds, the most successful or all
    episodes:    evaluate them on this many fresh episodes, instead of quoting the run's own evaluation
    half:        store weights in 16 bits
    chain:       evaluate them along chains of this many goals too, with `chain_steps` for each, as `evaluate` does
    hf:          write a folder with the policy file and a model card in Hugging Face's form
    license:     identifier of the license that the folder's card names
    """
    from homing.policies.export import export_as

    _check_path("run", run)
    _check_path("out", out)
    (episodes,) = check_values(episodes=episodes)
    chain, chain_steps = _chain_counts(chain, chain_steps)
    options: dict[str, Any] = {"seed": seed, "which": which, "episodes": episodes, "half": half}
    return export_as(run, out, hf, license, **options, chain=chain, chain_steps=chain_steps)


def evaluate(
    run: str | Path,
    *,
    env: str | None = None,
    episodes: int | None = None,
    which: Which = "last",
    seed: int = 0,
    explore: bool = False,
    chain: int | None = None,
    chain_steps: int | None = None,
) -> dict[str, Any]:
    """Evaluate policies: `seeds` has the metrics of each, `summary` their IQM and 95 % interval.

    run:         a run's folder, a policy file or the name of a shipped policy
    env:         another environment, with states and goals of the same size
    episodes:    episodes of each seed, all in parallel
    seed:        random seed of starts and goals
    explore:     sample actions as in training instead of acting greedily
    chain:       goals one after the other in each episode, without a reset between them; the metrics are
                 the fractions reached, `reached_1`, `reached_2`, …
    chain_steps: steps for each goal of a chain; the time limit of an episode by default
    """
    from homing.policies import find_policies
    from homing.policies.export import evaluated

    _check_path("run", run)
    seed = check_value("seed", seed)
    (episodes,) = check_values(episodes=episodes)
    chain, chain_steps = _chain_counts(chain, chain_steps)
    policies = find_policies(run, which)
    return evaluated(policies, env, episodes, seed, explore, chain, chain_steps) | {"which": which}


def _whole_seeds(seeds: Any) -> Any:
    """A number of seeds or a list of them, with plain integers for NumPy's and for floats such as 2.0."""
    if isinstance(seeds, numbers.Real) and not isinstance(seeds, bool):
        return check_value("seeds", seeds)
    if isinstance(seeds, Sequence) and not isinstance(seeds, (str, bytes)):
        return tuple(check_value("seed", seed) for seed in seeds)
    return seeds


def _chain_counts(chain: int | None, chain_steps: int | None) -> tuple[int | None, int | None]:
    """Goals of a chain and steps for each, checked."""
    chain, chain_steps = check_values(chain=chain, chain_steps=chain_steps)
    if chain_steps is not None and chain is None:
        raise ConfigError(
            "chain_steps is the time for each goal of a chain; give chain, the number of goals, too"
        )
    return chain, chain_steps


def _check_path(name: str, path: Any, optional: bool = False) -> None:
    if not (isinstance(path, (str, Path)) or (optional and path is None)):
        raise ConfigError(f"{name} must be a path, not {shown(path)}")
