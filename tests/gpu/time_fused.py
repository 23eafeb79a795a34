"""Times the passes of whole networks by who computes 64 rows: PYTHONPATH=src:tests python tests/gpu/time_fused.py"""

import statistics
import time

import jax
from kernel_cases import example

from homing.networks import fused_passes
from homing.networks.fused_passes import KERNELS, Division, FusedShape

CASES = {
    "r4x256 1 x 256": (FusedShape(256, 48, 4, True, 4, 64), 1, 256),
    "r16x256 1 x 256": (FusedShape(256, 48, 16, True, 4, 64), 1, 256),
    "r4x256 5 x 1024": (FusedShape(256, 48, 4, True, 4, 64), 5, 1024),
    "r4x256 10 x 512": (FusedShape(256, 48, 4, True, 4, 64), 10, 512),
    "r4x256 15 x 1024": (FusedShape(256, 48, 4, True, 4, 64), 15, 1024),
}
DIVISIONS = [
    None,
    *(Division(*each) for each in ((1, 2), (1, 4), (2, 2), (1, 2, 2), (1, 2, 4))),
]  # None: by the rule
CALLS, ROUNDS, UNROLL = 100, 7, 20


def microseconds(call, start) -> float:
    """Of one of many calls, each of which takes what the one before returned."""
    body = lambda carry, _: (carry + 0 * call(carry), None)
    run = jax.jit(lambda x: jax.lax.scan(body, x, length=CALLS, unroll=UNROLL)[0])
    jax.block_until_ready(run(start))
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        jax.block_until_ready(run(start))
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times) / CALLS


def passes(shape: FusedShape, networks: int, batch: int) -> list[float]:
    """Microseconds of each: forward, with what gradients need, backward to the input, all other gradients."""
    x, weights, vectors, bias, gradient = example(shape, networks, batch)
    packed = jax.jit(lambda w: KERNELS.pack(shape, w))(weights)
    saved = jax.jit(lambda: KERNELS.forward(shape, True, x, packed, vectors, bias)[1])()
    forward = lambda weights, b: KERNELS.forward(shape, weights, x, packed, vectors, b[:, 0])[0]
    backward = lambda weights, g: KERNELS.backward(shape, weights, not weights, g, packed, vectors, saved)
    return [
        microseconds(lambda b: KERNELS.apply(shape, x, packed, vectors, b[:, 0])[:, :1], bias[:, None]),
        microseconds(lambda b: forward(True, b)[:, :1], bias[:, None]),
        microseconds(lambda g: backward(False, g)[0][:, :1, :1], gradient),
        microseconds(lambda g: backward(True, g)[1].vectors[:, 0, :1, :1], gradient),
        microseconds(lambda g: g[:, :1, :1], gradient),
    ]


by_rule = fused_passes.division_of
for name, case in CASES.items():
    print(
        f"{name}: forward, with what gradients need, backward to the input, all other gradients, the loop alone"
    )
    for division in DIVISIONS:
        fused_passes.division_of = by_rule if division is None else lambda *case, chosen=division: chosen
        print(*(f"{t:7.1f}" for t in passes(*case)), division or f"the rule: {by_rule(*case)}", flush=True)
