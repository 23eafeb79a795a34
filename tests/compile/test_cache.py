"""Compiled programs on disk: only in a folder that is the user's alone, and only entries that are whole."""

import os
import stat

import jax
import pytest

from homing.compile import cache


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_closed_to_others():
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(cache.cache_folder())
    assert mode(cache.cache_folder()) == 0o700


def test_a_folder_that_others_may_read_is_closed_to_them():
    cache.cache_folder().mkdir(parents=True, mode=0o755)
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is not None
    assert mode(cache.cache_folder()) == 0o700


@pytest.mark.parametrize("bits", [0o770, 0o777, 0o702])
def test_a_folder_that_others_may_write_to_is_not_used(bits, capsys):
    cache.cache_folder().mkdir(parents=True)
    cache.cache_folder().chmod(bits)
    cache.keep_compiled()
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
    (line,) = capsys.readouterr().err.splitlines()
    assert f"chmod 700 {cache.cache_folder()}" in line


def test_a_folder_of_another_user_is_not_used(monkeypatch, capsys):
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
    assert "belongs to another user" in capsys.readouterr().err


def test_a_chosen_folder_is_looked_at_too(tmp_path, capsys):
    chosen = tmp_path / "chosen"
    chosen.mkdir(mode=0o755)
    jax.config.update("jax_compilation_cache_dir", str(chosen))
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(chosen)
    assert mode(chosen) == 0o755, "its mode is the user's choice"
    chosen.chmod(0o777)
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
    assert "other users can write to it" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_costs_only_time(tmp_path, capsys):
    (tmp_path / "cache").write_text("a file, where the folder should be")
    cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
    assert "are not kept" in capsys.readouterr().err


DAMAGES = {
    "cut": lambda content: content[:-5],
    "empty": lambda content: b"",
    "one bit": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_dropped_with_a_word(tmp_path, damage, capsys):
    kept = cache.CheckedCache(tmp_path)
    assert kept.get("a") is None
    kept.put("a", b"a program" * 10)
    assert kept.get("a") == b"a program" * 10
    (path,) = tmp_path.glob("a*")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert kept.get("a") is None
    assert not path.exists()
    assert "was damaged and is made again" in capsys.readouterr().err
    kept.put("a", b"another")
    assert kept.get("a") == b"another"


def test_a_write_that_fails_leaves_nothing(tmp_path, capsys, monkeypatch):
    kept = cache.CheckedCache(tmp_path / "gone")
    kept.put("a", b"content")
    assert "cannot be kept" in capsys.readouterr().err
    assert kept.get("a") is None


def test_jax_uses_checked_entries():
    from jax._src import compilation_cache

    cache.keep_compiled()
    made, _ = compilation_cache.get_file_cache(str(cache.cache_folder()))
    assert isinstance(made, cache.CheckedCache)
    other, _ = compilation_cache.get_file_cache(str(cache.cache_folder().parent / "other"))
    assert not isinstance(other, cache.CheckedCache)
