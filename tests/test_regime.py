"""The regime detector (R151-R162, G18)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle_core.config import RegimeConfig
from oracle_core.market import returns
from oracle_core.regime import (
    MarketRegime,
    RegimeClassification,
    classify_from_indicators,
    classify_regime,
    compute_ema,
    no_regimes,
    regimes,
)
from tests.strategies import NAN, Bar, World

UNCERTAINTY = MarketRegime.UNCERTAINTY


def moves_of(closes: list[float]) -> list[float]:
    table: Any = returns(np.array([closes]))
    return [float(value) for value in table[0]]


def classified(closes: list[Any], config: RegimeConfig | None = None) -> RegimeClassification:
    clean = [c for c in closes if c is not None and np.isfinite(c)]
    return classify_regime(closes, moves_of(clean), config)


def closes_of(moves: list[float]) -> list[float]:
    closes = [100.0]
    for move in moves:
        closes.append(closes[-1] * (1.0 + move))
    return closes


CALM_THEN_WILD = [0.01, -0.01] * 40 + [0.02, -0.02] * 10
RISING = [100.0 + 0.1 * n for n in range(120)]


def test_r151_the_four_regimes() -> None:
    assert [r.value for r in MarketRegime] == ["trend_following", "panic", "mean_reversion", "uncertainty"]


def test_r152_indicator_is_the_sign_of_the_short_over_the_long_average() -> None:
    assert compute_ema(RISING, 20) == pytest.approx(111.092, abs=1e-3)
    assert compute_ema(RISING, 100) == pytest.approx(107.633, abs=1e-3)
    assert classified(RISING).trend_indicator == 1.0
    assert classified(RISING[::-1]).trend_indicator == -1.0


def test_r152_a_gap_within_half_a_percent_is_flat() -> None:
    """G18: R = 0 would otherwise have probability 0 and mean reversion never occur (C27)."""
    flat = closes_of([0.01, -0.0099] * 60)
    assert classified(flat).trend_indicator == 0.0
    assert classified(flat, RegimeConfig(flat_tolerance=0.0)).trend_indicator != 0.0


def test_r152_the_flat_band_includes_its_edge() -> None:
    """Averages 3 and 2, a gap of exactly one half."""
    config = RegimeConfig(ema_short_period=1, ema_long_period=3, vol_short_period=2, vol_long_period=3)
    edge, inside = (config.model_copy(update={"flat_tolerance": value}) for value in (0.5, 0.499))
    assert classify_regime([1.0, 1.0, 3.0], [0.1, 0.2, 0.4], edge).trend_indicator == 0.0
    assert classify_regime([1.0, 1.0, 3.0], [0.1, 0.2, 0.4], inside).trend_indicator == 1.0


def test_r153_volatility_ratio_is_a_ratio_of_population_sigmas() -> None:
    """Sample sigmas would give 1.61408."""
    found = classified(closes_of(CALM_THEN_WILD))
    assert found.volatility_ratio == pytest.approx(1.58114, abs=1e-5)


@pytest.mark.parametrize(("count", "known"), [(99, False), (100, True)])
def test_r154_at_least_100_closes(count: int, *, known: bool) -> None:
    found = classified(RISING[-count:])
    assert (found.regime is UNCERTAINTY) is not known
    assert bool(np.isfinite(found.volatility_ratio)) is known
    assert found.trend_indicator == (1.0 if known else 0.0)


def test_r154_a_ratio_needs_20_returns_for_the_short_sigma() -> None:
    assert classify_regime(RISING, moves_of(RISING)[-19:]).regime is UNCERTAINTY
    assert classify_regime(RISING, moves_of(RISING)[-20:]).regime is not UNCERTAINTY


def test_r155_defaults() -> None:
    config = RegimeConfig()
    assert (config.ema_short_period, config.ema_long_period) == (20, 100)
    assert (config.vol_short_period, config.vol_long_period) == (20, 100)
    assert (config.panic_vol_ratio, config.trend_vol_ratio, config.mean_reversion_vol_ratio) == (
        1.5,
        1.2,
        1.0,
    )
    assert (config.default_threshold, config.panic_threshold) == (0.15, 0.10)
    assert (config.mean_reversion_threshold, config.uncertainty_contradiction_multiplier) == (0.20, 0.6)


@pytest.mark.parametrize(
    ("indicators", "threshold"),
    [((-1.0, 1.6), 0.10), ((0.0, 0.9), 0.20), ((1.0, 1.0), 0.15), ((0.0, 1.5), 0.15)],
)
def test_r156_thresholds(indicators: tuple[float, float], threshold: float) -> None:
    found = classify_from_indicators(*indicators)
    assert (found.bullish_threshold, found.bearish_threshold) == (threshold, -threshold)


@pytest.mark.parametrize(
    ("indicators", "multiplier"),
    [((-1.0, 1.6), 0.4), ((0.0, 0.9), 0.4), ((1.0, 1.0), 0.4), ((0.0, 1.5), 0.6)],
)
def test_r157_penalty(indicators: tuple[float, float], multiplier: float) -> None:
    """Contradiction .5 costs .2, .3 under uncertainty."""
    assert classify_from_indicators(*indicators).contradiction_penalty_multiplier == multiplier


def test_r158_no_volatility_is_uncertainty() -> None:
    for closes in ([100.0] * 130, [*closes_of([0.02, -0.01] * 50), *[150.0] * 30]):
        found = classified(closes)
        assert found.regime is UNCERTAINTY
        assert np.isnan(found.volatility_ratio)
        assert found.trend_indicator == 0.0


def test_r159_no_market_data_is_uncertainty_with_default_thresholds() -> None:
    found = classify_regime([], [])
    assert (found.regime, found.trend_indicator) == (UNCERTAINTY, 0.0)
    assert (found.bullish_threshold, found.contradiction_penalty_multiplier) == (0.15, 0.6)


def test_r160_gaps_are_dropped() -> None:
    gappy: list[float | None] = []
    for n, close in enumerate(RISING):
        gappy += [close] if n % 7 else [None, close, NAN]
    assert classified(gappy) == classified(RISING)


def test_r161_exponential_average_seeded_with_the_first_of_the_last_values() -> None:
    assert compute_ema([1, 2, 3], 3) == 2.25
    assert compute_ema([9.0, 9.0, 1.0, 2.0, 3.0], 3) == 2.25
    assert compute_ema([1.0, NAN, 2.0, 3.0], 3) == 2.25
    assert compute_ema([5.0], 20) == 5.0
    assert np.isnan(compute_ema([], 20))


@pytest.mark.parametrize(
    ("trend", "ratio", "expected"),
    [
        (-1, 1.6, "panic"),
        (-1, 1.5, "uncertainty"),
        (1, 1.6, "uncertainty"),
        (1, 1.19, "trend_following"),
        (-1, 1.19, "trend_following"),
        (1, 1.2, "uncertainty"),
        (-1, 1.2, "uncertainty"),
        (0, 0.99, "mean_reversion"),
        (0, 1.0, "uncertainty"),
        (0, 1.6, "uncertainty"),
        (0, None, "uncertainty"),
        (1, 0.85, "trend_following"),
    ],
)
def test_r162_classification(trend: int, ratio: float | None, expected: str) -> None:
    assert classify_from_indicators(trend, ratio).regime.value == expected


def test_r162_panic_from_closes() -> None:
    """A fall in which volatility doubles."""
    found = classified(closes_of([0.01, -0.01] * 40 + [-0.06, 0.02] * 10))
    assert (found.regime, found.trend_indicator) == (MarketRegime.PANIC, -1.0)


def test_regimes_of_many_entities_are_those_of_each_alone() -> None:
    series = {"a": closes_of(CALM_THEN_WILD), "b": RISING, "c": RISING[:99], "e": [100.0] * 150}
    bars = tuple(
        Bar(name, len(closes) - n, close) for name, closes in series.items() for n, close in enumerate(closes)
    )
    world = World(bars=bars, entities=("d",))
    found = regimes(world.inputs().bars, 5, RegimeConfig())
    alone = {name: classified(closes) for name, closes in series.items()} | {"d": classify_regime([], [])}
    for i, name in enumerate(world.names()):
        assert list(MarketRegime)[found.regime[i]] is alone[name].regime
        assert found.trend_indicator[i] == alone[name].trend_indicator
        assert found.threshold[i] == alone[name].bullish_threshold
        assert found.penalty[i] == alone[name].contradiction_penalty_multiplier
        assert found.volatility_ratio[i] == pytest.approx(
            alone[name].volatility_ratio, abs=1e-12, nan_ok=True
        )


def test_periods_are_those_of_the_configuration() -> None:
    short = RegimeConfig(ema_short_period=2, ema_long_period=5, vol_short_period=3, vol_long_period=6)
    closes = closes_of([0.01, 0.03, 0.02, 0.05, 0.04, 0.01])
    bars = tuple(Bar("a", len(closes) - n, close) for n, close in enumerate(closes))
    found = regimes(World(bars=bars).inputs().bars, 1, short)
    assert found.volatility_ratio[0] == pytest.approx(1.140175, abs=1e-6)
    assert found.trend_indicator[0] == 1.0
    long = RegimeConfig(ema_short_period=2, ema_long_period=8, vol_short_period=3, vol_long_period=6)
    assert np.isnan(regimes(World(bars=bars).inputs().bars, 1, long).volatility_ratio[0])


def test_the_heuristic_mode_knows_no_regime() -> None:
    found = no_regimes(World(bars=(Bar("a", 1, 100.0),)).inputs().bars, 1, RegimeConfig())
    assert found.regime.tolist() == [-1]
    for name in ("trend_indicator", "volatility_ratio", "threshold", "penalty"):
        assert np.isnan(getattr(found, name)).all(), name
