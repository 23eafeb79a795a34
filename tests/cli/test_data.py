"""Datasets on the command line: written, described, imported, trained on; every refusal is one message."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from data_helpers import walk_dataset, walk_file
from policy_helpers import untrained
from run_helpers import no_key_check, probe_envs  # noqa: F401

from homing.cli.main import main
from homing.config.run import DataFile, run_config
from homing.datasets import read_dataset, write_dataset
from homing.policies import write_policies
from homing.policies.card import run_card
from homing.policies.rollouts import DataExport
from homing.policies.store import Spaces
from homing.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("probe_envs")


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy file of two untrained seeds."""
    made = untrained("walk", Spaces("walk", 2, 2, 2), seeds=(0, 1), episode_length=25)
    scores = [{"seed": 0, "success_any": 0.25}, {"seed": 1, "success_any": 0.5}]
    measured = {"by": "a test", "env": "walk", "episodes": 4}
    made = dataclasses.replace(made, card={"scores": scores, "measured": measured})
    return write_policies(tmp_path_factory.mktemp("policy") / "walk.safetensors", made)


def refused(capsys, *args):
    """The message of a command that must fail without a traceback."""
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    assert caught.value.code == 2
    message = capsys.readouterr().err.strip()
    assert message.startswith("homing: ") and "\n" not in message
    return message


def test_a_policys_episodes_are_written_described_and_imported(policy, tmp_path, capsys):
    out = tmp_path / "a new folder" / "walk.npz"
    export = ["data", "export", str(policy), "--episodes", "20", "--out", str(out), "--noise", "0.5"]
    main([*export, "--val-fraction", "0.2", "--policy-seed", "1"])
    told = capsys.readouterr().out
    assert "20 episodes of probe, of at most 25 steps: up to" in told and str(out) in told
    assert f"homing train gcbc probe --data '{out}'" in told
    train, val = read_dataset(out), read_dataset(out.with_name("walk-val.npz"))
    assert (train.episodes, val.episodes) == (16, 4)
    assert train.notes["policy"]["seed"] == 1 and train.notes["noise"] == 0.5
    assert "exists already" in refused(capsys, *export)
    main(["data", "info", str(out), "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["transitions"] == 400 and facts["episode_lengths"] == [25, 25.0, 25]
    main(["data", "import", str(out), "--out", str(tmp_path / "copy.npz"), "--quiet"])
    copy = read_dataset(tmp_path / "copy.npz")
    np.testing.assert_array_equal(copy.observations, train.observations)
    assert "exists already" in refused(capsys, "data", "import", out, "--out", tmp_path / "copy.npz")


def test_no_validation_file_where_none_is_asked_for(policy, tmp_path):
    out = tmp_path / "walk.npz"
    main(
        [
            "data",
            "export",
            str(policy),
            "--episodes",
            "3",
            "--out",
            str(out),
            "--val-fraction",
            "0",
            "--quiet",
        ]
    )
    assert [path.name for path in tmp_path.iterdir()] == ["walk.npz"]


BAD = {
    "--noise -1": "noise must be",
    "--noise nan": "noise must be",
    "--random-actions 1.5": "random_actions must be",
    "--val-fraction 1": "val_fraction must be",
    "--episodes 0": "episodes must be",
    "--episodes 100M": "episodes must be",
    "--episode-length 0": "episode_length must be",
    "--policy-seed 7": "has no seed 7",
    "--out x.csv": "ends in .npz",
    "--out /proc/x.npz": "cannot be written",
}


@pytest.mark.parametrize("flags", BAD)
def test_wrong_values_are_refused_before_anything_is_written(flags, policy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = flags.split()
    rest = [] if given[0] == "--episodes" else ["--episodes", "3"]
    assert BAD[flags] in refused(capsys, "data", "export", policy, *given, *rest)
    assert not list(tmp_path.iterdir())


def test_a_default_file_that_cannot_be_written_is_refused_first(policy, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(DataExport, "collected", lambda *_: pytest.fail("it must not collect"))
    (tmp_path / "data").write_text("in the way")
    message = refused(capsys, "data", "export", policy, "--episodes", 3, "--quiet")
    assert "--out data/probe-crl.npz cannot be written" in message and "is not a folder" in message


@pytest.mark.parametrize("name", ["foo.np", "./foo", "/foo", "data/foo.npz.bak"])
@pytest.mark.parametrize("command", [("info",), ("import", "--out", "y.npz")])
def test_a_file_that_does_not_exist_is_named(command, name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refused(capsys, "data", command[0], name, *command[1:])
    assert "does not exist" in message and "minari" not in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", [("info",), ("import", "--out", "y.npz")])
def test_what_is_no_dataset_is_one_message(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04\0\0\0")
    assert "damaged or not an npz file" in refused(capsys, "data", command[0], "x.npz", *command[1:])
    assert "does not exist" in refused(capsys, "data", command[0], "z.npz", *command[1:])
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_unknown_commands_are_answered(capsys):
    assert "did you mean 'export'" in refused(capsys, "data", "exports")


def test_training_on_data_says_what_it_will_do(capsys):
    main(["train", "gcbc", "walk", "--data", str(walk_file()), "--preset", "quickstart", "--dry-run"])
    told = capsys.readouterr().out
    assert "10,000 of 256 transitions, nothing is collected" in told and "1,500 transitions" in told


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("gcbc", "walk"), "learns from a dataset and collects nothing: pass --data"),
        (("crl", "walk", "--data", "FILE", "--num-envs", "8"), "num_envs has no meaning with data"),
        (("crl", "walk", "--data", "FILE", "--replay-size=9999"), "replay_size has no meaning with data"),
        (("ppo", "walk", "--data", "FILE"), "learns from rollouts of its own policy"),
        (("crl", "walk", "--data", "FILE", "--devices", "2"), "uses one device"),
        (("gcbc", "walk", "--data", "gone.npz"), "does not exist"),
    ],
)
def test_training_refuses_in_one_message(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [str(walk_file()) if arg == "FILE" else arg for arg in args]
    assert message in refused(capsys, "train", *given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("package", "args"),
    [
        ("minari", ("data", "export", "POLICY", "--episodes", "2", "--format", "minari")),
        ("minari", ("data", "info", "homing/walk/x-v0")),
        ("onnx", ("export", "POLICY", "--out", "x.onnx")),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package, args, policy, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    given = [str(policy) if arg == "POLICY" else arg for arg in args]
    assert f"pip install 'homing[{package}]'" in refused(capsys, *given)
    assert not list(tmp_path.iterdir())


# Policies for others.


def test_a_folder_for_a_model_hub(policy, tmp_path, capsys):
    folder = tmp_path / "walker"
    main(["export", str(policy), "--out", str(folder), "--hf", "--license", "mit"])
    assert {path.name for path in folder.iterdir()} == {"README.md", "walker.safetensors"}
    _, matter, body = (folder / "README.md").read_text().split("---\n", 2)
    lines = matter.splitlines()
    assert lines[:2] == ['license: "mit"', 'library_name: "homing"']
    assert (
        '- name: "walker"' in lines and '    - type: "success_any"' in lines and "      value: 0.5" in lines
    )
    assert 'homing.load("walker.safetensors")' in body and "| success_any | 0.5 |" in body
    assert "not empty" in refused(capsys, "export", policy, "--out", folder, "--hf")


@pytest.mark.parametrize("license", ["", "a b", "x\ntags: y", "ü"])
def test_a_license_is_an_identifier(license, policy, tmp_path, capsys):
    assert "--license takes" in refused(
        capsys, "export", policy, "--out", tmp_path / "x", "--hf", "--license", license
    )
    assert not list(tmp_path.iterdir())


def test_a_card_names_no_path_of_the_dataset(tmp_path):
    """A published card says which file a policy learned from, not where its author kept it."""
    data = DataFile("/home/someone/walk.npz", "0" * 64)
    config = run_config("gcbc", "walk", preset_name="quickstart", data=data)
    card = run_card(RunFolder(tmp_path), config, "last", 1)
    assert card["config"]["data"] == {"path": "walk.npz", "sha256": "0" * 64}
    assert card["changed"] == {}


def test_written_datasets_are_whole_or_absent(tmp_path, monkeypatch):
    def full(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(Exception, match="No space left on device; make room"):
        write_dataset(tmp_path / "x.npz", walk_dataset(2))
    assert not list(tmp_path.iterdir())
