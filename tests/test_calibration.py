"""How good decisions were: every measure against literals worked out by hand and against plain loops."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from oracle_core import calibration
from oracle_core.calibration import (
    BINS,
    FORECASTS,
    LEAST_PROBABILITY,
    SUMS,
    Judged,
    Reliability,
    average_probability,
    bin_of,
    bin_sums,
    calibration_error,
    day_sums,
    drawdown,
    draws,
    equity,
    flips,
    group_means,
    interval,
    leading,
    measures,
    reliability,
    resampled,
    share,
    signed_probability,
    squared_error,
    surprise,
)

NAN = float("nan")

# Four decisions on two of three days. Two rose; of three calls one was right; the plain average was right
# once of three times. p_bull was stated for two of them.
FOUR = Judged(
    day=np.array([0, 0, 2, 2]),
    rose=np.array([True, False, True, False]),
    call=np.array([1, 1, -1, 0]),
    plain_call=np.array([1, 0, -1, 1]),
    confidence=np.array([0.75, 0.75, 0.25, 0.5]),
    p_bull=np.array([0.5, NAN, NAN, 1.0]),
    plain=np.array([1.0, 0.5, 0.25, 0.75]),
)


def judged(rng: random.Random, count: int, days: int) -> Judged:
    return Judged(
        day=np.array([rng.randrange(days) for _ in range(count)], np.int64),
        rose=np.array([rng.random() < 0.6 for _ in range(count)], np.bool_),
        call=np.array([rng.choice((-1, 0, 1)) for _ in range(count)], np.int64),
        plain_call=np.array([rng.choice((-1, 0, 1)) for _ in range(count)], np.int64),
        confidence=np.array([rng.random() for _ in range(count)]),
        p_bull=np.array([rng.choice((rng.random(), NAN)) for _ in range(count)]),
        plain=np.array([rng.random() for _ in range(count)]),
    )


def test_a_direction_with_its_confidence_is_a_probability_of_a_rise() -> None:
    call, confidence = np.array([1, -1, 0, 1, -1, 1]), np.array([0.6, 0.6, 0.9, 1.0, 1.0, 0.0])
    assert signed_probability(call, confidence) == pytest.approx([0.8, 0.2, 0.5, 1.0, 0.0, 0.5], abs=1e-15)


def test_an_average_is_a_probability_of_a_rise_too_and_never_outside_0_and_1() -> None:
    stated = average_probability(np.array([-1.0, -0.5, 0.0, 0.2, 1.0, 1.5, -3.0, NAN]))
    assert stated[:-1].tolist() == [0.0, 0.25, 0.5, 0.6, 1.0, 1.0, 0.0]
    assert np.isnan(stated[-1])


def test_brier_and_log_loss_of_single_statements_are_those_of_the_textbook() -> None:
    stated, rose = np.array([0.8, 0.8, 0.5, 1.0, 0.0]), np.array([True, False, True, True, True])
    assert squared_error(stated, rose) == pytest.approx([0.04, 0.64, 0.25, 0.0, 1.0], abs=1e-15)
    assert surprise(stated, rose) == pytest.approx(
        [-math.log(0.8), -math.log(0.2), math.log(2.0), -math.log(1 - 1e-6), -math.log(1e-6)], rel=1e-9
    )
    assert LEAST_PROBABILITY == 1e-6
    assert surprise(np.array([1.0]), np.array([False]))[0] == pytest.approx(-math.log(1e-6), rel=1e-9)


def test_the_sums_of_each_day_are_counted_and_a_day_without_decisions_is_zero() -> None:
    sums = {name: day_sums(FOUR, 3)[:, at].tolist() for at, name in enumerate(SUMS)}
    assert sums["decisions"] == [2, 0, 2]
    assert sums["rises"] == [1, 0, 1]
    assert sums["calls"] == [2, 0, 1]
    assert sums["hits"] == [1, 0, 0]
    assert sums["called_rises"] == [1, 0, 1]
    assert sums["plain_calls"] == [1, 0, 2]
    assert sums["plain_hits"] == [1, 0, 0]
    assert sums["stated_confidence"] == [2, 0, 2]
    assert sums["squares_confidence"] == [0.625, 0.0, 0.8125]
    assert sums["stated_p_bull"] == [1, 0, 1]
    assert sums["squares_p_bull"] == [0.25, 0.0, 1.0]
    assert sums["logs_p_bull"] == pytest.approx([math.log(2.0), 0.0, -math.log(1e-6)], rel=1e-9)
    assert sums["stated_plain"] == [2, 0, 2]
    assert sums["squares_plain"] == [0.25, 0.0, 1.125]


def test_the_measures_of_four_decisions_are_those_worked_out_by_hand() -> None:
    found = {name: float(value) for name, value in measures(day_sums(FOUR, 3).sum(axis=0)).items()}
    assert found["decisions"] == 4
    assert found["base_rate"] == 0.5
    assert found["calls"] == 3
    assert found["hit_rate"] == pytest.approx(1 / 3)
    assert found["hit_rate_base"] == pytest.approx(2 / 3)
    assert found["hit_rate_plain"] == pytest.approx(1 / 3)
    assert found["brier_base"] == 0.25
    assert found["log_loss_base"] == pytest.approx(math.log(2.0))
    assert found["brier_confidence"] == (0.625 + 0.8125) / 4
    assert found["skill_confidence"] == pytest.approx(1 - (0.625 + 0.8125))
    assert found["brier_p_bull"] == 0.625
    assert found["brier_plain"] == pytest.approx(1.375 / 4)
    assert found["log_loss_plain"] == pytest.approx(
        (-math.log(1 - 1e-6) + math.log(2.0) - 2 * math.log(0.25)) / 4
    )
    assert found["hit_rate_minus_base"] == pytest.approx(-1 / 3)
    assert found["hit_rate_minus_plain"] == pytest.approx(0.0)
    assert found["brier_confidence_minus_base"] == pytest.approx(0.359375 - 0.25)
    assert found["brier_confidence_minus_plain"] == pytest.approx(0.359375 - 0.34375)
    assert found["brier_p_bull_minus_base"] == pytest.approx(0.375)
    assert found["brier_p_bull_minus_plain"] == pytest.approx(0.625 - 0.34375)


def test_the_base_of_the_hit_rate_is_the_more_frequent_side_whichever_that_is() -> None:
    sums = np.zeros((2, len(SUMS)))
    sums[:, SUMS.index("calls")] = 4.0
    sums[:, SUMS.index("called_rises")] = [1.0, 3.0]
    assert measures(sums)["hit_rate_base"].tolist() == [0.75, 0.75]


def test_a_share_of_nothing_is_nan_and_never_0() -> None:
    assert np.isnan(share(np.array([0.0, 1.0]), np.array([0.0, 0.0]))).all()
    assert share(np.array([1.0, 0.0]), np.array([4.0, 2.0])).tolist() == [0.25, 0.0]
    found = measures(np.zeros(len(SUMS)))
    assert {name for name, value in found.items() if not np.isnan(value)} == {"decisions", "calls"}


def test_the_log_loss_of_a_base_rate_of_0_or_1_is_0() -> None:
    sums = np.zeros((3, len(SUMS)))
    sums[:, SUMS.index("decisions")] = 4.0
    sums[:, SUMS.index("rises")] = [0.0, 4.0, 1.0]
    expected = [0.0, 0.0, -0.25 * math.log(0.25) - 0.75 * math.log(0.75)]
    assert measures(sums)["log_loss_base"] == pytest.approx(expected)
    assert measures(sums)["brier_base"].tolist() == [0.0, 0.0, 0.1875]


@pytest.mark.parametrize("seed", range(20))
def test_the_measures_equal_plain_loops_over_the_decisions_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    rows = judged(rng, rng.randrange(1, 60), 7)
    order = np.array(rng.sample(range(len(rows.day)), len(rows.day)))
    found = measures(day_sums(rows.take(order), 7).sum(axis=0))
    listed = list(zip(rows.rose.tolist(), rows.call.tolist(), rows.plain_call.tolist(), strict=True))
    calls = [rose == (call > 0) for rose, call, _ in listed if call != 0]
    plain = [rose == (call > 0) for rose, _, call in listed if call != 0]
    assert found["calls"] == len(calls)
    for name, right in (("hit_rate", calls), ("hit_rate_plain", plain)):
        expected = sum(right) / len(right) if right else NAN
        assert float(found[name]) == pytest.approx(expected, nan_ok=True)
    base = sum(rows.rose.tolist()) / len(listed)
    assert float(found["brier_base"]) == pytest.approx(
        sum((base - rose) ** 2 for rose, *_ in listed) / len(listed)
    )
    for name in FORECASTS:
        pairs = [
            (stated, rose)
            for stated, rose in zip(getattr(rows, name).tolist(), rows.rose.tolist(), strict=True)
            if not math.isnan(stated)
        ]
        brier = sum((stated - rose) ** 2 for stated, rose in pairs) / len(pairs) if pairs else NAN
        logs = [-math.log(max(1e-6, stated if rose else 1.0 - stated)) for stated, rose in pairs]
        assert float(found[f"brier_{name}"]) == pytest.approx(brier, nan_ok=True)
        loss = sum(logs) / len(logs) if logs else NAN
        assert float(found[f"log_loss_{name}"]) == pytest.approx(loss, nan_ok=True, abs=2e-6)


def test_a_constant_forecast_of_the_base_rate_has_no_skill_and_is_calibrated() -> None:
    rose = np.array([True, True, True, False])
    constant = np.full(4, 0.75)
    rows = Judged(np.zeros(4, np.int64), rose, np.ones(4, np.int64), np.ones(4, np.int64), *(constant,) * 3)
    found = measures(day_sums(rows, 1)[0])
    for name in FORECASTS:
        assert float(found[f"skill_{name}"]) == 0.0
        assert float(found[f"log_loss_{name}"]) == pytest.approx(float(found["log_loss_base"]))
    table = reliability(bin_sums(rows.day, constant, rose, 1).sum(axis=0))
    assert calibration_error(table) == 0.0


def test_days_are_drawn_with_replacement_as_many_as_there_are_and_the_same_for_a_seed() -> None:
    drawn = draws(5, 200, 7)
    assert drawn.shape == (200, 5)
    assert (drawn.sum(axis=1) == 5).all()
    assert (drawn > 1).any()
    assert (drawn == 0).any()
    assert np.array_equal(drawn, draws(5, 200, 7))
    assert not np.array_equal(drawn, draws(5, 200, 8))
    assert drawn.mean(axis=0) == pytest.approx(np.ones(5), abs=0.2)


def test_drawn_histories_are_sums_of_whole_days_or_of_stretches_of_days() -> None:
    sums = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0], [8.0, 80.0], [16.0, 160.0]])
    drawn = draws(5, 50, 3)
    assert np.array_equal(resampled(sums, 1, 50, 3), drawn @ sums)
    stretches = np.array([[3.0, 30.0], [12.0, 120.0], [16.0, 160.0]])  # the last one is shorter
    assert np.array_equal(resampled(sums, 2, 50, 3), draws(3, 50, 3) @ stretches)
    deep = sums.reshape(5, 2, 1)
    assert np.array_equal(resampled(deep, 1, 50, 3)[:, :, 0], drawn @ sums)
    assert resampled(sums, 9, 4, 3).tolist() == [[31.0, 310.0]] * 4


def test_an_interval_holds_the_middle_of_the_values_and_leaves_out_what_is_missing() -> None:
    values = np.append(np.arange(101.0), NAN)
    assert interval(values, 0.9) == pytest.approx((5.0, 95.0))
    assert interval(values, 0.5) == pytest.approx((25.0, 75.0))
    assert all(map(math.isnan, interval(np.array([NAN, NAN]), 0.9)))


def test_the_interval_of_a_day_is_wider_than_that_of_single_decisions_where_a_day_moves_together() -> None:
    """Fifty decisions of a day that share their outcome are worth one."""
    days, each = 40, 50
    rng = random.Random(1)
    rose = np.repeat([rng.random() < 0.5 for _ in range(days)], each)
    day = np.repeat(np.arange(days), each)
    alone = np.arange(days * each)
    ones = np.ones(days * each, np.int64)
    half = np.full(days * each, 0.5)
    widths = []
    for unit, count in ((day, days), (alone, days * each)):
        sums = day_sums(Judged(unit, rose, ones, ones, half, half, half), count)
        low, high = interval(measures(resampled(sums, 1, 400, 5))["base_rate"], 0.95)
        widths.append(high - low)
    assert widths[0] > 4.0 * widths[1]


def test_a_bound_belongs_to_the_upper_bin_and_certainty_to_the_last() -> None:
    stated = np.array([0.0, 0.05, 0.1, 0.3, 0.7, 0.8999, 0.9, 1.0])
    assert bin_of(stated).tolist() == [0, 0, 1, 3, 7, 8, 9, 9]
    assert bin_of(np.arange(BINS) / BINS).tolist() == list(range(BINS))


def test_the_reliability_of_a_bin_is_its_mean_probability_and_its_share_of_rises() -> None:
    day = np.array([0, 1, 1, 1, 0])
    stated = np.array([0.42, 0.48, 0.91, NAN, 0.4])
    rose = np.array([True, False, True, True, False])
    sums = bin_sums(day, stated, rose, 2)
    assert sums.shape == (2, BINS, 3)
    assert sums[0, 4] == pytest.approx([2.0, 0.82, 1.0])
    assert sums[1, 4].tolist() == [1.0, 0.48, 0.0]
    assert sums[1, 9].tolist() == [1.0, 0.91, 1.0]
    assert sums.sum() == pytest.approx(4 + 0.42 + 0.48 + 0.91 + 0.4 + 2)
    table = reliability(sums.sum(axis=0))
    assert table.low.tolist() == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    assert table.high.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
    assert table.count.tolist() == [0, 0, 0, 0, 3, 0, 0, 0, 0, 1]
    assert table.stated[4] == pytest.approx(1.3 / 3)
    assert table.rose[4] == pytest.approx(1 / 3)
    assert np.isnan(table.stated[0])
    assert np.isnan(table.rose[0])
    assert calibration_error(table) == pytest.approx((3 * (1.3 / 3 - 1 / 3) + 0.09) / 4)


def test_without_a_decision_there_is_no_calibration_error() -> None:
    assert math.isnan(calibration_error(reliability(np.zeros((BINS, 3)))))
    one = np.array([0, 1])
    table = Reliability(np.zeros(2), np.ones(2), one, np.array([NAN, 0.2]), np.array([NAN, 1.0]))
    assert calibration_error(table) == pytest.approx(0.8)


def test_a_flip_is_a_change_from_one_cycle_to_the_very_next_of_the_same_key() -> None:
    #          key 0: a a b on days 0 1 2;  key 1: a b on days 0 2 (not the next);  key 2: b a on days 2 3
    key = np.array([1, 0, 0, 2, 0, 1, 2])
    day = np.array([2, 1, 0, 3, 2, 0, 2])
    state = np.array([1, 0, 0, 0, 1, 0, 1])
    followed, changed = flips(key, day, state, 5)
    assert followed.tolist() == [0, 1, 1, 1, 0]
    assert changed.tolist() == [0, 0, 1, 1, 0]


def test_a_day_that_is_full_is_scaled_down_and_one_that_is_not_keeps_its_cash() -> None:
    day = np.array([0, 0, 1, 1, 3])
    weight = np.array([0.2, -0.1, 1.5, 0.5, -0.5])
    result = np.array([0.1, 0.2, 0.1, -0.1, -0.02])
    found = equity(day, weight, result, 4, 2.0)
    assert found.gross == pytest.approx([0.3, 2.0, 0.0, 0.5])
    # day 0: (0.02 - 0.02) / 2; day 1: (0.15 - 0.05) scaled by half, on half of the capital; day 3: 0.01 / 2
    assert found.profit == pytest.approx([0.0, 0.025, 0.0, 0.005], abs=1e-15)
    assert found.curve == pytest.approx([0.0, 0.025, 0.025, 0.03], abs=1e-15)


def test_a_drawdown_is_measured_from_the_highest_point_so_far_which_is_at_least_the_start() -> None:
    assert drawdown(np.array([0.1, 0.3, 0.05, 0.2, -0.1, 0.5])) == pytest.approx(0.4)
    assert drawdown(np.array([-0.2, -0.1])) == pytest.approx(0.2)
    assert drawdown(np.array([0.1, 0.2, 0.2])) == 0.0


def test_the_leading_kind_has_the_most_weight_of_several_the_lowest() -> None:
    group = np.array([0, 0, 0, 1, 1, 2, 3, 3])
    kind = np.array([0, 1, 1, 1, 0, -1, 0, 1])
    weight = np.array([0.5, 0.3, 0.3, 0.4, 0.4, 9.0, 0.0, 0.0])
    assert leading(group, kind, weight, 5, 2).tolist() == [1, 0, -1, -1, -1]
    assert leading(group, np.full(8, -1), weight, 2, 0).tolist() == [-1, -1]


def test_the_mean_of_a_group_is_plain_and_missing_without_members() -> None:
    found = group_means(np.array([2, 0, 2, 2]), np.array([1.0, 0.5, -1.0, 0.3]), 4)
    assert found[0] == 0.5
    assert found[2] == pytest.approx(0.1)
    assert np.isnan(found[[1, 3]]).all()


def test_the_sums_name_every_column_once() -> None:
    assert len(set(SUMS)) == len(SUMS) == day_sums(FOUR, 3).shape[1]
    assert set(calibration.FORECASTS) <= set(Judged.__dataclass_fields__)
