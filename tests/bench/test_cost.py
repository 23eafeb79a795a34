"""What programs cost: counts are held to sums by hand."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from jax import lax

from homing.bench.cost import profiler
from homing.bench.cost.flops import product_flops
from homing.bench.cost.hlo import cost, size_of


def two_layers(params, x):
    return jnp.sum(jnp.tanh(x @ params[0]) @ params[1])


def shapes(*sizes):
    return [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]


def test_products_are_counted_as_by_hand():
    params, (x,) = shapes((5, 7), (7, 3)), shapes((11, 5))
    forward = 2 * 11 * (5 * 7 + 7 * 3)
    assert product_flops(two_layers, params, x) == forward
    # Backwards both weights need a product each, and the hidden layer one; the input needs none.
    backward = 2 * 11 * (5 * 7 + 7 * 3 + 3 * 7)
    # The loss itself is no result of a gradient: its last product is not made.
    assert product_flops(jax.grad(two_layers), params, x) == backward + 2 * 11 * 5 * 7


def test_loops_count_as_often_as_they_run_and_branches_once():
    (x,) = shapes((4, 4))
    loop = lambda x: lax.scan(lambda c, _: (c @ x, None), x, length=6)[0]
    assert product_flops(loop, x) == 6 * 2 * 4**3
    branch = lambda x: lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x @ x, x)
    assert product_flops(branch, x) == 2 * 2 * 4**3
    dropped = lambda x: (x @ x, x + 1)[1]
    assert product_flops(dropped, x) == 0


def test_many_seeds_are_as_many_products():
    params, (x,) = shapes((3, 5, 7), (3, 7, 3)), shapes((3, 11, 5))
    assert product_flops(jax.vmap(two_layers), params, x) == 3 * 2 * 11 * (5 * 7 + 7 * 3)


def test_launches_and_bytes_grow_with_the_loop():
    def compiled(length):
        def run(x, rows):
            return lax.scan(lambda c, row: (jnp.tanh(c @ c) + row, None), x, rows)[0]

        return cost(jax.jit(run).lower(*shapes((16, 16), (length, 16, 16))).compile().as_text())

    once, twice, four = compiled(10), compiled(20), compiled(40)
    assert once.launches >= 20
    assert four.launches - twice.launches == 2 * (twice.launches - once.launches)
    assert four.bytes - twice.bytes == 2 * (twice.bytes - once.bytes)
    each = (twice.bytes - once.bytes) / 10
    # A product and a sum at least read and write their rows; a whole [length, 16, 16] is never read.
    assert 4 * 1024 <= each <= 20 * 1024


GPU_LIKE = """HloModule jit_run, is_scheduled=true

%fused (p0: f32[8,64], p1: s32[]) -> f32[64] {
  %p0 = f32[8,64]{1,0} parameter(0)
  %p1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %row = f32[1,64]{1,0} dynamic-slice(%p0, %p1, %zero), dynamic_slice_sizes={1,64}
  ROOT %out = f32[64]{0} bitcast(%row)
}

%body (t: (s32[], f32[8,64])) -> (s32[], f32[8,64]) {
  %t = (s32[], f32[8,64]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%t), index=0
  %x = f32[8,64]{1,0} get-tuple-element(%t), index=1
  %f = f32[64]{0} fusion(%x, %i), kind=kLoop, calls=%fused
  %g = (f32[8,64]{1,0}, s8[4194304]{0}) custom-call(%x, %f), custom_call_target="__cublas$gemm"
  %y = f32[8,64]{1,0} get-tuple-element(%g), index=0
  ROOT %r = (s32[], f32[8,64]{1,0}) tuple(%i, %y)
}

%condition (c: (s32[], f32[8,64])) -> pred[] {
  %c = (s32[], f32[8,64]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (a: f32[8,64]) -> f32[8,64] {
  %a = f32[8,64]{1,0} parameter(0)
  %n = s32[] constant(0)
  %s = (s32[], f32[8,64]{1,0}) tuple(%n, %a)
  %w = (s32[], f32[8,64]{1,0}) while(%s), condition=%condition, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  ROOT %z = f32[8,64]{1,0} get-tuple-element(%w), index=1
}
"""  # noqa: E501


def test_slices_and_a_librarys_own_room_are_not_traffic():
    row, whole = 4 * 64, 4 * 8 * 64
    found = cost(GPU_LIKE)
    assert found.launches == 5 * 2
    assert found.bytes == 5 * ((row + row + 4) + (whole + row + whole))
    assert size_of("(f32[2,3]{1,0}, bf16[4]{0}, pred[])") == 24 + 8 + 1


def test_a_fusion_that_runs_beside_others_is_one_launch():
    apart = GPU_LIKE.replace(
        "  %f = f32[64]{0} fusion(%x, %i), kind=kLoop, calls=%fused\n",
        "  %b = ((f32[8,64]{1,0}, s32[]), f32[64]{0}, u32[]) fusion-start(%x, %i), kind=kLoop, calls=%fused\n"
        "  %f = f32[64]{0} fusion-done(%b)\n",
    )
    assert "fusion-done" in apart and cost(apart) == cost(GPU_LIKE)


def test_a_profile_counts_kernels_of_gpus_alone():
    def plane(name, **lines):
        lines = [
            SimpleNamespace(name=line.replace("_", " "), events=[SimpleNamespace(name=n) for n in names])
            for line, names in lines.items()
        ]
        return SimpleNamespace(name=name, lines=lines)

    planes = [
        plane("/host:CPU", Stream=["call"]),
        plane("/device:GPU:0", Stream_13=["fusion_1", "gemm", "MemcpyD2D"], XLA_Ops=["fusion_1"]),
    ]
    assert profiler.started(planes) == 2
    assert profiler.kernels(lambda: None) is None  # tests run on the CPU


def test_what_a_loop_stacks_and_nobody_uses_is_not_counted():
    (x,) = shapes((4, 4))

    def loop(x, want):
        last, rows = lax.scan(lambda c, _: (c @ x, x @ c @ x), x, length=6)
        return rows if want else last

    assert product_flops(lambda x: loop(x, want=False), x) == 6 * 2 * 4**3
    assert product_flops(lambda x: loop(x, want=True), x) == 3 * 6 * 2 * 4**3
