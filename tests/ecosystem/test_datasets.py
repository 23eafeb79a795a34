"""Datasets in the hands of other libraries: OGBench's loader, Minari's storage, and the environment it recovers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from data_helpers import walk_dataset
from probes import walk

from homing.cli.main import main
from homing.datasets import minari_files, read_dataset, write_dataset
from homing.errors import ConfigError, HomingError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder of Minari datasets of its own."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path


# OGBench.


def test_the_loader_of_ogbench_reads_our_files(tmp_path):
    utils = pytest.importorskip("ogbench.utils")
    data = walk_dataset(30, ragged=True)
    path = write_dataset(tmp_path / "walk-navigate-v0.npz", data)
    loaded = utils.load_dataset(str(path))
    here = np.delete(np.arange(data.rows), data.ends)
    np.testing.assert_array_equal(loaded["observations"], data.observations[here])
    np.testing.assert_array_equal(loaded["next_observations"], data.observations[here + 1])
    np.testing.assert_array_equal(loaded["actions"], data.actions[here])
    assert loaded["terminals"].sum() == data.episodes
    compact = utils.load_dataset(str(path), compact_dataset=True)
    assert compact["valids"].sum() == data.transitions


def test_behaviour_cloning_on_what_ogbench_loads_reaches_goals(tmp_path):
    """In OGBench goals are whole observations of the same trajectory; its own agents are not in the package."""
    utils = pytest.importorskip("ogbench.utils")
    data = utils.load_dataset(str(write_dataset(tmp_path / "x.npz", walk_dataset(300))))
    ends = np.flatnonzero(data["terminals"])
    draw = np.random.default_rng(0)
    sizes = [(4, 64), (64, 64), (64, 2)]
    params = [(jnp.asarray(draw.normal(size=s) / s[0] ** 0.5, jnp.float32), jnp.zeros(s[1])) for s in sizes]

    def policy(params, x):
        for kernel, bias in params[:-1]:
            x = jax.nn.relu(x @ kernel + bias)
        return jnp.tanh(x @ params[-1][0] + params[-1][1])

    optimiser = optax.adam(3e-3)

    @jax.jit
    def update(params, state, x, action):
        grads = jax.grad(lambda p: jnp.mean(jnp.square(policy(p, x) - action)))(params)
        steps, state = optimiser.update(grads, state)
        return optax.apply_updates(params, steps), state

    state = optimiser.init(params)
    for _ in range(500):
        rows = draw.integers(0, len(data["observations"]), 256)
        last = ends[np.searchsorted(ends, rows)]
        ahead = np.minimum(rows + draw.geometric(0.1, 256) - 1, last)
        x = np.concatenate([data["observations"][rows], data["next_observations"][ahead]], axis=-1)
        params, state = update(params, state, x, data["actions"][rows])
    env = walk(64)
    now = env.reset(jax.random.key(0))
    goals, reached = now.obs.goal, np.zeros(64, bool)
    for _ in range(24):
        now = env.step(now, policy(params, jnp.concatenate([now.obs.state, goals], axis=-1)))
        reached |= np.asarray(env.reward(now.achieved_goal, goals) > 0)
    assert reached.mean() > 0.8


def test_files_of_ogbench_are_read(tmp_path):
    """As its own scripts write them: compressed, with the simulator's coordinates beside."""
    data = walk_dataset(5)
    terminals = np.zeros(data.rows, bool)
    terminals[data.ends] = True
    arrays = {"observations": data.observations, "actions": data.actions, "terminals": terminals}
    np.savez_compressed(
        tmp_path / "x.npz", **arrays, qpos=np.zeros((data.rows, 2)), qvel=np.zeros((data.rows, 2))
    )
    np.testing.assert_array_equal(read_dataset(tmp_path / "x.npz").ends, data.ends)


# Minari.


@pytest.mark.filterwarnings("ignore")
def test_minari_holds_every_episode(home):
    minari = pytest.importorskip("minari")
    gymnasium = pytest.importorskip("gymnasium")
    data, env = walk_dataset(6, ragged=True), walk(1)
    with pytest.MonkeyPatch.context() as patch:  # the probe is no environment that Gymnasium can make
        box = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        seen = gymnasium.spaces.Dict({n: box for n in ("observation", "achieved_goal", "desired_goal")})
        made = minari.create_dataset_from_buffers
        spaces = {"env": None, "observation_space": seen, "action_space": gymnasium.spaces.Box(-1, 1, (2,))}
        patch.setattr(
            minari, "create_dataset_from_buffers", lambda *args, **given: made(*args, **{**given, **spaces})
        )
        minari_files.write_minari("homing/walk/test-v0", data, env)
    source = minari.load_dataset("homing/walk/test-v0")
    assert source.total_episodes == 6 and source.total_steps == data.transitions
    episode = source[0]
    assert set(episode.observations) == {"observation", "achieved_goal", "desired_goal"}
    assert len(episode.observations["observation"]) == len(episode.actions) + 1
    assert episode.terminations[-1] and not episode.truncations[-1]
    read = minari_files.read_minari("homing/walk/test-v0")
    for name in ("observations", "ends", "terminated", "goals"):
        np.testing.assert_array_equal(getattr(read, name), getattr(data, name))
    with pytest.raises(ConfigError, match="already"):
        minari_files.check_id("homing/walk/test-v0")


@pytest.mark.filterwarnings("ignore")
def test_a_shipped_policy_goes_to_minari_and_back_and_its_environment_is_recovered(home, capsys):
    minari = pytest.importorskip("minari")
    pytest.importorskip("homing.adapters.gymnasium")
    name = "homing/point_u_maze_anywhere/crl-v0"
    main(
        ["data", "export", "point_u_maze", "--format", "minari", "--episodes", "3", "--episode-length", "20"]
    )
    assert name in capsys.readouterr().out
    source = minari.load_dataset(name)
    env = source.recover_environment()
    assert env.spec.id == "homing/PointUMazeAnywhere-v0" and env.spec.max_episode_steps == 20
    first, _ = env.reset(seed=0)
    episode = source[0]
    assert env.observation_space.contains(first)
    assert {key: rows.shape[1:] for key, rows in episode.observations.items()} == {
        key: rows.shape for key, rows in first.items()
    }
    main(["data", "import", name, "--out", str(home / "x.npz")])
    read = read_dataset(home / "x.npz")
    assert read.notes["env"] == "point_u_maze_anywhere" and set(read.lengths) == {20}
    with pytest.raises(SystemExit):
        main(["data", "export", "point_u_maze", "--format", "minari", "--episodes", "3"])
    assert "already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["x", "a b/c-v0", "../x-v0", "test-v0", "homing/walk/test", "", "/etc/x-v0"])
def test_bad_ids_are_refused(name, home):
    pytest.importorskip("minari")
    with pytest.raises(ConfigError, match="named namespace/env/name-v0"):
        minari_files.check_id(name)


def test_an_unknown_id_is_one_message(home):
    pytest.importorskip("minari")
    with pytest.raises(ConfigError, match="there is no local Minari dataset"):
        minari_files.read_minari("homing/none/x-v0")


@pytest.mark.parametrize("change", ["short", "flat", "dict"])
def test_episodes_of_other_shapes_are_refused(change):
    @dataclasses.dataclass
    class Episode:
        id: int
        observations: object
        actions: object
        terminations: object

    observations = {"short": np.zeros((3, 2)), "flat": np.zeros(4), "dict": {"observation": {"a": 1}}}[change]
    with pytest.raises(HomingError, match=r"T \+ 1|not plain arrays"):
        minari_files._episode_rows(Episode(0, observations, np.zeros((3, 2)), [False]))
