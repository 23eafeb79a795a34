"""The plan's integers, for the paper's numbers and for awkward ones."""

import dataclasses
import itertools

import jax.numpy as jnp
import pytest

from homing.config.offpolicy import Plan, Sizes, TrainConfig, human_bytes
from homing.errors import ConfigError
from homing.training.offpolicy import updates_before

BATCH = 4 * 256 * (2 * 29 + 2 * 2 + 8 + 3)  # of 256 transitions
ANT = Sizes(29, 8, 2, batch_bytes=BATCH, learner_bytes=5_000_000, env_bytes=3_000_000)


def plan(seeds=1, **settings):
    return Plan(TrainConfig(**settings), ANT, seeds)


def test_the_papers_numbers():
    paper = plan()
    assert paper.prefill_iterations == 17
    assert paper.steps_per_iteration == 62 * 1024
    assert paper.updates_ratio == 3968
    assert paper.total_steps == 788 * 62 * 1024
    assert paper.buffer_shape.slots * 62 == 9982
    assert paper.epochs == 100
    assert paper.updates_per_iteration % paper.prefetch_updates == 0


ODD = [
    {
        "total_steps": 1_000_003,
        "num_envs": 7,
        "unroll_length": 13,
        "updates_per_step": 0.037,
        "evaluations": 11,
    },
    {
        "total_steps": 99_999,
        "num_envs": 3,
        "unroll_length": 5,
        "updates_per_step": 1 / 16,
        "evaluations": 200,
    },
    {"total_steps": 5_000, "num_envs": 1, "unroll_length": 1, "updates_per_step": 2.5, "prefill_steps": 10},
    {
        "total_steps": 30_000,
        "num_envs": 10,
        "unroll_length": 9,
        "updates_per_step": 1 / 3000,
        "prefill_steps": 0,
    },
    {
        "total_steps": 10_000_000,
        "num_envs": 1000,
        "unroll_length": 62,
        "updates_per_step": 1 / 40,
        "batch_size": 511,
    },
]


@pytest.mark.parametrize("settings", ODD)
def test_any_numbers_make_a_plan_that_ends_on_or_just_past_the_asked_steps(settings):
    made = plan(**settings)
    asked = settings["total_steps"]
    assert asked <= made.total_steps < asked + made.steps_per_iteration
    bounds = [made.epoch_bounds(e) for e in range(made.epochs)]
    assert bounds[0][0] == 0
    assert bounds[-1][1] == made.iterations
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))
    lengths = {stop - max(start, made.prefill_iterations) for start, stop in bounds}
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1
    assert str(made).count("\n") == 4


@pytest.mark.parametrize("settings", ODD)
def test_updates_keep_the_asked_ratio_and_every_epoch_has_some(settings):
    made = plan(**settings)
    rounds = made.train_iterations
    asked = settings["updates_per_step"] * made.steps_per_iteration * rounds
    assert abs(made.total_updates - asked) <= 1 + 1e-8 * rounds
    some = range(0, made.iterations + 1, max(rounds // 50, 1))
    assert [int(updates_before(made, jnp.int32(i))) for i in some] == [made.updates_at(i) for i in some]
    assert made.updates_at(made.prefill_iterations) == 0
    for epoch in range(made.epochs):
        start, stop = made.epoch_bounds(epoch)
        assert made.updates_at(stop) > made.updates_at(start)
    per_iteration = {
        made.updates_at(i + 1) - made.updates_at(i) for i in some if i >= made.prefill_iterations
    }
    assert {count % made.prefetch_updates for count in per_iteration} <= set(range(made.leftover_updates + 1))


def test_update_counts_do_not_overflow():
    made = plan(
        total_steps=2_000_000_000, num_envs=3, unroll_length=1000, updates_per_step=0.77777, prefill_steps=0
    )
    last = made.iterations - 1
    assert int(updates_before(made, jnp.int32(last))) == made.updates_at(last) > 1.5e9


def test_chunks_respect_their_bytes():
    made = plan(prefetch_bytes=2**20)
    assert 1 <= made.prefetch_updates * made.sizes.batch_bytes <= 2**20
    assert plan(prefetch_bytes=1).prefetch_updates == 1
    assert plan(num_envs=16, unroll_length=1, total_steps=10**6).prefetch_updates == 1


def test_memory_is_counted_for_each_seed_and_in_all():
    one, ten = plan(), plan(seeds=10)
    transitions = 9982 * 1024
    assert one.bytes_by_part["replay"] == transitions * (4 * (29 + 8 + 2 + 2 + 1 + 1) + 2)
    assert ten.bytes_in_all == 10 * one.bytes_in_all
    narrow = plan(replay_dtype="bfloat16")
    assert one.bytes_by_part["replay"] - narrow.bytes_by_part["replay"] == transitions * 2 * (29 + 8)
    assert "GiB" in str(one)


def test_the_largest_setting_that_fits_is_offered():
    ten = plan(seeds=10)
    need = ten.bytes_in_all
    assert ten.largest_fitting(need) is ten
    offers = ten.fitting(need // 2)
    assert offers["seeds"].seeds == 5
    assert set(offers) == {"seeds", "replay_size"}
    less = ten.largest_fitting(need // 2)
    assert less.seeds == 10
    assert need // 2 - 10 * less.buffer_shape.segment_length * 1024 * 174 < less.bytes_in_all <= need // 2
    assert set(ten.fitting(int(0.7 * need))) == {"seeds", "replay_size", "replay_dtype"}
    few = ten.largest_fitting(int(0.115 * need))
    assert few.seeds in (1, 10)
    assert few.fits(int(0.115 * need))
    with pytest.raises(ConfigError, match="replay_size 4836 or seeds 5"):
        ten.check_fits(need // 2)
    with pytest.raises(ConfigError, match="num_envs"):
        ten.check_fits(10**6)


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"replay_size": 50}, "unroll_length to 50"),
        ({"prefill_steps": 20_000}, "lower the first to 10000"),
        ({"total_steps": 1000}, "raise it to"),
        ({"updates_per_step": 0.0}, "above 0, up to 10000"),
        ({"updates_per_step": 1e-9}, "raise it to"),
        ({"num_envs": 0}, "at least 1"),
        ({"replay_recent_fraction": 0.0}, "above 0, up to 1"),
        ({"replay_recent_fraction": 1.5}, "above 0, up to 1"),
        ({"greedy_env_fraction": 1.1}, "from 0 to 1"),
        ({"train_episode_length": 0}, "at least 1"),
        ({"lr_final_scale": -0.1}, "from 0 to 1"),
        ({"unroll_length": 40_000, "replay_size": 50_000}, "at most 32767"),
    ],
)
def test_impossible_numbers_name_the_fix(settings, fix):
    with pytest.raises(ConfigError, match=fix):
        plan(**settings)


def test_the_least_updates_that_an_error_names_are_enough():
    one = {"num_envs": 1, "unroll_length": 1, "total_steps": 1_000_000, "prefill_steps": 1000}
    with pytest.raises(ConfigError, match=r"raise it to 0\.0001 or more"):
        plan(updates_per_step=4e-5, **one)
    assert plan(updates_per_step=1e-4, **one).total_updates == 99


def test_nobody_writes_into_a_config():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainConfig().num_envs = 3


def test_sizes_are_written_for_people():
    assert human_bytes(17) == "17 B"
    assert human_bytes(1.7 * 2**30) == "1.7 GiB"
