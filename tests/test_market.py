"""Market figures and forward returns (decisions 1 and 2, R160, R176)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle_core.inputs import US_PER_DAY, US_PER_HOUR
from oracle_core.market import figures, forward_returns, known_sigma, market_context, row_sigma, volatility
from tests.strategies import AS_OF_DAY, AS_OF_US, NAN, Bar, World

HORIZON_US = 7 * US_PER_DAY
PERIOD = 20


def closes_of(moves: list[float]) -> list[float]:
    """Closes from 100 on with these returns."""
    closes = [100.0]
    for move in moves:
        closes.append(closes[-1] * (1.0 + move))
    return closes


def bars(closes: list[float], volumes: list[float] | None = None, entity: str = "a") -> tuple[Bar, ...]:
    """Daily bars that end on the newest complete day."""
    last = len(closes)
    return tuple(
        Bar(entity, last - n, close, volumes[n] if volumes else 1000.0) for n, close in enumerate(closes)
    )


def figures_of(*rows: Bar) -> Any:  # noqa: ANN401
    world = World(bars=rows)
    return figures(world.inputs().bars, len(world.names()), PERIOD)


def test_volatility_is_the_population_sigma_of_the_last_20_returns_in_percent() -> None:
    """One of 3 %, ten of +1 % and nine of -1 %: 1.16619 %; the older return of 50 % is not among them."""
    rows = bars(closes_of([0.5, 0.03, 0.01, *[-0.01, 0.01] * 9]), [*[100.0] * 21, 150.0])
    assert figures_of(*rows).volatility_pct[0] == pytest.approx(1.16619, abs=1e-5)
    world = World(bars=rows)
    assert volatility(world.inputs().bars, 1)[0] == pytest.approx(0.0116619, abs=1e-7)
    context = market_context(world.inputs().bars, 1)
    assert context.volatility[0] == pytest.approx(1.16619, abs=1e-5)
    assert context.volume_change_pct[0] == pytest.approx(50.0)
    assert context.price_change_pct[0] == pytest.approx(1.0)


@pytest.mark.parametrize(("returns", "known"), [(19, False), (20, True)])
def test_fewer_than_20_returns_are_no_volatility(returns: int, *, known: bool) -> None:
    rows = bars(closes_of([0.01, -0.01] * 10)[: returns + 1])
    assert bool(np.isfinite(figures_of(*rows).volatility_pct[0])) is known


def test_price_change_is_the_last_return_and_needs_two_bars() -> None:
    assert figures_of(*bars([100.0, 80.0, 100.0])).price_change_pct[0] == pytest.approx(25.0)
    assert np.isnan(figures_of(*bars([100.0])).price_change_pct[0])


def test_volume_change_is_against_the_mean_of_the_20_days_before_the_last() -> None:
    volumes = [9e9] + [90.0, 110.0] * 10 + [150.0]
    found = figures_of(*bars([100.0] * 22, volumes))
    assert found.volume_change_pct[0] == pytest.approx(50.0)
    assert np.isnan(figures_of(*bars([100.0] * 20, volumes[2:])).volume_change_pct[0])
    assert np.isnan(figures_of(*bars([100.0] * 21, [0.0] * 20 + [5.0])).volume_change_pct[0])


def test_z_scores_leave_the_last_value_out_of_their_window() -> None:
    """C29: against the 20 values before, so 17/9 and 2.25 are possible and no ceiling applies."""
    found = figures_of(
        *bars(closes_of([0.03, 0.01] * 10 + [0.02 + 0.017 / 0.9]), [100.0] + [90.0, 110.0] * 10 + [122.5])
    )
    assert found.return_z[0] == pytest.approx(1.88889, abs=1e-5)
    assert found.volume_z[0] == pytest.approx(2.25)


def test_z_scores_need_21_returns_and_a_sigma() -> None:
    """R176: sigma 0 has no z-score; a missing volume takes only the volume's."""
    short = figures_of(*bars(closes_of([0.01, -0.01] * 10)))
    assert np.isnan(short.return_z[0])
    flat = figures_of(*bars([100.0] * 22, [90.0, 110.0] * 11))
    assert np.isnan(flat.return_z[0])
    assert flat.volatility_pct[0] == 0.0
    missing = figures_of(*bars(closes_of([0.01, -0.01] * 10 + [0.03]), [90.0, 110.0] * 10 + [NAN, 100.0]))
    assert np.isfinite(missing.return_z[0])
    assert np.isnan(missing.volume_z[0])
    still = figures_of(*bars(closes_of([0.01, -0.01] * 10 + [0.03]), [0.1] * 22))
    assert np.isnan(still.volume_z[0])


def test_equal_values_have_exactly_no_sigma() -> None:
    """A sum of twenty times 0.1 is not 2, so the naive sigma would be dust and its z-score noise."""
    table = np.full((2, 20), 0.1)
    table[1, 0] = 0.2
    assert row_sigma(table)[0] == 0.0
    assert row_sigma(table)[1] == pytest.approx(0.0217944947, abs=1e-9)


def test_sigma_of_what_is_there() -> None:
    table = np.array([[NAN, 1.0, 3.0], [NAN, NAN, NAN], [NAN, 2.0, 2.0], [1.0, 2.0, 6.0]])
    found = known_sigma(table)
    assert found[[0, 2]].tolist() == [1.0, 0.0]
    assert np.isnan(found[1])
    assert found[3] == pytest.approx(2.160246899)
    with np.errstate(all="raise"):
        assert known_sigma(np.array([[5.0, 5.0], [1.0, 5.0]])).tolist() == [0.0, 2.0]
        assert np.isnan(known_sigma(np.array([[NAN, NAN], [1.0, 5.0]]))).tolist() == [True, False]
    wide = np.full((2, 23), 0.1)
    wide[:, :3] = NAN
    wide[1, 5] = 0.3
    assert known_sigma(wide)[0] == 0.0, "no dust"
    assert known_sigma(wide)[1] == pytest.approx(0.0435889894)


def test_r160_bars_without_a_usable_close_are_dropped() -> None:
    clean = closes_of([0.01, -0.02] * 11)
    expected = figures_of(*bars(clean))
    gappy: list[float] = []
    for close in clean:
        gappy += [NAN, close, 0.0, -5.0, float("inf")]
    dirty = figures_of(*bars(gappy))
    assert dirty.volatility_pct[0] == expected.volatility_pct[0]
    assert dirty.price_change_pct[0] == expected.price_change_pct[0]


def test_an_entity_without_bars_has_no_figures_and_leaves_the_others_alone() -> None:
    world = World(bars=bars(closes_of([0.01, -0.01] * 11), entity="b"), entities=("a", "c"))
    found = figures(world.inputs().bars, 3, PERIOD)
    assert np.isnan(found.volatility_pct).tolist() == [True, False, True]
    assert np.isnan(found.price_change_pct).tolist() == [True, False, True]


# ------------------------------------------------------------------------------------- forward returns


def moved(rows: tuple[Bar, ...], start_us: int, as_of_us: int = AS_OF_US, entity: int = 0) -> float:
    inputs = World(bars=rows, entities=("a", "b")).inputs()
    found = forward_returns(inputs.bars, np.array([entity]), np.array([start_us]), HORIZON_US, as_of_us)
    return float(found[0])


def test_forward_return_is_the_close_known_a_horizon_later_over_the_one_known_at_the_start() -> None:
    """A bar of day D is known from D + 1 00:00 on, to the microsecond."""
    rows = (Bar("a", 20, 0.5), Bar("a", 19, 1.0), Bar("a", 12, 1.1))
    known = (AS_OF_DAY - 19 + 1) * US_PER_DAY
    assert moved(rows, known) == pytest.approx(0.10)
    assert moved(rows, known - 1) == pytest.approx(1.0)
    assert moved(rows, known + 5 * US_PER_HOUR) == pytest.approx(0.10)


def test_forward_return_must_be_settled() -> None:
    rows = (Bar("a", 19, 100.0), Bar("a", 2, 110.0))
    start = AS_OF_US - HORIZON_US
    assert moved(rows, start) == pytest.approx(0.10)
    assert np.isnan(moved(rows, start + 1))


def test_forward_return_needs_two_different_bars() -> None:
    """No newer bar within the horizon is "not settled", not a return of 0; equal closes are a return of 0."""
    start = AS_OF_US - 10 * US_PER_DAY
    assert np.isnan(moved((Bar("a", 19, 100.0),), start))
    assert moved((Bar("a", 19, 100.0), Bar("a", 5, 100.0)), start) == 0.0


def test_forward_return_needs_a_bar_at_the_start() -> None:
    rows = (Bar("a", 5, 100.0), Bar("a", 4, 110.0))
    assert np.isnan(moved(rows, AS_OF_US - 10 * US_PER_DAY))
    assert np.isnan(moved((), AS_OF_US - 10 * US_PER_DAY))


def test_of_the_known_bars_the_newest_day_counts() -> None:
    """A bar of an old day that becomes known late does not replace a newer day known before it."""
    rows = (
        Bar("a", 30, 10.0, known_late_hours=24.0 * 15),
        Bar("a", 20, 100.0),
        Bar("a", 12, 120.0, known_late_hours=24.0 * 5),
        Bar("a", 10, 130.0),
    )
    assert moved(rows, AS_OF_US - 16 * US_PER_DAY) == pytest.approx(0.30)
    assert moved(rows, AS_OF_US - 14 * US_PER_DAY) == pytest.approx(0.30)
    assert moved(rows[::-1], AS_OF_US - 16 * US_PER_DAY) == pytest.approx(0.30)


def test_bars_that_become_known_in_another_order_than_their_days() -> None:
    """Day 20 arrives before day 25: at that time it is the newest, and stays so when day 25 arrives."""
    rows = (
        Bar("a", 25, 50.0, known_late_hours=24.0 * 9),
        Bar("a", 20, 100.0),
        Bar("a", 18, 80.0, known_late_hours=24.0 * 30),
        Bar("a", 12, 120.0),
        Bar("b", 21, 1.0),
    )
    for order in (rows, rows[::-1]):
        assert moved(order, AS_OF_US - 18 * US_PER_DAY) == pytest.approx(0.20)
        assert moved(order, AS_OF_US - 15 * US_PER_DAY) == pytest.approx(0.20)
        assert np.isnan(moved(order, AS_OF_US - 22 * US_PER_DAY))


def test_forward_returns_keep_entities_apart() -> None:
    rows = (Bar("a", 20, 100.0), Bar("a", 12, 110.0), Bar("b", 20, 100.0), Bar("b", 12, 50.0))
    start = AS_OF_US - 15 * US_PER_DAY
    assert moved(rows, start, entity=0) == pytest.approx(0.10)
    assert moved(rows, start, entity=1) == pytest.approx(-0.50)
    assert np.isnan(moved(rows[:2], start, entity=1))
    assert np.isnan(moved(rows[2:], start, entity=0))
