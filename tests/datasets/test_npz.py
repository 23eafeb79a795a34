"""Dataset files: what is written is read, in OGBench's layout; any other content is refused in one message."""

import io
import json
import os
import random
import zipfile

import numpy as np
import pytest
from data_helpers import walk_dataset
from file_attacks import OBSTACLES, replace

from homing.datasets import npz, read_dataset, write_dataset
from homing.errors import ConfigError, HomingError


@pytest.fixture(scope="module")
def data():
    return walk_dataset(9, length=7, ragged=True)


@pytest.fixture(scope="module")
def arrays(data, tmp_path_factory):
    """The arrays of a sound file, by name."""
    path = write_dataset(tmp_path_factory.mktemp("sound") / "x.npz", data)
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def refused(path):
    """The one message of a refusal, which names the file."""
    with pytest.raises(HomingError) as caught:
        read_dataset(path)
    message = str(caught.value)
    assert str(path) in message and "\n" not in message and len(message) < 600, message
    return message


def test_what_is_written_is_read(data, tmp_path):
    read = read_dataset(write_dataset(tmp_path / "new" / "x.npz", data))
    for name in ("observations", "actions", "ends", "terminated", "goals"):
        np.testing.assert_array_equal(getattr(read, name), getattr(data, name))
    assert read.notes == data.notes and len(read.sha256) == 64
    assert not list(tmp_path.rglob("*.part"))


def test_the_layout_is_that_of_ogbench(data, arrays):
    """T + 1 rows an episode, the last with a dummy action and terminals 1, all of them plain numbers."""
    assert arrays["observations"].dtype == arrays["actions"].dtype == arrays["terminals"].dtype == np.float32
    assert arrays["terminals"].sum() == data.episodes
    assert arrays["terminals"].shape == (data.transitions + data.episodes,)
    assert not arrays["actions"][arrays["terminals"] == 1].any()
    assert json.loads(str(arrays["homing"]))["goal_indices"] == [0, 1]


def test_a_file_of_ogbench_needs_no_more_than_its_three_arrays(arrays, tmp_path):
    """Float64 and booleans too, and compressed, as OGBench writes them."""
    np.savez_compressed(
        tmp_path / "x.npz",
        observations=arrays["observations"].astype(np.float64),
        actions=arrays["actions"],
        terminals=arrays["terminals"].astype(bool),
        qpos=np.zeros(3),
    )
    read = read_dataset(tmp_path / "x.npz")
    assert read.observations.dtype == np.float32 and read.goals is None and not read.terminated.any()
    np.testing.assert_array_equal(read.observations, arrays["observations"])


def test_parts_of_a_dataset_are_whole_episodes(data):
    first, rest = data.first(4), data.after(4)
    assert (first.episodes, rest.episodes) == (4, 5)
    assert first.rows + rest.rows == data.rows
    np.testing.assert_array_equal(np.concatenate([first.lengths, rest.lengths]), data.lengths)
    np.testing.assert_array_equal(np.concatenate([first.goals, rest.goals]), data.goals)


def spoiled(arrays, name, place, value):
    changed = arrays[name].copy()
    changed[place] = value
    return {name: changed}


BAD = {
    "nan": (lambda a: spoiled(a, "observations", 3, np.nan), "NaN or an infinity in row 3"),
    "infinite action": (lambda a: spoiled(a, "actions", 0, np.inf), "actions holds a NaN"),
    "nan goal": (lambda a: spoiled(a, "goals", 2, np.nan), "goals holds a NaN"),
    "large action": (lambda a: spoiled(a, "actions", 0, 3.0), r"must lie in \[-1, 1\]"),
    "half an end": (lambda a: spoiled(a, "terminals", 1, 0.5), "0 or 1"),
    "two ends": (lambda a: spoiled(a, "terminals", slice(None), 1), "no transition"),
    "no end": (lambda a: {"terminals": 0 * a["terminals"]}, "not the end of an episode"),
    "an open end": (lambda a: spoiled(a, "terminals", -1, 0), "not the end of an episode"),
    "fewer actions": (lambda a: {"actions": a["actions"][:-1]}, "actions has"),
    "fewer goals": (lambda a: {"goals": a["goals"][:-1]}, "goals has"),
    "flat": (lambda a: {"observations": a["observations"].ravel()}, "must be .rows, size."),
    "images": (lambda a: {"observations": np.zeros((5, 4, 4, 3), np.uint8)}, "images are not read"),
    "nothing": (lambda a: {"observations": np.zeros((0, 2), np.float32)}, "shape .0, 2."),
    "texts": (lambda a: {"actions": np.array([["a"]])}, "not numbers"),
    "pickle": (lambda a: {"actions": np.array([[{}]], object)}, "pickled objects are not read"),
    "no notes": (lambda a: {"homing": np.array("[1]")}, "not an object"),
    "wrong notes": (lambda a: {"homing": np.array('{"goal_indices": "x"}')}, "goal_indices"),
    "half notes": (lambda a: {"homing": np.array('{"a": ')}, "cannot be read"),
    "escapes": (lambda a: {"homing": np.array('{"env": "\\u001b[2J"}')}, "unprintable"),
    "notes as numbers": (lambda a: {"homing": np.zeros(3)}, "one short text"),
}


@pytest.mark.parametrize("what", BAD)
def test_wrong_contents_are_refused(what, arrays, tmp_path):
    change, message = BAD[what]
    np.savez(tmp_path / "x.npz", **(arrays | change(arrays)))
    with pytest.raises(HomingError, match=message):
        read_dataset(tmp_path / "x.npz")
    refused(tmp_path / "x.npz")


@pytest.mark.parametrize("name", npz.REQUIRED)
def test_a_missing_array_is_named(name, arrays, tmp_path):
    np.savez(tmp_path / "x.npz", **{key: value for key, value in arrays.items() if key != name})
    assert f"it has no {name}" in refused(tmp_path / "x.npz")


def test_a_dummy_action_may_be_anything(data, arrays, tmp_path):
    actions = arrays["actions"].copy()
    actions[data.ends] = np.nan
    np.savez(tmp_path / "x.npz", **(arrays | {"actions": actions}))
    assert np.isfinite(read_dataset(tmp_path / "x.npz").actions).all()


def test_damaged_files_are_refused(data, tmp_path):
    """Cut, longer, single bits changed: refused, or the same numbers (a zip file has bits that mean nothing)."""
    path = write_dataset(tmp_path / "x.npz", data)
    raw = path.read_bytes()
    draw = random.Random(7)
    cuts = [raw[: draw.randrange(len(raw))] for _ in range(15)] + [b"", raw[:4], raw[:-1]]
    flips = [(draw.randrange(len(raw)), 1 << draw.randrange(8)) for _ in range(150)]
    changed = [raw[:spot] + bytes([raw[spot] ^ bit]) + raw[spot + 1 :] for spot, bit in flips]
    for content in (*cuts, *changed):
        path.write_bytes(content)
        try:
            read = read_dataset(path)
        except HomingError:
            refused(path)
        else:
            np.testing.assert_array_equal(read.observations, data.observations)


def entry(path, name, raw):
    """A file whose entry `name` consists of these bytes."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{name}.npy", raw)


@pytest.mark.parametrize("shape", [(10**9, 10**3), (2**40, 1), (10**6, 2)])
def test_nothing_is_allocated_for_a_header_that_lies(shape, arrays, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, **{name: array for name, array in arrays.items() if name != "observations"})
    header = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    entry(path, "observations", header.getvalue() + b"\0" * 64)
    assert "not as large as its header says" in refused(path)


@pytest.mark.parametrize("what", OBSTACLES)
def test_obstacles_are_refused(what, tmp_path):
    replace(tmp_path / "x.npz", OBSTACLES[what])
    with pytest.raises(HomingError):
        read_dataset(tmp_path / "x.npz")


def test_another_file_of_the_name_is_not_the_one_of_the_run(data, tmp_path):
    path = write_dataset(tmp_path / "x.npz", data)
    digest = read_dataset(path).sha256
    assert read_dataset(path, digest).sha256 == digest
    write_dataset(path, data.first(2))
    with pytest.raises(ConfigError, match="not the one that the run began with"):
        read_dataset(path, digest)
    os.unlink(path)
    with pytest.raises(ConfigError, match="does not exist; put it back"):
        read_dataset(path, digest)


def test_a_name_without_npz_is_refused(data, tmp_path):
    with pytest.raises(ConfigError, match="ends in"):
        write_dataset(tmp_path / "x.csv", data)
