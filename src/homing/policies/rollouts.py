"""Datasets of a policy's episodes: what is written, how large it will be, and the files themselves."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax

from homing.bounds import check_value, check_values
from homing.config.plan import human_bytes
from homing.datasets import minari_files, npz
from homing.datasets.collect import Exploration, collect, with_exploration
from homing.datasets.episodes import Dataset
from homing.envs.base import GoalEnv
from homing.envs.registry import canonical
from homing.envs.renewal import without_renewal
from homing.errors import ConfigError
from homing.policies.store import Policies, Which, find_policies
from homing.training.build import check_alike
from homing.types import Array, Key, Obs
from homing.version import __version__

Format = Literal["ogbench", "minari"]
PLAIN = Exploration()


@dataclasses.dataclass(frozen=True)
class DataExport:
    """Episodes of one policy, to be collected and written."""

    policies: Policies
    env: GoalEnv
    episodes: int
    format: Format
    out: str
    policy_seed: int | None = None
    explore: bool = False
    exploration: Exploration = PLAIN
    seed: int = 0
    val_fraction: float = 0.1

    @property
    def val_episodes(self) -> int:
        """Episodes of the validation file, at least one where there is any."""
        if self.format == "minari" or self.val_fraction == 0:
            return 0
        return min(max(1, round(self.val_fraction * self.episodes)), self.episodes - 1)

    @property
    def files(self) -> list[Path]:
        """The npz files that will be written; none for Minari, which has a folder of its own."""
        if self.format == "minari":
            return []
        path = npz.check_name(self.out)
        return [path, npz.val_path(path)] if self.val_episodes else [path]

    @property
    def most_bytes(self) -> int:
        """Size of the data where no episode ends early."""
        spec, rows = self.env.spec, self.episodes * (self.env.episode_length + 1)
        return npz.size_of(rows, spec.state_dim, spec.action_dim, spec.goal_dim)

    def check(self) -> None:
        """Refuse what exists already, what would not fit, and a package that is missing."""
        if self.format == "minari":
            minari_files.check_id(self.out)
        for path in self.files:
            if path.exists():
                raise ConfigError(f"{path} exists already and is not overwritten; choose another --out")
        if self.most_bytes > npz.MAX_BYTES:
            raise ConfigError(
                f"{self.episodes} episodes would take {human_bytes(self.most_bytes)}, more than the "
                f"{human_bytes(npz.MAX_BYTES)} of one dataset; write several with different --seed"
            )
        if self.files:
            there = next(p for p in Path(self.files[0]).absolute().parents if p.exists())
            if (free := shutil.disk_usage(there).free) < self.most_bytes:
                raise ConfigError(
                    f"{self.out} would take up to {human_bytes(self.most_bytes)} and {human_bytes(free)} are free; "
                    "export fewer --episodes"
                )

    def collected(self, progress: Callable[[int], None] = lambda done: None) -> Dataset:
        """The episodes, of `explore`d or greedy actions with noise on them."""
        agent, learner = self.policies.agent, self.policies.one(self.policy_seed)

        def act(obs: Obs, key: Key) -> Array:
            return agent.act(learner, obs, key, explore=self.explore)

        policy = with_exploration(act, self.exploration, self.env.spec.action_dim)
        key = jax.random.key(self.seed)
        return collect(self.env, policy, key, self.episodes, agent.chunk, self._notes(), progress)

    def write(self, dataset: Dataset) -> list[str]:
        """Write the files, whole or not at all, or the Minari dataset; their names."""
        if self.format == "minari":
            return [minari_files.write_minari(self.out, dataset, self.env)]
        val = self.val_episodes
        parts = [dataset.after(val), dataset.first(val)] if val else [dataset]
        return [str(npz.write_dataset(path, part)) for path, part in zip(self.files, parts, strict=True)]

    @property
    def _env_options(self) -> dict[str, Any]:
        """Options of the environment that is collected in: another one has none, and no episode has new goals."""
        choice = self.policies.choice
        own = self.env.spec.id == canonical(choice.env)
        return without_renewal(choice.env_options) if own else {}

    def _notes(self) -> dict[str, Any]:
        choice, place = self.policies.choice, self.policies.place(self.policy_seed)
        return {
            "format": "homing dataset",
            "version": 1,
            "env": self.env.spec.id,
            "goal_indices": [int(i) for i in self.env.spec.goal_indices],
            "episode_length": self.env.episode_length,
            "physics": choice.physics,
            "env_options": self._env_options,
            "policy": {
                "name": Path(self.policies.source).name,
                "agent": self.policies.agent_name,
                "seed": self.policies.seeds[place],
                "iteration": self.policies.iteration,
                "explore": self.explore,
            },
            "noise": self.exploration.noise,
            "random_actions": self.exploration.random_actions,
            "seed": self.seed,
            "written_by": f"homing {__version__}",
            "date": datetime.date.today().isoformat(),
        }


def plan_export(
    source: str | Path,
    *,
    episodes: int,
    format: Format = "ogbench",
    out: str | Path | None = None,
    env: str | None = None,
    episode_length: int | None = None,
    which: Which = "last",
    noise: float = 0.0,
    random_actions: float = 0.0,
    seed: int = 0,
    val_fraction: float = 0.1,
    **options: Any,
) -> DataExport:
    """An export of a policy's episodes, checked; nothing is computed yet."""
    episodes, seed = check_value("episodes", episodes), check_value("seed", seed)
    exploration = Exploration(check_value("noise", noise), check_value("random_actions", random_actions))
    val_fraction = check_value("val_fraction", val_fraction)
    (episode_length,) = check_values(episode_length=episode_length)
    if format not in ("ogbench", "minari"):
        raise ConfigError(f"a dataset's format is ogbench or minari, not {format!r}")
    policies = find_policies(source, which)
    made = policies.choice.make(1, env)
    check_alike(policies, made)
    if episode_length is not None:
        made = made.of_size(1, episode_length=episode_length)
    name = f"{made.spec.id}-{policies.agent_name}"
    default = f"data/{name}.npz" if format == "ogbench" else f"homing/{made.spec.id}/{policies.agent_name}-v0"
    planned = DataExport(
        policies,
        made,
        episodes,
        format,
        str(out or default),
        exploration=exploration,
        seed=seed,
        val_fraction=val_fraction,
        **options,
    )
    policies.one(planned.policy_seed)
    planned.check()
    return planned


def export_data(
    source: str | Path,
    out: str | Path | None = None,
    *,
    episodes: int,
    format: Format = "ogbench",
    noise: float = 0.0,
    random_actions: float = 0.0,
    seed: int = 0,
    val_fraction: float = 0.1,
    **options: Any,
) -> list[str]:
    """Roll a policy out in its environment and write the episodes; the names of what was written.

    source:         a run's folder, a policy file or the name of a shipped policy
    out:            an .npz file, or an id such as homing/ant/crl-v0 for Minari; it must not exist
    noise:          standard deviation of Gaussian noise on every action
    random_actions: fraction of steps with a uniformly random action
    seed:           random seed of starts, goals and noise
    val_fraction:   fraction of the episodes that go to a second file, NAME-val.npz
    options:        env and episode_length, if not the policy's; policy_seed and which; explore, to sample actions
    """
    if unknown_names := set(options) - {"env", "episode_length", "policy_seed", "which", "explore"}:
        raise ConfigError(f"export_data has no option {sorted(unknown_names)[0]!r}")
    planned = plan_export(
        source,
        episodes=episodes,
        format=format,
        out=out,
        noise=noise,
        random_actions=random_actions,
        seed=seed,
        val_fraction=val_fraction,
        **options,
    )
    return planned.write(planned.collected())
