"""Whole networks in CUDA: the source on an emulated device, and which networks it is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fused_reference import REFERENCE, Kept
from kernel_cases import distance, exactly, example, from_registers, plain_order
from kernel_emulator import emulated_call

from homing.compile import cuda
from homing.networks import fused, fused_passes
from homing.networks.fused_passes import KERNELS, Division, FusedShape

# Shape, networks, batch.
RESIDUAL = FusedShape(width=64, input=11, layers=4, norm=True, block=4, output=5)
WIDE_INPUT = FusedShape(width=64, input=70, layers=8, norm=True, block=4, output=65)
PLAIN = FusedShape(width=128, input=64, layers=1, norm=False, block=0, output=3)
WIDE_OUTPUT = FusedShape(width=192, input=200, layers=1, norm=True, block=0, output=161)
WIDEST = FusedShape(width=256, input=300, layers=1, norm=True, block=1, output=64)
# Every division that the rule chooses.
CASES = [
    (RESIDUAL, 2, 128, Division(1, 4)),
    (WIDE_OUTPUT, 1, 64, Division(1, 4)),
    (WIDEST, 1, 64, Division(1, 4)),
    (WIDE_INPUT, 1, 256, Division(2, 2)),
    (PLAIN, 1, 128, Division(2, 2)),
    (WIDEST, 1, 128, Division(2, 2)),
    (RESIDUAL, 1, 128, Division(1, 2, 2)),
    (WIDE_OUTPUT, 1, 64, Division(1, 2, 2)),
    (PLAIN, 2, 64, Division(1, 2, 4)),
    (WIDEST, 1, 64, Division(1, 2, 4)),
]


# The CUDA source itself, on a CPU.


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """`cuda.call` on an emulated device."""
    return emulated_call(tmp_path_factory.mktemp("emulated"))


@pytest.fixture
def hopper(monkeypatch, emulated):
    """Kernels are launched on an emulated card."""
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    monkeypatch.setattr(cuda, "call", emulated)
    return monkeypatch


def divide(monkeypatch, division):
    """Forward and backward kernels are divided so."""
    monkeypatch.setattr(fused_passes, "division_of", lambda shape, networks, batch: division)


@pytest.mark.parametrize(("shape", "networks", "batch", "division"), CASES, ids=str)
def test_the_kernels_compute_what_their_reference_does(hopper, shape, networks, batch, division):
    divide(hopper, division)
    x, weights, vectors, bias, gradient = example(shape, networks, batch)
    packed, exact = KERNELS.pack(shape, weights), exactly(REFERENCE.pack, shape)(weights)
    for own, other in zip(packed, exact, strict=True):
        np.testing.assert_array_equal(plain_order(own), np.asarray(other, np.float32))

    out, saved = KERNELS.forward(shape, True, x, packed, vectors, bias)
    expected, kept = exactly(REFERENCE.forward, shape, True)(x, exact, vectors, bias)
    own = Kept(from_registers(saved.normed), saved.inverse, *map(plain_order, saved[2:]))
    assert distance(out, expected) < 2e-3
    for name, made, other in zip(Kept._fields, own, kept, strict=True):
        if name != "inverse" or shape.norm:  # without a LayerNorm there is no deviation to keep
            assert distance(made, other) < 2e-3, name

    same = Kept(*(jnp.asarray(np.asarray(a, b.dtype)) for a, b in zip(own, kept, strict=True)))
    dx, made = KERNELS.backward(shape, True, True, gradient, packed, vectors, saved)
    backward = exactly(REFERENCE.backward, shape, True, True)
    exact_dx, exact_made = backward(gradient, exact, vectors, same)
    assert distance(dx, exact_dx) < 2e-3
    assert distance(made.vectors, exact_made.vectors) < 2e-3
    for a, b in zip(*map(jax.tree.leaves, (made.weights, exact_made.weights)), strict=True):
        assert a.shape == b.shape
        assert distance(a, b) < 2e-3


@pytest.mark.parametrize(
    ("shape", "division"), [(RESIDUAL, Division(1, 4)), (PLAIN, Division(1, 2, 2))], ids=str
)
def test_what_is_not_asked_for_is_left_out_and_the_rest_is_the_same(hopper, shape, division):
    divide(hopper, division)
    x, weights, vectors, bias, gradient = example(shape, 1, 64)
    packed = KERNELS.pack(shape, weights)
    out, saved = KERNELS.forward(shape, True, x, packed, vectors, bias)
    np.testing.assert_array_equal(KERNELS.apply(shape, x, packed, vectors, bias), out)
    same_out, less = KERNELS.forward(shape, False, x, packed, vectors, bias)
    assert less.inputs is None and less.activations is None
    for name in ("normed", "inverse") if shape.norm else ("normed",):
        np.testing.assert_array_equal(_floats(getattr(less, name)), _floats(getattr(saved, name)))
    np.testing.assert_array_equal(same_out, out)

    dx, made = KERNELS.backward(shape, True, True, gradient, packed, vectors, saved)
    alone, nothing = KERNELS.backward(shape, False, True, gradient, packed, vectors, less)
    assert nothing is None
    np.testing.assert_array_equal(alone, dx)
    nothing, again = KERNELS.backward(shape, True, False, gradient, packed, vectors, saved)
    assert nothing is None
    jax.tree.map(np.testing.assert_array_equal, again.weights, made.weights)


def _floats(array) -> np.ndarray:
    return np.asarray(array, np.float32)


def test_which_networks_and_cards_there_are_kernels_for(monkeypatch):
    deep = FusedShape(width=256, input=45, layers=4, norm=True, block=4, output=64)
    many, few = 2048, 1024
    assert fused.passes(deep, many) is None, "no GPU"
    monkeypatch.setattr(cuda, "library", lambda: "NVRTC")
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    shallow = deep._replace(layers=1, block=0)
    monkeypatch.setattr(fused.xla, "_allowed", lambda asked_for=False: not asked_for)
    assert fused.passes(deep, many) is KERNELS
    assert fused.passes(deep, few) is None, "for few rows they must be asked for"
    assert fused.passes(shallow, many) is None, "so they must for few layers"
    assert fused.passes(shallow, 2 * many) is KERNELS
    assert fused.passes(deep._replace(layers=7), few) is None
    assert fused.passes(deep._replace(layers=8), 128) is KERNELS, "very deep networks gain with few rows too"
    assert fused.passes(deep._replace(width=192), many) is None, "not seen on a GPU"
    assert fused.passes(deep._replace(norm=False), many) is None, "not seen on a GPU"
    monkeypatch.setattr(fused.xla, "_allowed", lambda asked_for=False: True)
    assert fused.passes(deep, few) is KERNELS
    assert fused.passes(deep._replace(width=192, norm=False), many) is KERNELS
    assert fused.passes(shallow, few) is KERNELS
    assert fused.passes(deep._replace(output=256), many) is KERNELS
    assert fused.passes(deep._replace(output=257), many) is None
    assert fused.passes(deep._replace(width=224), many) is None
    assert fused.passes(deep._replace(layers=0), many) is None
    for other in ((8, 9), (10, 0)):
        monkeypatch.setattr(cuda, "capability", lambda other=other: other)
        assert fused.passes(deep, many) is None, "the matrix units are those of Hopper"


DIVISIONS = [Division(*each) for each in ((1, 4), (2, 2), (1, 2, 2), (1, 2, 4))]


@pytest.mark.parametrize("division", DIVISIONS, ids=str)
def test_every_shape_fits_into_shared_memory(monkeypatch, division):
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    for width in fused_passes.WIDTHS:
        for output in (1, 256):
            shape = FusedShape(width, 45, 4, True, 4, output)
            forward = fused_passes.forward_tiling(shape, division)
            backward = fused_passes.backward_tiling(shape, division, True)
            weights = [fused_passes.weights_tiling(shape, networks) for networks in (1, 40)]
            assert max(each.shared_bytes for each in (forward, backward, *weights)) <= cuda.shared_memory()
            assert division.groups == 1 or forward.stages * forward.chunk >= width, "a turn's tiles"


def test_rows_are_divided_by_how_many_multiprocessors_they_would_fill():
    shape = RESIDUAL._replace(width=256)
    of = lambda networks, batch, width=256: fused_passes.division_of(
        shape._replace(width=width), networks, batch
    )
    assert of(1, 256) == Division(1, 2, 4)
    assert of(7, 256) == Division(1, 2, 4)
    assert of(1, 256, width=128) == Division(1, 2, 4)
    assert of(1, 256, width=64) == of(1, 256, width=192) == Division(1, 2, 2)
    assert of(8, 256) == of(5, 1024) == of(1, 64 * 132) == Division(1, 4)
    assert of(15, 1024) == of(67, 128) == Division(2, 2)
    assert of(133, 64) == of(51, 192) == Division(1, 4), "an odd number of tiles"
    for width in fused_passes.WIDTHS:
        for networks, batch in ((1, 128), (5, 1024), (15, 1024)):
            division = of(networks, batch, width)
            assert width % (16 * division.slices) == 0, "columns of a warpgroup"
            tiles = networks * batch // 64 // division.groups
            assert division.cluster == 1 or tiles * division.cluster <= fused_passes.MULTIPROCESSORS
