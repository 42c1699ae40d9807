"""Membership of rows in the five trend windows (R1, R2); weights and layers do not belong here."""

from __future__ import annotations

import numpy as np

from oracle_core.arrays import ranges
from oracle_core.enums import Window, codes
from oracle_core.inputs import US_PER_DAY, US_PER_HOUR, Bool, Int, Keys

LOOKBACK_US: dict[Window, int] = {
    Window.INTRADAY: 12 * US_PER_HOUR,
    Window.ONE_DAY: US_PER_DAY,
    Window.SEVEN_DAYS: 7 * US_PER_DAY,
    Window.THIRTY_DAYS: 30 * US_PER_DAY,
    Window.NINETY_DAYS: 90 * US_PER_DAY,
}
"""Lookback of each window in microseconds (R1)."""

WINDOW_CODES = codes(Window)
LOOKBACKS_US: Int = np.array([LOOKBACK_US[window] for window in Window], np.int64)
"""The lookbacks by window code."""


def in_window(time_us: Int, as_of_us: int, window: Int) -> Bool:
    """Whether ``0 <= as_of - time < lookback`` (decisions 1).

    Args:
        time_us: times in microseconds.
        as_of_us: the moment looked at.
        window: window codes, broadcast against ``time_us``.

    Implements: R1.

    """
    age = as_of_us - time_us
    return (age >= 0) & (age < LOOKBACKS_US[window])


def window_start_us(window: Window, as_of_us: int) -> int:
    """The moment a window starts; a row at exactly this moment is outside (R1)."""
    return as_of_us - LOOKBACK_US[window]


def members(entity: Int, time_us: Int, entities: int, keys: Keys, as_of_us: int) -> tuple[Int, Int]:
    """Rows inside the window of each key.

    Args:
        entity: entity codes of the rows, sorted; within an entity newest first.
        time_us: their times.
        entities: number of entity codes.
        keys: the keys asked for.
        as_of_us: the moment looked at.

    Returns:
        Key position and row of every member, in key order, rows in their own order.

    """
    first = np.searchsorted(entity, np.arange(entities)) + np.bincount(
        entity[time_us > as_of_us], minlength=entities
    )
    lengths = np.zeros((len(Window), entities), np.int64)
    for code in range(len(Window)):
        inside = in_window(time_us, as_of_us, np.int64(code))  # type: ignore[arg-type]
        lengths[code] = np.bincount(entity[inside], minlength=entities)
    return ranges(first[keys.entity], lengths[keys.window, keys.entity])
