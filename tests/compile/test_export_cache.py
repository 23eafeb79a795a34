"""Traced programs kept on disk: the same results, no second trace, never another run's program."""

import jax
import jax.numpy as jnp
import pytest

from homing.compile import export_cache, xla
from homing.compile.programs import Compiled
from homing.config.run import identity, run_config
from homing.training.seeds import Program, Programs

KEYS = jax.random.split(jax.random.key(0), 2)
SETTINGS = {"agent": "crl", "seeds": 2}


class Counted:
    """Three small programs that count how often each is traced."""

    def __init__(self):
        self.traced: list[str] = []
        self.programs = Programs(
            init=Program(self.init, {}),
            epoch=Program(self.epoch, {"rate": jnp.float32(0.5)}, donate_argnums=0),
            evaluate=Program(self.evaluate, {}),
        )

    def init(self, keys, values):
        self.traced.append("init")
        return {"x": jax.vmap(jax.random.normal)(keys), "key": keys}

    def epoch(self, train, values, start, stop):
        self.traced.append("epoch")
        moved = train | {"x": train["x"] + values["rate"] * (stop - start)}
        return moved, {"norm": jnp.abs(moved["x"]), "begin": jnp.full(2, start)}

    def evaluate(self, train, values, iteration):
        self.traced.append("evaluate")
        return {"success": train["x"] > 0, "iteration": jnp.full(2, iteration)}


def run(settings=SETTINGS):
    """What the programs give, and which of them were traced to make them, beyond the shape of a state."""
    counted = Counted()
    compiled = Compiled(counted.programs, KEYS, identity=settings)
    train, metrics = compiled.epoch(compiled.init(), 1, 4)
    result = {"x": train["x"], **metrics, **compiled.evaluate(train, 4)}
    return {name: value.tolist() for name, value in result.items()}, sorted(counted.traced)


def test_what_was_traced_once_is_not_traced_again(export_folder):
    first, traced = run()
    assert traced[:2] == ["epoch", "evaluate"]
    again, traced = run()
    assert traced == ["init"]  # for the shapes
    assert again == first
    assert len(list(export_folder.iterdir())) == 3


def test_results_are_those_of_programs_that_were_not_kept(export_folder, monkeypatch):
    kept, _ = run()
    monkeypatch.setattr(export_cache, "_on", False)
    plain, traced = run()
    assert plain == kept
    assert "epoch" in traced


def test_a_state_is_given_up_to_an_epoch(export_folder):
    for _ in range(2):
        compiled = Compiled(Counted().programs, KEYS, identity=SETTINGS)
        train = compiled.init()
        compiled.epoch(train, 0, 1)
        assert train["x"].is_deleted()


def test_other_settings_are_other_programs(export_folder):
    run()
    _, traced = run(SETTINGS | {"agent": "sac"})
    assert "epoch" in traced


def test_another_source_flag_or_version_is_another_program(export_folder, monkeypatch):
    name = export_cache.store(SETTINGS).name
    assert export_cache.store(SETTINGS).name == name
    with jax.numpy_dtype_promotion("strict"):
        assert export_cache.store(SETTINGS).name != name
    monkeypatch.setenv("HOMING_GRAPHS", "0")
    assert export_cache.store(SETTINGS).name != name
    monkeypatch.delenv("HOMING_GRAPHS")
    with monkeypatch.context() as patch:
        patch.setattr(xla, "kernels", lambda: True)
        assert export_cache.store(SETTINGS).name != name
    monkeypatch.setattr(export_cache, "_source", lambda: "another")
    assert export_cache.store(SETTINGS).name != name
    monkeypatch.undo()
    monkeypatch.setattr(export_cache, "_on", True)
    monkeypatch.setattr(export_cache, "_versions", lambda: {"jax": "another"})
    assert export_cache.store(SETTINGS).name != name


DAMAGES = {
    "cut": lambda content: content[:-5],
    "empty": lambda content: b"",
    "no hash": lambda content: b"{}\n",
    "one byte": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_made_again(export_folder, damage):
    first, _ = run()
    for path in export_folder.iterdir():
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    again, traced = run()
    assert again == first
    assert "epoch" in traced
    assert run()[1] == ["init"]


def test_a_folder_that_cannot_be_written_to_costs_only_time(export_folder):
    export_folder.write_text("a file, where the folder should be")
    assert run() == run()


def test_old_files_go(export_folder, monkeypatch):
    monkeypatch.setattr(export_cache, "KEPT", 4)
    for agent in ("crl", "sac", "td3"):
        run(SETTINGS | {"agent": agent})
    assert len(list(export_folder.iterdir())) == 4


def test_only_the_command_line_keeps_traces(tmp_path):
    assert export_cache.store(SETTINGS) is None


def test_identity_is_all_but_names_of_seeds_and_saving():
    one = run_config("crl", "reacher", seeds=(0, 1))
    assert identity(one) == identity(run_config("crl", "reacher", seeds=(4, 7)))
    assert identity(one) != identity(run_config("crl", "reacher", seeds=(0,)))
    assert identity(one) != identity(run_config("crl", "reacher", seeds=(0, 1), changes={"gamma": 0.9}))


def test_what_cannot_be_exported_is_traced_every_time(export_folder, monkeypatch):
    def refused(*args, **kwargs):
        raise ValueError("custom calls without compatibility guarantees")

    first, _ = run()
    monkeypatch.setattr(export_cache.export, "export", refused)
    again, traced = run(SETTINGS | {"agent": "sac"})
    assert again == first
    assert "epoch" in traced
    assert len(list(export_folder.iterdir())) == 3
