"""What worker processes of a study get of a machine's GPUs."""

import os

import pytest

from homing.errors import ConfigError
from homing.studies import pool

NEW, OLD = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine with two GPUs of 1000 bytes each, of which JAX may use all that was asked for."""
    for name in (NEW, OLD, "JAX_PLATFORMS"):
        monkeypatch.delenv(name, raising=False)
    found = [{"index": str(i), "name": "H200", "bytes": 1000} for i in range(2)]
    monkeypatch.setattr(pool, "gpus", lambda: found)
    return monkeypatch


def test_each_gpu_has_a_worker_with_all_of_its_memory(two_gpus):
    name, free, slots = pool.local_machine(cpu=False, workers=None)
    assert (name, free) == ("H200", 1000)
    assert slots == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]


@pytest.mark.parametrize("variable", [NEW, OLD])
def test_workers_that_share_a_gpu_share_what_was_asked_for(two_gpus, variable):
    two_gpus.setenv(variable, "0.6")
    _, free, slots = pool.local_machine(cpu=False, workers=3)
    assert free == 500
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["0", "1", "0"]
    # JAX starts no GPU where both names are set.
    assert all(slot[NEW] == "0.300" and not slot[OLD] for slot in slots)


def test_a_negative_number_of_workers_is_refused():
    with pytest.raises(ConfigError, match="1 or more start worker processes"):
        pool.local_machine(cpu=True, workers=-1)


@pytest.mark.parametrize(
    ("visible", "indices"), [(None, ["0", "1"]), ("1", ["1"]), ("", []), ("GPU-5ac0", ["0", "1"])]
)
def test_gpus_are_those_that_the_driver_lists_and_this_process_may_use(
    tmp_path, monkeypatch, visible, indices
):
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\necho '0, Big One, 1024'\necho '1, Big One, 2048'\necho '2, Broken, [N/A]'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.5")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    found = pool.gpus()
    assert [gpu["index"] for gpu in found] == indices
    assert all(gpu["bytes"] == (int(gpu["index"]) + 1) * 2**29 for gpu in found)
