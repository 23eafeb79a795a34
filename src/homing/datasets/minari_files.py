"""Minari datasets: Homing's episodes with an environment that `recover_environment` makes, and others read back."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from homing.datasets.episodes import Dataset, from_rows
from homing.envs.base import GoalEnv
from homing.envs.info import gymnasium_id
from homing.errors import ConfigError, HomingError, missing_package, shown
from homing.version import __version__

ID = re.compile(r"\w[\w-]*(/\w[\w-]*)+-v\d+", re.ASCII)
ENTRY_POINT = "homing.adapters.gymnasium:HomingEnv"


def library() -> Any:
    """The package `minari`, or an error that names the extra."""
    try:
        import minari
    except ModuleNotFoundError as error:
        raise missing_package("a Minari dataset", "minari", error) from None
    return minari


def check_id(dataset_id: str) -> str:
    """Refuse an id that Minari would not take, or that is there already."""
    minari = library()
    if not ID.fullmatch(dataset_id):
        raise ConfigError(f"a Minari dataset is named namespace/env/name-v0, not {shown(dataset_id)}")
    if dataset_id in minari.list_local_datasets():
        raise ConfigError(f"there is a Minari dataset {dataset_id} already; choose another --out")
    return dataset_id


def write_minari(dataset_id: str, dataset: Dataset, env: GoalEnv) -> str:
    """Write a dataset to Minari's folder ($MINARI_DATASETS_PATH), with the dict observations of goal environments."""
    minari, check_id_ = library(), check_id(dataset_id)
    spec = _spec(dataset.notes, env)
    buffers = [_buffer(minari, dataset, env, i) for i in range(dataset.episodes)]
    policy = dataset.notes.get("policy", {})
    with _quiet():
        minari.create_dataset_from_buffers(
            check_id_,
            buffers,
            env=spec,
            algorithm_name=str(policy.get("agent", "unknown")),
            description=f"{dataset.episodes} episodes of {env.spec.id}, exported by Homing {__version__}",
            requirements=[f"homing>={__version__}"],
        )
    return dataset_id


def _spec(notes: Mapping[str, Any], env: GoalEnv) -> Any:
    from gymnasium.envs.registration import EnvSpec

    options = {name: notes[name] for name in ("physics", "env_options") if notes.get(name)}
    return EnvSpec(
        id=gymnasium_id(env.spec.id),
        entry_point=ENTRY_POINT,
        max_episode_steps=env.episode_length,
        kwargs={"env_id": env.spec.id, **options},
    )


def _buffer(minari: Any, dataset: Dataset, env: GoalEnv, episode: int) -> Any:
    start, end = int(dataset.starts[episode]), int(dataset.ends[episode])
    states, length = dataset.observations[start : end + 1], end - start
    achieved = states[:, list(env.spec.goal_indices)]
    goals = dataset.goals[start : end + 1] if dataset.goals is not None else 0 * achieved + achieved[-1]
    fell = np.zeros(length, bool)
    fell[-1] = dataset.terminated[episode]
    ended = np.arange(length) == length - 1
    return minari.data_collector.EpisodeBuffer(
        id=episode,
        observations={"observation": states, "achieved_goal": achieved, "desired_goal": goals},
        actions=dataset.actions[start:end],
        rewards=np.asarray(env.reward(jnp.asarray(achieved[1:]), jnp.asarray(goals[:-1]))).tolist(),
        terminations=fell.tolist(),
        truncations=(ended & ~fell).tolist(),
    )


def read_minari(dataset_id: str, progress: Callable[[int], None] = lambda done: None) -> Dataset:
    """A local Minari dataset with Box observations, or dict ones as goal environments have, as rows."""
    minari = library()
    if dataset_id not in minari.list_local_datasets():
        raise ConfigError(
            f"there is no local Minari dataset {shown(dataset_id)}; `minari list local` names them and "
            "`minari download` gets others"
        )
    try:
        source = minari.load_dataset(dataset_id)
        columns: list[list[np.ndarray]] = [[], [], [], [], []]
        for done, episode in enumerate(source.iterate_episodes(), start=1):
            for column, rows in zip(columns, _episode_rows(episode), strict=True):
                column.append(rows)
            progress(done)
        joined = [np.concatenate(column) if len(column[0]) else None for column in columns]
        return from_rows(*joined, notes=_notes(source))  # type: ignore[arg-type]
    except HomingError as error:
        raise HomingError(f"cannot use the Minari dataset {dataset_id}: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, IndexError, RuntimeError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise HomingError(
            f"cannot read the Minari dataset {dataset_id} ({reason}); download or export it again"
        ) from error


def _episode_rows(episode: Any) -> list[np.ndarray]:
    """Rows of an episode, in the order of `from_rows`; no goals where there are none."""
    seen = episode.observations
    states = seen["observation"] if isinstance(seen, dict) else seen
    goals = seen.get("desired_goal") if isinstance(seen, dict) else None
    if not isinstance(states, np.ndarray) or not isinstance(episode.actions, np.ndarray):
        raise HomingError("its observations or actions are not plain arrays")
    length = len(episode.actions)
    if states.ndim != 2 or episode.actions.ndim != 2 or len(states) != length + 1:
        raise HomingError(
            f"episode {episode.id} has observations {list(states.shape)} and actions {list(episode.actions.shape)}; "
            "they must be [T + 1, size] and [T, size]"
        )
    at_end = np.zeros(length + 1, np.float32)
    at_end[-1] = 1
    dummy = np.zeros((1, episode.actions.shape[1]), episode.actions.dtype)
    fell = at_end * bool(episode.terminations[-1])
    actions = np.concatenate([episode.actions, dummy])
    return [states, actions, at_end, fell, np.zeros((0, 1)) if goals is None else np.asarray(goals)]


def _notes(source: Any) -> dict[str, Any]:
    """What the environment spec says: the id of ours, or that of another library."""
    spec = source.env_spec
    if spec is None:
        return {}
    kwargs = spec.kwargs or {}
    ours = {"env": str(kwargs.get("env_id", spec.id))}
    if "env_id" in kwargs:
        ours |= {name: kwargs[name] for name in ("physics", "env_options") if name in kwargs}
    return ours | ({"episode_length": spec.max_episode_steps} if spec.max_episode_steps else {})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Minari warns of every optional field that is left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
