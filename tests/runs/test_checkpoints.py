"""Checkpoints come back bit for bit, and damaged ones are noticed."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from homing.errors import HomingError
from homing.runs.arrays import array_types, check_arrays, fingerprints
from homing.runs.checkpoints import Checkpoints
from homing.runs.folder import WriteError


def state(seed=0):
    k_keys, k_numbers = jax.random.split(jax.random.key(seed))
    return {
        "keys": jax.random.split(k_keys, 3),
        "ring": jax.random.normal(k_numbers, (50, 40), jnp.float32),
        "half": jnp.arange(7, dtype=jnp.bfloat16),
        "ahead": jnp.arange(-3, 4, dtype=jnp.int16),
        "over": jnp.asarray([True, False]),
        "count": jnp.asarray(seed, jnp.int32),
        "none": (),
    }


SHAPES = jax.eval_shape(state)


def bits(tree):
    data = lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
    return [np.asarray(data(x)) for x in jax.tree.leaves(tree)]


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(bits(a), bits(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.fixture
def three(tmp_path):
    made = Checkpoints(tmp_path / "c", keep=2)
    for i in (10, 20, 30):
        made.save(i, state(i), {"elapsed": i / 3})
    made.wait()
    made.close()
    return made


def restored(made, say=pytest.fail, shapes=SHAPES):
    return made.restore(made.found(say), shapes, say)


def test_the_last_ones_are_kept_and_the_newest_comes_back(three):
    assert three.iterations() == [20, 30]
    saved = restored(Checkpoints(three.path, 2))
    assert saved.iteration == 30
    assert saved.notes == {"elapsed": 10.0}
    assert_same(saved.train, state(30))


def test_a_restored_state_can_be_donated(three):
    train = restored(three).train
    moved = jax.jit(lambda t: t | {"count": t["count"] + 1}, donate_argnums=0)(train)
    assert_same(moved, state(30) | {"count": jnp.asarray(31, jnp.int32)})


def truncate(path):
    largest = max((f for f in path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size // 2])


def flip_a_bit(path):
    largest = max((f for f in path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def lose_notes(path):
    (path / "notes" / "metadata").unlink()


def change_contents(path):
    """As a disk would that returns something else without an error."""
    file = path / "notes" / "metadata"
    content = json.loads(file.read_text())
    content["fingerprints"][2] ^= 1
    file.write_text(json.dumps(content))


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, lose_notes, change_contents])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(three, damage):
    damage(three.path / "30")
    said = []
    made = Checkpoints(three.path, 2)
    saved = restored(made, said.append)
    assert saved.iteration == 20
    assert_same(saved.train, state(20))
    assert len(said) == 1
    assert str(three.path / "30") in said[0]
    made.clear_the_way(saved, said.append)
    made.save(30, state(30), {})
    made.wait()
    assert restored(made).iteration == 30
    assert (three.path.parent / "checkpoints_set_aside" / "30").is_dir(), "nothing is deleted"
    assert "checkpoints_set_aside/30" in said[1]


def test_if_none_is_sound_that_is_an_error(three):
    truncate(three.path / "20")
    truncate(three.path / "30")
    with pytest.raises(HomingError, match=r"no checkpoint .* all are kept"):
        restored(three, lambda _: None)
    assert three.iterations() == [20, 30]


def test_no_checkpoint_is_no_error(tmp_path):
    assert Checkpoints(tmp_path / "none", 2).found(pytest.fail) == []


def test_a_state_of_another_shape_is_not_mistaken_for_this_one(three):
    shapes = SHAPES | {"ring": jax.ShapeDtypeStruct((50, 41), jnp.float32)}
    with pytest.raises(HomingError, match="not damaged") as error:
        restored(three, shapes=shapes)
    assert "['ring'] is float32[50, 40] in the checkpoint and float32[50, 41] in this run" in str(error.value)
    assert three.iterations() == [20, 30]


def test_many_differences_are_counted():
    shapes = {f"a{i}": jax.ShapeDtypeStruct((i,), jnp.float32) for i in range(9)}
    with pytest.raises(HomingError, match="and 5 more"):
        check_arrays({name: "float32[99]" for name in array_types(shapes)}, shapes, Path("somewhere"))


def test_the_iteration_is_what_the_notes_say_not_the_folders_name(three):
    (three.path / "30").rename(three.path / "700")
    said = []
    made = Checkpoints(three.path, 2)
    saved = restored(made, said.append)
    assert saved.iteration == 30
    assert "700 is of iteration 30" in said[0]
    made.clear_the_way(saved, said.append)
    assert made.iterations() == [20, 30]
    assert_same(restored(made).train, state(30))


def edit_notes(path, edit):
    file = path / "notes" / "metadata"
    content = json.loads(file.read_text())
    edit(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda path: edit_notes(path, lambda c: c.pop("iteration")), "its notes lack 'iteration'"),
        (lambda path: edit_notes(path, lambda c: c["notes"].pop("elapsed")), "its notes lack 'elapsed'"),
        (lambda path: edit_notes(path, lambda c: c.update(notes=[])), "its notes lack 'notes'"),
        (lambda path: (path / "notes" / "metadata").write_text('{"iteration": 3'), "its notes are not whole"),
        (lambda path: (path / "notes" / "metadata").write_text("[]"), "its notes lack 'iteration'"),
        (lambda path: (path / "notes" / "metadata").unlink(), "it has no notes"),
    ],
)
def test_notes_that_are_not_whole_are_named(three, damage, words):
    damage(three.path / "30")
    said = []
    found = Checkpoints(three.path, 2, needs=("elapsed",)).found(said.append)
    assert [entry.iteration for entry in found] == [20]
    assert len(said) == 1 and words in said[0] and str(three.path / "30") in said[0]


def test_a_failed_write_keeps_the_earlier_ones(three, monkeypatch):
    import orbax.checkpoint as ocp

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    made = Checkpoints(three.path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(ocp.CheckpointManager, "save", full)
        with pytest.raises(
            WriteError, match="No space left on device; the earlier one of iteration 30 is kept"
        ):
            made.save(40, state(40), {})
    assert made.iterations() == [20, 30]
    made.save(50, state(50), {})
    made.wait()
    assert made.iterations() == [30, 50]


@pytest.mark.parametrize("leaf", ["ring", "half", "ahead", "over", "count", "keys"])
def test_fingerprints_see_a_change_anywhere(leaf):
    before = np.asarray(fingerprints(state()))
    changed = state()
    value = changed[leaf]
    if leaf == "keys":
        changed[leaf] = value[::-1]
    else:
        last = value.ravel()[-1]
        other = ~last if value.dtype == bool else last + 1
        changed[leaf] = value.ravel().at[-1].set(other).reshape(value.shape)
    assert (np.asarray(fingerprints(changed)) != before).sum() == 1
