"""What is free on a GPU that other programs use too: the driver's count, beside JAX's own."""

import os
import types

import jax
import pytest

from homing.cli import guard
from homing.system import doctor, hardware

GIB = 2**30


def driver(tmp_path, monkeypatch, answer: str, code: int = 0) -> None:
    """An `nvidia-smi` that gives this answer to whoever asks for GPU 3."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$2" = 3 ] || exit 6\necho "{answer}"\nexit {code}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


def card(monkeypatch, **stats) -> None:
    """JAX sees one GPU, the second of those that are visible, which the driver calls 3."""
    stats = {"bytes_limit": 105 * GIB, "bytes_in_use": 0} | stats
    device = types.SimpleNamespace(platform="gpu", local_hardware_id=1, memory_stats=lambda: stats)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")


def test_memory_that_other_programs_hold_is_not_free(tmp_path, monkeypatch):
    card(monkeypatch)
    driver(tmp_path, monkeypatch, f"{6 * 1024}, {140 * 1024}")
    assert doctor.free_bytes() == 6 * GIB
    assert hardware.held_by_others() == 134 * GIB


def test_what_this_program_has_reserved_is_free_but_for_what_it_uses(tmp_path, monkeypatch):
    card(monkeypatch, bytes_in_use=5 * GIB, pool_bytes=105 * GIB)
    driver(tmp_path, monkeypatch, f"{35 * 1024}, {140 * 1024}")
    assert doctor.free_bytes() == 100 * GIB
    assert hardware.held_by_others() == 0


@pytest.mark.parametrize(("answer", "code"), [("[N/A], [N/A]", 0), ("", 0), ("1, 2", 9)])
def test_without_an_answer_of_the_driver_jax_counts_alone(tmp_path, monkeypatch, answer, code):
    card(monkeypatch, bytes_in_use=GIB)
    driver(tmp_path, monkeypatch, answer, code)
    assert doctor.free_bytes() == 104 * GIB
    assert hardware.held_by_others() is None


def test_a_gpu_that_is_named_otherwise_is_not_confused_with_another(tmp_path, monkeypatch):
    card(monkeypatch)
    driver(tmp_path, monkeypatch, "1, 2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5ac0,GPU-77f2")
    assert doctor.free_bytes() == 105 * GIB


@pytest.mark.parametrize(("free", "names"), [(6, True), (139, False)])
def test_out_of_memory_names_other_programs_where_they_hold_much(tmp_path, monkeypatch, free, names):
    card(monkeypatch)
    driver(tmp_path, monkeypatch, f"{free * 1024}, {140 * 1024}")
    message = guard._message(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"))
    assert "lower num_envs" in message
    assert ("other programs, which hold 134 GiB" in message) == names
