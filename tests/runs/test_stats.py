"""Statistics against definitions written out, hand-made numbers, and how often intervals cover the truth."""

import itertools
import re

import numpy as np
import pytest
from scipy import stats as scipy_stats

from homing.runs import stats


def test_iqm_is_the_mean_of_the_middle_half():
    assert stats.iqm([100, 1, 2, 3, 4, 5, 6, -100]) == pytest.approx(np.mean([2, 3, 4, 5]))
    assert stats.iqm([1, 2, 9]) == pytest.approx(4)  # too few to cut
    columns = np.array([[100, 0], [1, 5], [2, 6], [-100, 70]])
    np.testing.assert_allclose(stats.iqm(columns, axis=0), [1.5, 5.5])


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8, 13, 100])
def test_iqm_is_scipys_trimmed_mean_to_the_last_bit(count):
    values = np.random.default_rng(count).normal(size=(count, 5))
    np.testing.assert_array_equal(stats.iqm(values, axis=0), scipy_stats.trim_mean(values, 0.25, axis=0))
    np.testing.assert_array_equal(stats.iqm(values.T, axis=1), scipy_stats.trim_mean(values.T, 0.25, axis=1))
    assert stats.iqm(values) == scipy_stats.trim_mean(values.ravel(), 0.25)


@pytest.mark.parametrize("statistic", stats.STATISTICS)
def test_statistics_agree_along_an_axis_and_for_a_list(statistic):
    values = np.random.default_rng(0).normal(size=(9, 4))
    measure = stats.STATISTICS[statistic]
    alone = [measure(values[:, i]) for i in range(4)]
    np.testing.assert_allclose(measure(values, axis=0), alone)


def test_the_interval_covers_the_true_value_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        e = stats.estimate(rng.normal(size=40), resamples=500)
        hits += e.low <= 0 <= e.high
    assert 0.88 <= hits / 200 < 1.0


def test_the_interval_is_scipys_and_always_the_same():
    values = np.random.default_rng(1).uniform(size=12)
    ours = stats.estimate(values, "mean", resamples=20_000)
    theirs = scipy_stats.bootstrap((values,), np.mean, n_resamples=20_000, method="percentile")
    np.testing.assert_allclose([ours.low, ours.high], theirs.confidence_interval, atol=0.01)
    assert stats.estimate(values) == stats.estimate(values)


def test_resampling_stays_within_tasks():
    """Tasks that differ much widen no interval; pooled seeds would."""
    tasks = {"easy": [0.9, 0.91, 0.92, 0.93], "hard": [0.1, 0.11, 0.12, 0.13]}
    e = stats.estimate(tasks, "mean")
    assert e.high - e.low < 0.02 and e.count == 8
    pooled = stats.estimate([v for values in tasks.values() for v in values], "mean")
    assert pooled.high - pooled.low > 0.2


def test_one_seed_has_a_value_and_no_width():
    e = stats.estimate([0.5])
    assert (e.value, e.low, e.high, e.count) == (0.5, 0.5, 0.5, 1)
    with pytest.raises(ValueError, match="no finite score"):
        stats.estimate([np.nan])


def test_a_band_is_the_estimate_of_every_point_and_knows_what_is_missing():
    curves = np.random.default_rng(2).uniform(size=(6, 5))
    curves[2:, 3], curves[1:, 4] = np.nan, np.nan
    found = stats.band(curves)
    for point in range(4):
        e = stats.estimate(curves[:, point])
        shown = (found.value[point], found.low[point], found.high[point])
        np.testing.assert_allclose(shown, (e.value, e.low, e.high), rtol=1e-12)
    assert found.count.tolist() == [6, 6, 6, 2, 1]
    assert found.value[4] == curves[0, 4] and np.isnan(found.low[4])
    nothing = stats.band(np.full((3, 2), np.nan))
    assert np.isnan(nothing.value).all() and not nothing.count.any()


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7, 10, 13])
def test_the_weights_of_ranks_make_the_iqm_of_every_draw(count):
    values = np.sort(np.random.default_rng(count).normal(size=count))
    (pick,) = stats._picks([count], 50)
    np.testing.assert_allclose(values @ stats._rank_weights(count, 50), stats.iqm(values[pick], axis=1))


def test_the_order_of_seeds_does_not_matter():
    values = np.random.default_rng(5).uniform(size=9)
    assert stats.estimate(values) == stats.estimate(values[::-1])


def test_profiles_count_every_task_alike():
    tasks = {"many": [0.2] * 6, "few": [0.8, 0.8]}
    found = stats.performance_profile(tasks, [0.0, 0.2, 0.5, 0.8])
    np.testing.assert_allclose(found.value, [1.0, 0.5, 0.5, 0.0])
    spread = stats.performance_profile([0.1, 0.4, 0.6, 0.9], [0.5])
    assert spread.value == 0.5 and 0 <= spread.low < 0.5 < spread.high <= 1
    assert np.isnan(stats.performance_profile([0.5], [0.1]).low)


def test_probability_of_improvement_is_counted_pair_by_pair():
    ours, theirs = {"a": [3, 5, 5], "b": [1]}, {"a": [4, 5], "b": [1, 2], "only theirs": [9]}
    by_hand = []
    for task in ("a", "b"):
        pairs = itertools.product(ours[task], theirs[task])
        by_hand.append(np.mean([1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs]))
    found = stats.probability_of_improvement(ours, theirs)
    assert found is not None
    assert found.value == pytest.approx(np.mean(by_hand)) and found.count == 2
    assert found.low <= found.value <= found.high
    other = stats.probability_of_improvement(theirs, ours)
    assert other is not None and other.value == pytest.approx(1 - found.value)


def test_probability_of_improvement_knows_sure_and_undecided():
    high, low = np.linspace(0.8, 0.9, 10), np.linspace(0.1, 0.2, 10)
    sure = stats.probability_of_improvement(high, low)
    assert sure == stats.Estimate(1.0, 1.0, 1.0, 1)
    same = np.random.default_rng(4).normal(size=(2, 30))
    even = stats.probability_of_improvement(*same)
    assert even is not None and even.low < 0.5 < even.high
    assert stats.probability_of_improvement({"a": [1.0]}, {"b": [2.0]}) is None


def test_aggregate_leaves_broken_seeds_out():
    told = stats.aggregate({"success_any": np.array([0.5, np.nan, 0.7]), "final_distance": [np.nan, np.inf]})
    assert set(told) == {"success_any"}
    assert told["success_any"]["seeds"] == 2
    assert told["success_any"]["iqm"] == pytest.approx(0.6)
    assert told["success_any"]["low"] <= 0.6 <= told["success_any"]["high"]


def test_intervals_of_few_seeds_come_with_their_coverage():
    assert stats.interval_caveat(1) is None and stats.interval_caveat(5) is None
    assert "covers at most 50 %" in (stats.interval_caveat(2) or "")
    rng = np.random.default_rng(0)
    for seeds in (2, 3, 4):
        draws = rng.normal(size=(4000, seeds))
        inside = np.mean((draws.min(1) < 0) & (draws.max(1) > 0))
        said = re.search(r"at most (\d+) %", stats.interval_caveat(seeds) or "")
        assert said is not None and abs(inside - int(said[1]) / 100) < 0.03
