"""Hidden layers in CUDA: the source on an emulated device, and which networks it is for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from kernel_cases import distance, exactly
from kernel_emulator import emulated_call
from trunk_reference import REFERENCE

from homing.compile import cuda
from homing.networks import trunk, trunk_passes
from homing.networks.trunk_passes import Tiling, TrunkShape

TILINGS = [
    Tiling(
        TrunkShape(width=64, inputs=64, layers=4, norm=True, block=4), rows=16, span=16, depth=32, stages=3
    ),
    Tiling(
        TrunkShape(width=128, inputs=192, layers=8, norm=True, block=4), rows=16, span=16, depth=32, stages=3
    ),
    Tiling(
        TrunkShape(width=128, inputs=64, layers=1, norm=False, block=0), rows=32, span=16, depth=64, stages=2
    ),
    Tiling(
        TrunkShape(width=96, inputs=64, layers=4, norm=True, block=4), rows=16, span=16, depth=32, stages=2
    ),
    Tiling(
        TrunkShape(width=192, inputs=64, layers=2, norm=True, block=0), rows=64, span=32, depth=64, stages=3
    ),
    Tiling(
        TrunkShape(width=576, inputs=64, layers=1, norm=True, block=0), rows=16, span=16, depth=32, stages=3
    ),
    Tiling(
        TrunkShape(width=1024, inputs=64, layers=1, norm=True, block=1), rows=16, span=16, depth=16, stages=3
    ),
]


# The CUDA source itself, on a CPU.


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    """`cuda.call` on an emulated device."""
    return emulated_call(tmp_path_factory.mktemp("emulated"))


def example(shape: TrunkShape, networks: int, batch: int):
    rng = np.random.default_rng(sum(shape))
    rows = shape.inputs + shape.layers * shape.width
    normal = lambda *size: rng.normal(size=size)
    x = jnp.asarray(normal(networks, batch, shape.inputs), jnp.bfloat16)
    weights = jnp.asarray(normal(networks, rows, shape.width) / np.sqrt(shape.width), jnp.bfloat16)
    vectors = normal(networks, 1 + shape.layers, 3, shape.width) * 0.5 + np.array([0, 1, 0])[:, None]
    return x, weights, jnp.asarray(vectors, jnp.float32)


def padded(array):
    """Rows as the kernels keep them, with NaN where nothing may be read."""
    return jnp.pad(array, [(0, 0)] * 3 + [(0, trunk_passes.PADDING)], constant_values=jnp.nan)


@pytest.mark.parametrize("tiles", TILINGS, ids=lambda tiles: f"{tiles.shape.width}-{tiles.rows}")
def test_the_kernels_compute_what_their_reference_does(emulated, tiles):
    shape = tiles.shape
    networks, batch = (2, 2 * tiles.rows) if tiles.rows * shape.width < 5000 else (1, tiles.rows)
    x, weights, vectors = example(shape, networks, batch)
    out, saved = exactly(REFERENCE.forward, shape)(x, weights, vectors)
    launch = cuda.Launch((batch // tiles.rows, networks, 1), tiles.threads, tiles.shared_bytes)
    # Of wide layers, what a warp reads before a barrier may come after it, unless the source says otherwise.
    late = {"LATE_READS": 1} if shape.width > 512 else {}

    def run(entry, outputs, *given, save=True):
        defines = tiles.defines(entry, save) | late
        return emulated(cuda.kernel("homing.networks", "trunk.cu", entry, defines), launch, outputs, *given)

    expected = out, saved.inputs, padded(saved.normed), saved.inverse
    forward = x, trunk_passes._row_tiles(weights), vectors
    made = run("trunk_forward", expected, *forward)
    np.testing.assert_array_equal(run("trunk_forward", (out,), *forward, save=False)[0], made[0])
    for own, exact in zip(made, (out, *saved), strict=True):
        if own.ndim == 3 and not shape.norm and own.dtype == np.float32:
            continue  # without a LayerNorm there is no deviation to keep
        assert distance(own[..., : exact.shape[-1]], exact) < 2e-3

    gradient = jnp.asarray(np.random.default_rng(1).normal(size=out.shape), jnp.bfloat16)
    first, others, d_vectors = exactly(REFERENCE.backward, shape)(gradient, weights, vectors, saved)
    sums = jax.ShapeDtypeStruct((networks, batch // tiles.span, *d_vectors.shape[1:]), jnp.float32)
    columns = trunk_passes._column_tiles(weights[:, shape.inputs :], shape, tiles.depth)
    given = gradient, columns, vectors, padded(saved.normed), saved.inverse
    made = run("trunk_backward", (first, others, sums), *given)
    assert distance(made[0], first) < 2e-3
    assert distance(made[1], others) < 2e-3
    assert distance(made[2].sum(axis=1), d_vectors) < 2e-3


def test_widths_and_shared_memory_that_a_card_does_not_have(monkeypatch):
    monkeypatch.setattr(trunk.xla, "cuda_kernels", lambda asked_for: not asked_for)
    monkeypatch.setattr(cuda, "capability", lambda: (9, 0))
    wide = TrunkShape(width=1024, inputs=64, layers=4, norm=True, block=4)
    assert trunk.passes(wide) is None, "not seen right on a card"
    assert trunk.passes(wide._replace(width=512)) is trunk.KERNELS
    monkeypatch.setattr(trunk.xla, "cuda_kernels", lambda asked_for: True)
    assert trunk.passes(wide) is trunk.KERNELS
    assert trunk.passes(wide._replace(width=1088)) is None
    monkeypatch.setattr(trunk.xla, "cuda_kernels", lambda asked_for: not asked_for)
    assert trunk.passes(wide._replace(width=80)) is None
    assert trunk.passes(wide._replace(width=224)) is trunk.KERNELS
    assert trunk.passes(wide._replace(layers=1)) is None, "shallow networks gain nothing"
    monkeypatch.setattr(cuda, "capability", lambda: (8, 9))
    assert trunk.passes(wide) is None
    assert trunk.passes(wide._replace(width=256)) is trunk.KERNELS
