"""Market regimes: indicators from closes, their classification, and what a regime changes (R151-R162, G18).

How a trend uses the thresholds belongs in ``trend``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from oracle_core.config import RegimeConfig
from oracle_core.enums import MarketRegime, codes
from oracle_core.inputs import BarRows, Columns, Float, Int
from oracle_core.market import known_sigma, returns, row_sigma, series

__all__ = [
    "MarketRegime",
    "RegimeClassification",
    "RegimeConfig",
    "Regimes",
    "classify",
    "classify_from_indicators",
    "classify_regime",
    "compute_ema",
    "direction_thresholds",
    "indicators",
    "no_regimes",
    "regimes",
]

REGIMES = codes(MarketRegime)


@dataclass(frozen=True, slots=True, eq=False)
class Regimes(Columns):
    """One row per entity; ``regime`` is a code of MarketRegime, -1 in the mode that has none.

    ``threshold`` is the distance from 1/2 (of a probability) at which a direction begins, ``penalty`` the
    share of the contradiction taken off the confidence. ``volatility_ratio`` is NaN where it is unknown.
    """

    regime: Int
    trend_indicator: Float
    volatility_ratio: Float
    threshold: Float
    penalty: Float


@dataclass(frozen=True)
class RegimeClassification:
    """Regime of one entity (R155-R157); ``volatility_ratio`` is NaN where it is unknown."""

    regime: MarketRegime
    trend_indicator: float
    volatility_ratio: float
    bullish_threshold: float
    bearish_threshold: float
    contradiction_penalty_multiplier: float


def ema(table: Float) -> Float:
    """Exponential moving average along each row, seeded with the first column, alpha = 2 / (n + 1).

    Implements: R161.
    """
    alpha = 2.0 / (table.shape[1] + 1.0)
    average = table[:, 0].copy()
    for column in table.T[1:]:
        average += alpha * (column - average)
    return average


def compute_ema(values: Sequence[float], period: int) -> float:
    """Exponential moving average over the last ``period`` values; missing ones are dropped; NaN without any.

    >>> compute_ema([1.0, 2.0, 3.0], 3)
    2.25
    """
    listed = np.array(values, np.float64)
    listed = listed[np.isfinite(listed)][-period:]
    return float(ema(listed[np.newaxis])[0]) if len(listed) > 0 else np.nan


def direction_thresholds(config: RegimeConfig) -> Float:
    """Distance from 1/2 (of a probability) at which a direction begins, by code of the regime.

    Implements: R156.
    """
    threshold = np.full(len(REGIMES), config.default_threshold)
    threshold[REGIMES[MarketRegime.PANIC]] = config.panic_threshold
    threshold[REGIMES[MarketRegime.MEAN_REVERSION]] = config.mean_reversion_threshold
    return threshold


def classify(trend: Float, ratio: Float, config: RegimeConfig) -> Regimes:
    """Regime of each (trend indicator, volatility ratio); NaN ratio means unknown.

    panic where R < 0 and V_r > 1.5; trend_following where R is not 0 and V_r < 1.2; mean_reversion where R is
    0 and V_r < 1.0; uncertainty otherwise.

    Implements: R158, R159, R162.
    """
    regime = np.full(len(trend), REGIMES[MarketRegime.UNCERTAINTY])
    regime[(trend == 0.0) & (ratio < config.mean_reversion_vol_ratio)] = REGIMES[MarketRegime.MEAN_REVERSION]
    regime[(trend != 0.0) & (ratio < config.trend_vol_ratio)] = REGIMES[MarketRegime.TREND_FOLLOWING]
    regime[(trend < 0.0) & (ratio > config.panic_vol_ratio)] = REGIMES[MarketRegime.PANIC]
    return Regimes(
        regime, trend, ratio, direction_thresholds(config)[regime], contradiction_penalties(config)[regime]
    )


def contradiction_penalties(config: RegimeConfig) -> Float:
    """Share of the contradiction that is taken off the confidence, by code of the regime.

    Implements: R157.
    """
    penalty = np.full(len(REGIMES), config.default_contradiction_multiplier)
    penalty[REGIMES[MarketRegime.UNCERTAINTY]] = config.uncertainty_contradiction_multiplier
    return penalty


def regimes_of(regime: Int, ratio: Float, config: RegimeConfig) -> Regimes:
    """What regimes found before change; NaN where the code is -1. The trend indicator is unknown."""
    none = regime < 0
    threshold = np.where(none, np.nan, direction_thresholds(config)[regime])
    penalty = np.where(none, np.nan, contradiction_penalties(config)[regime])
    return Regimes(regime, np.full(len(regime), np.nan), ratio, threshold, penalty)


def classify_from_indicators(
    trend_indicator: float, volatility_ratio: float | None, config: RegimeConfig | None = None
) -> RegimeClassification:
    """Classify one pair of indicators; see :func:`classify`. A ratio of None is unknown."""
    ratio = np.nan if volatility_ratio is None else volatility_ratio
    found = classify(np.array([float(trend_indicator)]), np.array([ratio]), config or RegimeConfig())
    return _single(found)


def indicators(closes: Float, daily_returns: Float, config: RegimeConfig) -> tuple[Float, Float]:
    """Trend indicator R and volatility ratio V_r of each row.

    R is the sign of the short average over the long one, 0 inside the flat band (G18). Both need
    ``ema_long_period`` closes; V_r needs ``vol_short_period`` returns and takes up to ``vol_long_period``.

    Args:
        closes: at least ``ema_long_period`` columns, newest last, NaN on the left where there are fewer.
        daily_returns: ``vol_long_period`` columns, likewise.
        config: periods and the flat band.

    Returns:
        R in {-1, 0, 1} and V_r; 0 and NaN where either is unknown, a sigma being 0 included.

    Implements: R152, R153, R154.

    """
    long_average = ema(closes[:, -config.ema_long_period :])
    gap = ema(closes[:, -config.ema_short_period :]) / long_average - 1.0
    trend = np.where(np.abs(gap) <= config.flat_tolerance, 0.0, np.sign(gap))
    short = row_sigma(daily_returns[:, -config.vol_short_period :])
    long = known_sigma(daily_returns)
    # The long window holds the short one, so it has a sigma where that has.
    known = np.isfinite(trend) & (short > 0.0)
    return np.where(known, trend, 0.0), short / np.where(known, long, np.nan)


def regimes(bars: BarRows, entities: int, config: RegimeConfig) -> Regimes:
    """Regime of every entity from the bars known at the moment looked at."""
    ordered = series(bars, entities)
    closes = ordered.tail(ordered.bars.close, max(config.ema_long_period, config.vol_long_period + 1))
    return classify(*indicators(closes, returns(closes)[:, -config.vol_long_period :], config), config)


def no_regimes(bars: BarRows, entities: int, config: RegimeConfig) -> Regimes:  # noqa: ARG001
    """The heuristic mode knows no regimes: code -1 and NaN."""
    unused = np.full(entities, np.nan)
    return Regimes(np.full(entities, -1), unused, unused, unused, unused)


def classify_regime(
    closing_prices: Sequence[float | None],
    daily_returns: Sequence[float | None],
    config: RegimeConfig | None = None,
) -> RegimeClassification:
    """Regime from one history of closes and returns, oldest first; missing values are dropped.

    Implements: R151, R155, R160.
    """
    settings = config or RegimeConfig()
    closes = _right_aligned(closing_prices, settings.ema_long_period)
    moves = _right_aligned(daily_returns, settings.vol_long_period)
    return _single(classify(*indicators(closes, moves, settings), settings))


def _right_aligned(values: Sequence[float | None], width: int) -> Float:
    """One row of the last ``width`` values that are numbers, NaN on the left where there are fewer."""
    listed = np.array(values, np.float64)
    listed = listed[np.isfinite(listed)][-width:]
    row = np.full(width, np.nan)
    row[width - len(listed) :] = listed
    return row[np.newaxis]


def _single(found: Regimes) -> RegimeClassification:
    return RegimeClassification(
        regime=list(MarketRegime)[int(found.regime[0])],
        trend_indicator=float(found.trend_indicator[0]),
        volatility_ratio=float(found.volatility_ratio[0]),
        bullish_threshold=float(found.threshold[0]),
        bearish_threshold=-float(found.threshold[0]),
        contradiction_penalty_multiplier=float(found.penalty[0]),
    )
