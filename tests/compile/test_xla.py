"""How programs are compiled: the GPU's options are names that XLA knows, and can be turned off."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest

from homing.compile import xla
from homing.training import seeds


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.delenv(xla.SWITCH, raising=False)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def test_a_cpu_has_no_graphs():
    assert xla.options() == {}
    assert xla.unroll_factor() == 1


def test_xla_knows_the_options(as_on_a_gpu):
    assert xla.options() == xla.GRAPHS
    assert xla.unroll_factor() == xla.unroll_factor(layers=xla.SHALLOW) > 1
    assert xla.unroll_factor(layers=16) == 1, "deep networks would compile four times as long"
    jax.jit(lambda x: x + 1).lower(1.0).compile(compiler_options=xla.GRAPHS)


def test_unknown_options_are_left_out(as_on_a_gpu, monkeypatch):
    monkeypatch.setattr(xla, "GRAPHS", {"xla_gpu_nobody_knows_this": "1"})
    monkeypatch.setattr(xla, "_unknown", False)
    assert xla.build(jax.jit(lambda x: x + 1).lower(1.0))(1.0) == 2
    assert xla.options() == {}


def test_graphs_can_be_turned_off(as_on_a_gpu, monkeypatch):
    with xla.plain():
        assert xla.options() == {}
        assert xla.unroll_factor() == 1
    assert xla.options() == xla.GRAPHS
    monkeypatch.setenv(xla.SWITCH, "0")
    assert xla.options() == {}


@pytest.fixture
def as_on_an_h200(as_on_a_gpu, monkeypatch):
    monkeypatch.delenv(xla.KERNELS, raising=False)
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability="9.0")])


def test_kernels_are_for_recent_cards(as_on_an_h200, monkeypatch):
    assert xla.kernels()
    for other in ("7.5", "gfx942"):
        monkeypatch.setattr(jax, "devices", lambda other=other: [SimpleNamespace(compute_capability=other)])
        assert not xla.kernels()
    monkeypatch.undo()
    assert not xla.kernels(), "nor for a CPU"


def test_kernels_can_be_turned_off_and_asked_for(as_on_an_h200, monkeypatch):
    monkeypatch.setattr(xla.cuda, "library", lambda: "there is one")
    assert xla.cuda_kernels() and not xla.cuda_kernels(asked_for=True)
    with xla.plain():
        assert not xla.kernels() and not xla.cuda_kernels()
    monkeypatch.setenv(xla.KERNELS, "all")
    assert xla.kernels() and xla.cuda_kernels() and xla.cuda_kernels(asked_for=True)
    with xla.without_kernels():
        assert not xla.kernels() and not xla.cuda_kernels(asked_for=True)
        assert xla.options() == xla.GRAPHS, "all else is as usual"
    monkeypatch.setenv(xla.KERNELS, "0")
    assert not xla.kernels() and not xla.cuda_kernels()


def test_cuda_kernels_say_which_cards_they_need(as_on_an_h200, monkeypatch):
    monkeypatch.setattr(xla.cuda, "library", lambda: "there is one")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability="8.0")])
    assert xla.cuda_kernels(oldest=xla.OLDEST) and not xla.cuda_kernels()


def test_kernels_need_the_part_of_jax_that_they_are_written_in(as_on_an_h200, monkeypatch):
    monkeypatch.setattr(xla, "TRITON", "jax.experimental.no_pallas.triton")
    xla._has_triton.cache_clear()
    assert not xla.kernels()
    monkeypatch.undo()
    xla._has_triton.cache_clear()


def test_programs_over_several_devices_have_no_kernels(as_on_an_h200):
    seen = []
    jax.jit(xla.divided(lambda x: seen.append(xla.kernels()) or x))(1.0)
    assert seen == [False]
    assert xla.kernels(), "others have them"


def test_programs_are_traced_called_and_compiled_with_options(as_on_a_gpu):
    program = seeds.Program(lambda x, values, count: x + count, {})
    state = jnp.ones(2, jnp.float32)
    shapes = jax.eval_shape(program, state, 1)  # a jit with options could not be traced inside another
    assert shapes.shape == (2,)
    compiled = program.lower(state, jax.ShapeDtypeStruct((), jnp.int32))()
    assert compiled(state, jnp.int32(2)).tolist() == [3, 3]
