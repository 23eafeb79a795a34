"""How programs are compiled: the GPU's options are names that XLA knows, and can be turned off."""

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


def test_programs_are_traced_called_and_compiled_with_options(as_on_a_gpu):
    program = seeds.Program(lambda x, values, count: x + count, {})
    state = jnp.ones(2, jnp.float32)
    shapes = jax.eval_shape(program, state, 1)  # a jit with options could not be traced inside another
    assert shapes.shape == (2,)
    compiled = program.lower(state, jax.ShapeDtypeStruct((), jnp.int32))()
    assert compiled(state, jnp.int32(2)).tolist() == [3, 3]
