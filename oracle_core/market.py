"""Market figures of entities from daily bars: context, volatility, z-scores, forward returns.

All figures are NaN where the bars do not give them. Closes that are missing, infinite or not positive are
dropped with their bar (R160). Sums run column by column in a fixed order, so an entity's figures do not
depend on the others in the batch. What a figure means for a signal or a trend is not decided here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle_core.arrays import ascending, bisect, ranges
from oracle_core.frames import MarketContext
from oracle_core.inputs import BarRows, Columns, Float, Int


@dataclass(frozen=True, slots=True, eq=False)
class MarketFigures(Columns):
    """Figures of the newest bar, one row per entity; percentages in percent, z-scores in sigmas.

    ``volatility_pct`` is the population sigma of the last ``period`` daily returns. ``return_z`` compares the
    last return with the ``period`` before it, ``volume_z`` likewise; NaN where the sigma is 0 or values lack.
    """

    volatility_pct: Float
    volume_change_pct: Float
    price_change_pct: Float
    return_z: Float
    volume_z: Float


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Bars sorted by (entity, day) with the range of each entity."""

    bars: BarRows
    offsets: Int

    def tail(self, values: Float, length: int) -> Float:
        """Last ``length`` values of each entity, right-aligned, NaN where there are fewer; newest last."""
        last = np.minimum(np.diff(self.offsets), length)
        owner, rows = ranges(self.offsets[1:] - last, last)
        table = np.full((len(last), length), np.nan)
        table[owner, length - (self.offsets[1:][owner] - rows)] = values[rows]
        return table


def sorted_bars(bars: BarRows) -> BarRows:
    """Bars with a usable close, by entity and day."""
    usable = bars.take(np.isfinite(bars.close) & (bars.close > 0.0))
    return usable.take(ascending(usable.entity, usable.day))


def series(bars: BarRows, entities: int) -> Series:
    """The usable bars of every entity code."""
    ordered = sorted_bars(bars)
    return Series(ordered, np.searchsorted(ordered.entity, np.arange(entities + 1)))


def row_mean(table: Float) -> Float:
    """Mean of each row, columns added from the left; NaN if any is missing."""
    total = np.zeros(len(table))
    for column in range(table.shape[1]):
        total += table[:, column]
    return np.divide(total, table.shape[1])


def row_sigma(table: Float) -> Float:
    """Population sigma of each row; exactly 0 where all values are equal; NaN if any is missing."""
    mean = row_mean(table)
    sigma = np.sqrt(row_mean((table - mean[:, None]) ** 2))
    return np.where(np.ptp(table, axis=1) == 0.0, 0.0, sigma)


def known_sigma(table: Float) -> Float:
    """Population sigma of the values of each row that are there; NaN where there is none."""
    there = ~np.isnan(table)
    count = np.where(there.any(axis=1), there.sum(axis=1), np.nan)
    width = table.shape[1]
    mean = row_mean(np.where(there, table, 0.0)) * width / count
    spread = row_mean(np.where(there, (table - mean[:, None]) ** 2, 0.0)) * width / count
    high = np.max(np.where(there, table, -np.inf), axis=1)
    low = np.min(np.where(there, table, np.inf), axis=1)
    return np.where(high == low, 0.0, np.sqrt(spread))


def returns(closes: Float) -> Float:
    """Simple returns between neighbouring columns."""
    return closes[:, 1:] / closes[:, :-1] - 1.0


def figures(bars: BarRows, entities: int, period: int) -> MarketFigures:
    """Market figures of every entity (decisions 1).

    Args:
        bars: bars known at the moment looked at.
        entities: number of entity codes.
        period: returns behind the volatility and values behind a z-score.

    """
    known = series(bars, entities)
    change = returns(known.tail(known.bars.close, period + 2))
    volumes = known.tail(known.bars.volume, period + 1)
    usual = row_mean(volumes[:, :-1])
    return MarketFigures(
        volatility_pct=100.0 * row_sigma(change[:, 1:]),
        volume_change_pct=100.0 * (_quotient(volumes[:, -1], usual) - 1.0),
        price_change_pct=100.0 * change[:, -1],
        return_z=_quotient(change[:, -1] - row_mean(change[:, :-1]), row_sigma(change[:, :-1])),
        volume_z=_quotient(volumes[:, -1] - usual, row_sigma(volumes[:, :-1])),
    )


def volatility(bars: BarRows, entities: int, period: int = 20) -> Float:
    """Population sigma of the last ``period`` daily returns of every entity, as a fraction; NaN if fewer."""
    known = series(bars, entities)
    return row_sigma(returns(known.tail(known.bars.close, period + 1)))


def market_context(bars: BarRows, entities: int, period: int = 20) -> MarketContext:
    """Volatility, volume change and price change of every entity in percent."""
    found = figures(bars, entities, period)
    return MarketContext(found.volatility_pct, found.volume_change_pct, found.price_change_pct)


def forward_returns(bars: BarRows, entity: Int, t_us: Int, horizon_us: int, as_of_us: int) -> Float:
    """Return of each entity over the horizon that starts at each time (decisions 2).

    The close known at ``t + horizon`` over the close known at ``t``, minus 1. A bar is known at t when its
    known time is not after t; of several the newest day counts.

    Args:
        bars: all bars known at ``as_of_us``.
        entity: entity codes, any order.
        t_us: start times.
        horizon_us: length in microseconds.
        as_of_us: moment by which the return must be settled.

    Returns:
        NaN where ``t + horizon > as_of``, no bar is known at t, or no newer day is known at the end.

    """
    result = np.full(len(entity), np.nan)
    ordered = sorted_bars(bars)
    by_known = ascending(ordered.entity, ordered.known_us)
    known_us = ordered.known_us[by_known]
    # Rows are numbered by (entity, day), so a running maximum never reaches back into another entity.
    newest = np.maximum.accumulate(by_known)
    settled = np.flatnonzero(t_us <= as_of_us - horizon_us)
    who, start_us = entity[settled], t_us[settled]
    first = np.searchsorted(ordered.entity, who)
    end = np.searchsorted(ordered.entity, who, side="right")
    begin = bisect(known_us, first, end, start_us)
    finish = bisect(known_us, first, end, start_us + horizon_us)
    held = begin > first
    begin, finish, settled = newest[begin[held] - 1], newest[finish[held] - 1], settled[held]
    differ = begin != finish
    close = ordered.close
    result[settled[differ]] = close[finish[differ]] / close[begin[differ]] - 1.0
    return result


def _quotient(numerator: Float, denominator: Float) -> Float:
    """Quotient, NaN where the denominator is 0 or anything is missing."""
    safe = np.where(denominator == 0.0, np.nan, denominator)
    return numerator / safe
