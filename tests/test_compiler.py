"""How programs are compiled: the GPU's options are names that XLA knows, and can be turned off."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from homing import compiler
from homing.training import seeds


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.delenv(compiler.SWITCH, raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_a_cpu_has_no_graphs():
    assert compiler.options() == {}
    assert compiler.turns() == 1


def test_xla_knows_the_options(as_on_a_gpu):
    assert compiler.options() == compiler.GRAPHS
    assert compiler.turns() == compiler.turns(layers=compiler.SHALLOW) > 1
    assert compiler.turns(layers=16) == 1, "deep networks would compile four times as long"
    jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options=compiler.GRAPHS)


def test_unknown_options_are_left_out(as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(compiler, "GRAPHS", {"xla_gpu_nobody_knows_this": "1"})
    monkeypatch.setattr(compiler, "_unknown", False)
    assert compiler.build(jax.jit(lambda x: x + 1).lower(1.0))(1.0) == 2
    assert compiler.options() == {}


def test_graphs_can_be_turned_off(as_on_a_gpu, monkeypatch):
    with compiler.plain():
        assert compiler.options() == {}
        assert compiler.turns() == 1
    assert compiler.options() == compiler.GRAPHS
    monkeypatch.setenv(compiler.SWITCH, "0")
    assert compiler.options() == {}


@pytest.fixture
def as_on_an_h200(as_on_a_gpu, monkeypatch):
    monkeypatch.delenv(compiler.KERNELS, raising=False)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability="9.0")])


def test_kernels_are_for_recent_cards(as_on_an_h200, monkeypatch):
    assert compiler.kernels()
    for other in ("7.5", "gfx942"):
        monkeypatch.setattr(jax, "devices", lambda other=other: [SimpleNamespace(compute_capability=other)])
        assert not compiler.kernels()
    monkeypatch.undo()
    assert not compiler.kernels(), "nor for a CPU"


def test_kernels_can_be_turned_off_and_asked_for(as_on_an_h200, monkeypatch):
    assert not compiler.kernels(asked_for=True)
    with compiler.plain():
        assert not compiler.kernels()
    monkeypatch.setenv(compiler.KERNELS, "all")
    assert compiler.kernels() and compiler.kernels(asked_for=True)
    monkeypatch.setenv(compiler.KERNELS, "0")
    assert not compiler.kernels()


def test_kernels_need_the_part_of_jax_that_they_are_written_in(as_on_an_h200, monkeypatch):
    monkeypatch.setattr(compiler, "TRITON", "jax.experimental.no_pallas.triton")
    compiler._has_triton.cache_clear()
    assert not compiler.kernels()
    monkeypatch.undo()
    compiler._has_triton.cache_clear()


def test_programs_over_several_devices_have_no_kernels(as_on_an_h200):
    seen = []
    jax.jit(compiler.divided(lambda x: seen.append(compiler.kernels()) or x))(1.0)
    assert seen == [False]
    assert compiler.kernels(), "others have them"


def test_programs_are_traced_called_and_compiled_with_options(as_on_a_gpu):
    program = seeds.Program(lambda x, values, count: x + count, {})
    state = jnp.ones(2, jnp.float32)
    shapes = jax.eval_shape(program, state, 1)  # a jit with options could not be traced inside another
    assert shapes.shape == (2,)
    compiled = program.lower(state, jax.ShapeDtypeStruct((), jnp.int32))()
    assert compiled(state, jnp.int32(2)).tolist() == [3, 3]
